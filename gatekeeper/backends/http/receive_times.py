"""When the kernel received what a stream reads: Linux stamps TCP segments, however late this process is woken.

A read carries one stamp, the wall time at which the last segment of its bytes was received: the kernel joins segments
that wait to be read, and keeps the time of the last. So no byte arrived after its stamp, no stamp is later than the
read, and pieces that one read brings have one time. The monotonic clock and the wall clock run at one speed, so that
their difference makes a stamp a monotonic time; where it changes within an answer, the wall clock was set, and no stamp
is used.
"""

import functools
import socket
import ssl
import struct
import sys
import time
from array import array
from collections.abc import Sequence
from itertools import accumulate, islice
from operator import sub

_SO_TIMESTAMPNS = 35
"""The option of the socket and the type of its ancillary data (asm-generic/socket.h); Python has no name for it."""
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = 64
_PAIRS = 5
"""Pairs of both clocks that are read for one difference; a busy machine may stop this process within one."""
_STEP_NS = 100_000
"""A difference of the clocks that changes by more: the wall clock was set."""


class ReceiveTimes:
    """Reads a socket, and keeps the kernel's stamp of each read where it gives one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._stamps = array("q")
        self._stamped = _are_stamped(sock)
        self._difference_ns = monotonic_minus_wall() if self._stamped else 0

    def receive_into(self, room: memoryview) -> int:
        """Read once; return how many bytes came, 0 at the end. OSError as the socket raises it."""
        if not self._stamped:
            return self._sock.recv_into(room)
        received, ancillary, _, _ = self._sock.recvmsg_into((room,), _ANCILLARY_BYTES)
        if received:
            self._stamps.append(_wall_ns(ancillary))
        return received

    def of_reads(self, read_ns: Sequence[int], since_ns: int) -> tuple[Sequence[int], int | None]:
        """Return when each read was received, and the longest time until it was read, in monotonic nanoseconds.

        *read_ns* are when the reads returned, of an answer to a request sent at *since_ns*. The longest time is None
        where no stamp is used, because there are none or the wall clock was set: then the reads' own times are
        returned.
        """
        difference = self._difference_ns
        if not any(self._stamps) or abs(monotonic_minus_wall() - difference) > _STEP_NS:
            return read_ns, None
        received = received_times(self._stamps, difference, read_ns, since_ns)
        return received, max(map(sub, read_ns, received))


def received_times(
    stamps_ns: Sequence[int], difference_ns: int, read_ns: Sequence[int], since_ns: int
) -> Sequence[int]:
    """Return the monotonic times of stamps by the wall clock, of which 0 is none, as the first of a process may be.

    A read without a stamp keeps its own time. No time is before *since_ns*, before that of an earlier read, or after
    the read itself.
    """
    known = (
        min(stamp + difference_ns, read) if stamp else read for stamp, read in zip(stamps_ns, read_ns, strict=True)
    )
    return array("q", islice(accumulate(known, max, initial=since_ns), 1, None))


def _wall_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """Return the stamp among the ancillary data of a read, in nanoseconds; 0 where there is none."""
    for level, kind, content in ancillary:
        if (level, kind, len(content)) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS, _TIMESPEC.size):
            seconds, nanoseconds = _TIMESPEC.unpack(content)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return 0


def monotonic_minus_wall() -> int:
    """Return the difference of both clocks in nanoseconds, from the pair that was read within the shortest time."""

    def pair() -> tuple[int, int]:
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        return after - before, (before + after) // 2 - wall

    return min(pair() for _ in range(_PAIRS))[1]


def _are_stamped(sock: socket.socket) -> bool:
    """Tell whether the kernel stamps what *sock* reads. Within TLS it cannot: a record may span segments."""
    if sys.platform != "linux" or isinstance(sock, ssl.SSLSocket):
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    _keep_stamping()
    return True


@functools.cache
def _keep_stamping() -> socket.socket | None:
    """Return a socket that keeps the kernel's stamping on: it rewrites its own code when the first such one opens."""
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return None
    return sock
