"""Values of a Mac by system calls: memory, pressure, swap, the thermal level, the memory of the server.

Layouts and constants are those of Apple's headers mach/vm_statistics.h, mach/host_info.h, sys/sysctl.h, sys/resource.h
and notify.h.
"""

import ctypes
import errno
import os
import shutil
import struct
from collections.abc import Callable, Sequence

from gatekeeper.core.system.system_names import tools_stand_in
from gatekeeper.host.macos import vm_stat
from gatekeeper.host.macos.powermetrics import LEVELS
from gatekeeper.host.process_tree import ProcessTree
from gatekeeper.host.sources import MOST_MEMORY, DirectSource, Status, Values, number

STAND_IN = "system_library.so"
"""The library that answers these calls where a test's tools stand in for those of a Mac; it lies on PATH with them."""

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

SYSCTL_KEYS = {
    "kern.memorystatus_vm_pressure_level": "memory_pressure_level",
    "vm.swapusage": "swap_used",
    "hw.memsize": "memory_total",
    "iogpu.wired_limit_mb": "gpu_wired_limit",
}
"""The value of a sample that each key gives."""
SWAP_BYTES, SWAP_USED_AT = 32, 16
"""Size of xsw_usage, and the byte offset of xsu_used in it."""
MEBIBYTE = 1 << 20

THERMAL_KEY = "com.apple.system.thermalpressurelevel"

RUSAGE_FLAVOR = 0
RUSAGE_SIZE = 512
"""Bytes: more than any flavor of the structure."""
FOOTPRINT_AT = 72
"""Byte offset of ri_phys_footprint in flavor 0, after a uuid and seven counters."""


def load_library() -> ctypes.CDLL | None:
    """Return the library that has a Mac's calls; None on another system, or where tools alone stand in for a Mac's."""
    file = shutil.which(STAND_IN) if tools_stand_in() else None
    if tools_stand_in() and file is None:
        return None
    library = ctypes.CDLL(file, use_errno=True)
    return library if hasattr(library, "host_statistics64") else None


def sources(library: ctypes.CDLL, pids: Callable[[], Sequence[int]]) -> list[DirectSource]:
    """Return the sources that are calls of *library*."""
    tree = ProcessTree(pids)
    return [HostStatistics(library), SysctlByName(library), ThermalLevel(library), ProcPidRusage(tree, library)]


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
        check_code("host_statistics64", code)
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
    provides = tuple(SYSCTL_KEYS.values())

    def __init__(self, library: ctypes.CDLL) -> None:
        self._call = library.sysctlbyname

    def read(self) -> Values:
        """Return the values in base units; a key that this system lacks is absent."""
        return {value: self._value(key) for key, value in SYSCTL_KEYS.items()}

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
        return value_of(key, int.from_bytes(raw, "little")) if len(raw) in (4, 8) else Status.PARSE_ERROR


def value_of(key: str, count: int) -> float | Status:
    """Return the value of a key of sysctl whose value is a whole number, in base units."""
    if key == "kern.memorystatus_vm_pressure_level":
        return float(count) if count in (1, 2, 4) else Status.PARSE_ERROR
    if key == "iogpu.wired_limit_mb":
        return number(count * MEBIBYTE, most=MOST_MEMORY) if count else Status.ABSENT  # 0 means the system's default
    return number(count, most=MOST_MEMORY) if count else Status.PARSE_ERROR


class ThermalLevel(DirectSource):
    """The thermal pressure level by notify_get_state; a key that does not exist gives 0 as well."""

    name = "notify_get_state"
    provides = ("thermal_level",)

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._token: ctypes.c_int | None = None

    def read(self) -> Values:
        """Return the level 0 to 4."""
        if self._token is None:
            token = ctypes.c_int()
            code = self._library.notify_register_check(THERMAL_KEY.encode(), ctypes.byref(token))
            check_code("notify_register_check", code)
            self._token = token
        state = ctypes.c_uint64()
        check_code("notify_get_state", self._library.notify_get_state(self._token, ctypes.byref(state)))
        level = state.value
        return {"thermal_level": float(level) if level < len(LEVELS) else Status.PARSE_ERROR}


def check_code(call: str, code: int) -> None:
    """Raise OSError where a call returned a *code* other than 0."""
    if code != 0:
        raise OSError(f"{call}: code {code}")


class ProcPidRusage(DirectSource):
    """Sum of what the kernel charges to each process of the server; RSS would miss the memory of the GPU."""

    name = "proc_pid_rusage"
    provides = ("subject_footprint",)

    def __init__(self, tree: ProcessTree, library: ctypes.CDLL) -> None:
        self._tree = tree
        self._library = library

    def read(self) -> Values:
        """Return the sum; unknown if one process cannot be read."""
        total, measured = 0, False
        for pid in self._tree.pids():
            try:
                total, measured = total + footprint_of(self._library, pid), True
            except ProcessLookupError:
                continue
            except PermissionError:
                return {"subject_footprint": Status.DENIED}
        return {"subject_footprint": float(total) if measured else Status.ABSENT}


def footprint_of(library: ctypes.CDLL, pid: int) -> int:
    """Return the bytes that the kernel charges to a process; raise OSError where it may not be read, or is gone."""
    buffer = ctypes.create_string_buffer(RUSAGE_SIZE)
    if library.proc_pid_rusage(pid, RUSAGE_FLAVOR, buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    footprint: int = struct.unpack_from("<Q", buffer.raw, FOOTPRINT_AT)[0]
    return footprint
