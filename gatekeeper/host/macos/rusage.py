"""proc_pid_rusage: the footprint of the subject's tree, read from the kernel without starting a tool."""

import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable, Sequence

from gatekeeper.host.processes import tree
from gatekeeper.host.sources import DirectSource, Status, Values

FLAVOR = 0
SIZE = 512
"""Bytes: more than any flavor of the structure."""
LISTED = 5.0
"""Seconds for which a list of the subject's processes is kept."""
FOOTPRINT_AT = 72
"""Byte offset of ri_phys_footprint in flavor 0, read in xnu's resource.h."""


def footprint_in(structure: bytes) -> int:
    """Return ri_phys_footprint of a filled structure."""
    footprint: int = struct.unpack_from("<Q", structure, FOOTPRINT_AT)[0]
    return footprint


class Rusage(DirectSource):
    """Sum of phys_footprint over the tree; RSS would miss what the GPU holds."""

    name = "proc_pid_rusage"
    provides = ("subject_footprint",)

    def __init__(self, pids: Callable[[], Sequence[int]]) -> None:
        self._pids = pids
        self._call = ctypes.CDLL(None, use_errno=True).proc_pid_rusage
        self._listed: tuple[tuple[int, ...], list[int]] = ((), [])
        self._due_ns = 0

    def _tree(self) -> list[int]:
        """Return the tree of the roots; listing all processes takes milliseconds, so it is not done in each sample."""
        roots, now = tuple(self._pids()), time.monotonic_ns()
        if roots != self._listed[0] or now >= self._due_ns:
            self._listed = roots, tree(roots)
            self._due_ns = now + round(LISTED * 1e9)
        return self._listed[1]

    def read(self) -> Values:
        """Return the sum; one process that refuses makes it unknown."""
        total, seen = 0, False
        for pid in self._tree():
            buffer = ctypes.create_string_buffer(SIZE)
            if self._call(pid, FLAVOR, buffer) != 0:
                code = ctypes.get_errno()
                if code == errno.ESRCH:
                    continue
                if code in (errno.EPERM, errno.EACCES):
                    return {"subject_footprint": Status.DENIED}
                raise OSError(code, os.strerror(code))
            total, seen = total + footprint_in(buffer.raw), True
        return {"subject_footprint": float(total) if seen else Status.ABSENT}
