/* What a Mac's system library exports for gatekeeper, with the layouts of Apple's headers and the numbers of
   tests/builders/mac_tools.py. STAND_IN names what is wrong with it: fails, no_pages (host_statistics64 fails),
   every_fourth (its call fails), longer (its answer has 104 words), torn, short, speculative, no_key, level, warm, dark,
   headless.
   Preloaded on Linux it also says that the system is a Mac's; what its tools print is on PATH (tests/as_mac.py). */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

int uname(struct utsname *names) {
  if (syscall(SYS_uname, names) != 0) return -1;
  strcpy(names->sysname, "Darwin");
  return 0;
}
#endif

typedef uint32_t natural_t;
typedef int32_t kern_return_t;

struct vm_statistics64 { /* mach/vm_statistics.h, revision 1 */
  natural_t free_count, active_count, inactive_count, wire_count;
  uint64_t zero_fill_count, reactivations, pageins, pageouts, faults, cow_faults, lookups, hits, purges;
  natural_t purgeable_count, speculative_count;
  uint64_t decompressions, compressions, swapins, swapouts;
  natural_t compressor_page_count, throttled_count, external_page_count, internal_page_count;
  uint64_t total_uncompressed_pages_in_compressor;
} __attribute__((aligned(8)));
_Static_assert(sizeof(struct vm_statistics64) == 38 * 4, "HOST_VM_INFO64_REV1_COUNT");
_Static_assert(offsetof(struct vm_statistics64, speculative_count) == 92, "as in Apple's header");
_Static_assert(offsetof(struct vm_statistics64, swapins) == 112, "as in Apple's header");
_Static_assert(offsetof(struct vm_statistics64, total_uncompressed_pages_in_compressor) == 144, "as in Apple's header");

struct xsw_usage { /* sys/sysctl.h */
  uint64_t xsu_total, xsu_avail, xsu_used;
  uint32_t xsu_pagesize;
  int xsu_encrypted;
};

struct rusage_info_v0 { /* sys/resource.h */
  uint8_t ri_uuid[16];
  uint64_t ri_user_time, ri_system_time, ri_pkg_idle_wkups, ri_interrupt_wkups, ri_pageins, ri_wired_size;
  uint64_t ri_resident_size, ri_phys_footprint, ri_proc_start_abstime, ri_proc_exit_abstime;
};

size_t vm_kernel_page_size = 16384;

static int wrong(const char *what) {
  const char *named = getenv("STAND_IN");
  return named != NULL && strcmp(named, what) == 0;
}

static int pages_fail(void) { /* a kernel that limits how often it answers refuses some calls */
  static unsigned calls;
  return wrong("fails") || wrong("no_pages") || (wrong("every_fourth") && ++calls % 4 == 0);
}

natural_t mach_host_self(void) { return 2563; }

kern_return_t host_statistics64(natural_t host, int flavor, int32_t *info, natural_t *count) {
  if (pages_fail() || host != 2563 || flavor != 4) return 5;
  if (wrong("longer") && *count < 104) return *count = 104, -307;
  if (*count != (wrong("longer") ? 104 : 38)) return 5;
  struct vm_statistics64 pages = {
      .free_count = 100000, .active_count = 400000, .inactive_count = 390000, .wire_count = 210000,
      .zero_fill_count = 6002, .reactivations = 7003, .pageins = 34567, .pageouts = 4567, .faults = 7000000001,
      .cow_faults = 5001, .lookups = 1, .hits = 2, .purges = 8004, .purgeable_count = 15000,
      .speculative_count = 10000, .decompressions = 12345, .compressions = 23456, .swapins = 321, .swapouts = 654,
      .compressor_page_count = 110000, .throttled_count = 3, .external_page_count = 250000,
      .internal_page_count = 550000, .total_uncompressed_pages_in_compressor = 300000};
  if (wrong("torn")) pages.internal_page_count = 650000;
  if (wrong("speculative")) pages.free_count = 9999;
  memcpy(info, &pages, sizeof pages);
  if (wrong("longer")) memset(info + 38, 0xff, 66 * sizeof *info);
  if (wrong("short")) *count = 24;
  return 0;
}

static int give(const void *value, size_t size, void *old, size_t *length) {
  if (*length < size) return errno = ENOMEM, -1;
  memcpy(old, value, size);
  *length = size;
  return 0;
}

int sysctlbyname(const char *name, void *old, size_t *length, void *fresh, size_t fresh_length) {
  if (fresh != NULL || fresh_length != 0) return errno = EPERM, -1;
  const int level = wrong("level") ? 3 : 1, limit = wrong("level") ? 14000 : 0;
  const uint64_t memory = 25769803776;
  const struct xsw_usage swap = {3072u << 20, 3072u * 1048576u - 1611137024u, 1611137024u, 16384, 1};
  if (wrong("fails")) return errno = EPERM, -1;
  if (strcmp(name, "kern.memorystatus_vm_pressure_level") == 0) return give(&level, sizeof level, old, length);
  if (strcmp(name, "vm.swapusage") == 0) return give(&swap, sizeof swap, old, length);
  if (strcmp(name, "hw.memsize") == 0) return give(&memory, sizeof memory, old, length);
  if (strcmp(name, "iogpu.wired_limit_mb") == 0 && !wrong("no_key")) return give(&limit, sizeof limit, old, length);
  return errno = ENOENT, -1;
}

uint32_t notify_register_check(const char *name, int *token) {
  if (wrong("fails") || strcmp(name, "com.apple.system.thermalpressurelevel") != 0) return 1;
  *token = 17;
  return 0;
}

uint32_t notify_get_state(int token, uint64_t *state) {
  if (token != 17 || wrong("fails")) return 2;
  *state = wrong("level") ? 30 : wrong("warm") ? 1 : 0;
  return 0;
}

int proc_pid_rusage(int pid, int flavor, void *buffer) {
  struct rusage_info_v0 usage = {.ri_wired_size = 7, .ri_resident_size = 8, .ri_phys_footprint = 50000000};
  if (wrong("fails")) return errno = EPERM, -1;
  if (pid <= 0 || flavor != 0) return errno = ESRCH, -1;
  memcpy(buffer, &usage, sizeof usage);
  return 0;
}

int32_t CGGetOnlineDisplayList(uint32_t most, uint32_t *displays, uint32_t *count) { /* CoreGraphics/CGDirectDisplay.h */
  if (wrong("fails")) return 1001;
  *count = wrong("headless") ? 0 : most < 2 ? most : 2;
  for (uint32_t index = 0; index < *count; index++) displays[index] = 69733378 + index;
  return 0;
}

uint32_t CGDisplayIsAsleep(uint32_t display) { return wrong("dark") || display == 69733378; }
