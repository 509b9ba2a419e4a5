"""The memory that the kernel charges to the server's processes, by proc_pid_rusage or by `footprint`."""

import ctypes
import os
import re
import struct
import time
from collections.abc import Callable, Sequence

import psutil

from gatekeeper.host.sources import MOST_MEMORY, DirectSource, Status, Tool, Values, failure, number
from gatekeeper.host.tool_commands import Output

PROVIDES = ("subject_footprint",)

FLAVOR = 0
SIZE = 512
"""Bytes: more than any flavor of the structure."""
FOOTPRINT_AT = 72
"""Byte offset of ri_phys_footprint in flavor 0, read in xnu's resource.h."""
TREE_MAX_AGE = 5.0
"""Seconds for which the list of the server's processes is kept: listing all processes takes milliseconds."""


def process_tree(roots: Sequence[int]) -> list[int]:
    """Return those of *roots* that still run, and all their descendants, on any platform."""
    pids: set[int] = set()
    for root in roots:
        try:
            process = psutil.Process(root)
            pids |= {root} | {child.pid for child in process.children(recursive=True)}
        except (psutil.Error, RuntimeError):  # psutil raises RuntimeError on systems newer than itself
            continue
    return sorted(pids)


def footprint_in(structure: bytes) -> int:
    """Return ri_phys_footprint of a filled structure."""
    footprint: int = struct.unpack_from("<Q", structure, FOOTPRINT_AT)[0]
    return footprint


def footprint_of(library: ctypes.CDLL, pid: int) -> int:
    """Return the bytes that the kernel charges to a process; raise OSError where it may not be read, or is gone."""
    buffer = ctypes.create_string_buffer(SIZE)
    if library.proc_pid_rusage(pid, FLAVOR, buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return footprint_in(buffer.raw)


class ProcPidRusage(DirectSource):
    """Sum of phys_footprint over the tree, by a system call; RSS would miss the memory of the GPU."""

    name = "proc_pid_rusage"
    provides = PROVIDES

    def __init__(self, pids: Callable[[], Sequence[int]], library: ctypes.CDLL) -> None:
        self._pids = pids
        self._library = library
        self._roots: tuple[int, ...] = ()
        self._tree: list[int] = []
        self._due_ns = 0

    def read(self) -> Values:
        """Return the sum; unknown if one process cannot be read."""
        roots, now = tuple(self._pids()), time.monotonic_ns()
        if roots != self._roots or now >= self._due_ns:
            self._roots, self._tree = roots, process_tree(roots)
            self._due_ns = now + round(TREE_MAX_AGE * 1e9)
        total, measured = 0, False
        for pid in self._tree:
            try:
                total, measured = total + footprint_of(self._library, pid), True
            except ProcessLookupError:
                continue
            except PermissionError:
                return {"subject_footprint": Status.DENIED}
        return {"subject_footprint": float(total) if measured else Status.ABSENT}


_HEADER = re.compile(
    r"^.*\[(\d{1,9})\]:.*\bFootprint:\s+(\d{1,18})(?:\s+([A-Za-z]+))?[ \t]*(?:\(.*\))?\n", re.MULTILINE
)

_UNITS = {"": 1, "B": 1, "bytes": 1, "KB": 1 << 10, "MB": 1 << 20}
"""Units that are exact enough. Whole gigabytes are not: a leak of 0.25 GB would not show."""


def tool(pids: Callable[[], Sequence[int]]) -> Tool:
    """Return the tool for the tree of *pids*, which is listed again for each run."""
    tree: list[int] = []

    def argv() -> list[str] | None:
        tree[:] = process_tree(pids())
        return ["footprint", "-f", "bytes", *(part for pid in tree for part in ("-p", str(pid)))] if tree else None

    return Tool("footprint", PROVIDES, argv, lambda output: parse(output, tree), period=5.0, limit=5.0)


def parse(output: Output, pids: Sequence[int]) -> Values:
    """Return the sum over *pids*; if one process has no line, the sum is unknown, not smaller."""
    if status := failure(output):
        return dict.fromkeys(PROVIDES, status)
    bytes_by_pid: dict[int, float] = {}
    for pid, size, unit in _HEADER.findall(output.text or ""):
        footprint = float(int(size) * _UNITS.get(unit, 0))
        if unit not in _UNITS or bytes_by_pid.setdefault(int(pid), footprint) != footprint:
            return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    if not pids or not bytes_by_pid.keys() >= set(pids):
        return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    return {"subject_footprint": number(sum(bytes_by_pid[pid] for pid in pids), most=MOST_MEMORY)}
