"""Values of a Mac by system calls: the same numbers as vm_stat, sysctl and notifyutil print, without starting them.

Layouts and constants are those of Apple's headers mach/vm_statistics.h, mach/host_info.h, sys/sysctl.h and notify.h.
"""

import ctypes
import errno
import struct

from gatekeeper.host.macos import notifyutil, sysctl, vm_stat
from gatekeeper.host.sources import DirectSource, Status, Values

HOST_VM_INFO64 = 4
VM_WORDS = 38
"""32-bit words of vm_statistics64 up to its first revision; later ones append fields, and each kernel fills these."""
TOO_MANY_WORDS = -307
"""MIG_ARRAY_TOO_LARGE: the kernel had more words than there was room for, and the count holds how many."""
MOST_WORDS = 1024
"""HOST_INFO_MAX of mach/host_info.h: more than any revision has."""
VM_FIELDS: dict[str, tuple[str, int]] = {
    "Pages active": ("<I", 4),
    "Pages inactive": ("<I", 8),
    "Pages wired down": ("<I", 12),
    "Pages purgeable": ("<I", 88),
    "Pages speculative": ("<I", 92),
    "Swapins": ("<Q", 112),
    "Swapouts": ("<Q", 120),
    "Pages occupied by compressor": ("<I", 128),
    "File-backed pages": ("<I", 136),
    "Anonymous pages": ("<I", 140),
    "Pages stored in compressor": ("<Q", 144),
}
"""Type and byte offset of the field that vm_stat prints in each row; free_count, at 0, counts speculative pages too."""
SWAP_BYTES, SWAP_USED_AT = 32, 16
"""Size of xsw_usage, and the byte offset of xsu_used in it."""


def has_calls(library: ctypes.CDLL) -> bool:
    """Return whether *library* is that of a Mac."""
    return hasattr(library, "host_statistics64")


class HostStatistics(DirectSource):
    """Memory and swap by host_statistics64, in the rows of vm_stat.

    For programs that are not Apple's the kernel may answer with what it read up to a second ago.
    """

    name = "host_statistics64"
    provides = vm_stat.PROVIDES

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        # Each call adds a reference to the port.
        self._host = ctypes.c_uint(library.mach_host_self())

    def read(self) -> Values:
        """Return the values in bytes; a structure that is shorter or torn is a parse error."""
        buffer, words = ctypes.create_string_buffer(MOST_WORDS * 4), ctypes.c_uint(VM_WORDS)
        code = self._library.host_statistics64(self._host, HOST_VM_INFO64, buffer, ctypes.byref(words))
        if code == TOO_MANY_WORDS:
            # macOS 27 answers from a copy that another program may have filled with the words of a later revision.
            words.value = words.value if VM_WORDS < words.value <= MOST_WORDS else MOST_WORDS
            code = self._library.host_statistics64(self._host, HOST_VM_INFO64, buffer, ctypes.byref(words))
        if code != 0:
            raise OSError(f"host_statistics64: code {code}")
        rows = {name: int(struct.unpack_from(kind, buffer.raw, at)[0]) for name, (kind, at) in VM_FIELDS.items()}
        rows["Pages free"] = struct.unpack_from("<I", buffer.raw, 0)[0] - rows["Pages speculative"]
        if words.value < VM_WORDS or rows["Pages free"] < 0:
            return dict.fromkeys(self.provides, Status.PARSE_ERROR)
        # The page size of the counts, also under Rosetta, where that of the process is another.
        page = ctypes.c_size_t.in_dll(self._library, "vm_kernel_page_size").value
        return vm_stat.values_of(rows, page)


class SysctlByName(DirectSource):
    """Pressure level, swap in use, memory size and the limit of wired GPU memory by sysctlbyname."""

    name = "sysctlbyname"
    provides = tuple(sysctl.KEYS.values())

    def __init__(self, library: ctypes.CDLL) -> None:
        self._call = library.sysctlbyname

    def read(self) -> Values:
        """Return the values in base units; a key that this system lacks is absent."""
        return {value: self._value(key) for key, value in sysctl.KEYS.items()}

    def _value(self, key: str) -> float | Status:
        buffer, size = ctypes.create_string_buffer(SWAP_BYTES), ctypes.c_size_t(SWAP_BYTES)
        if self._call(key.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
            code = ctypes.get_errno()
            return Status.DENIED if code in (errno.EPERM, errno.EACCES) else Status.ABSENT
        raw = buffer.raw[: size.value]
        if key == "vm.swapusage":
            return (
                float(struct.unpack_from("<Q", raw, SWAP_USED_AT)[0]) if len(raw) == SWAP_BYTES else Status.PARSE_ERROR
            )
        return sysctl.value_of(key, int.from_bytes(raw, "little")) if len(raw) in (4, 8) else Status.PARSE_ERROR


class ThermalLevel(DirectSource):
    """The thermal pressure level by notify_get_state."""

    name = "notify_get_state"
    provides = ("thermal_level",)

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._token: ctypes.c_int | None = None

    def read(self) -> Values:
        """Return the level 0 to 4."""
        if self._token is None:
            token = ctypes.c_int()
            self._check(
                "notify_register_check",
                self._library.notify_register_check(notifyutil.KEY.encode(), ctypes.byref(token)),
            )
            self._token = token
        state = ctypes.c_uint64()
        self._check("notify_get_state", self._library.notify_get_state(self._token, ctypes.byref(state)))
        level = state.value
        return {"thermal_level": float(level) if level < len(notifyutil.LEVELS) else Status.PARSE_ERROR}

    def _check(self, call: str, code: int) -> None:
        if code != 0:
            raise OSError(f"{call}: code {code}")
