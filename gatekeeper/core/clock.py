"""Clocks: the machine's own, and a virtual one for tests and the scripted backend; and how an instant is written."""

import threading
import time
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Protocol


class Clock(Protocol):
    """Monotonic nanoseconds for intervals, wall time for instants, and a way to wait."""

    def now_ns(self) -> int:
        """Return monotonic nanoseconds; only differences mean anything."""

    def wall(self) -> datetime:
        """Return the time of day in UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


def stamp(instant: datetime) -> str:
    """Write an instant as `2026-11-20T09:12:00.123456Z`."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class SystemClock:
    """The clock of this machine."""

    def now_ns(self) -> int:
        """Return `time.monotonic_ns()`, which every process of this machine shares."""
        return time.monotonic_ns()

    def wall(self) -> datetime:
        """Return the time of day in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait; a signal ends the wait with its exception."""
        time.sleep(max(0.0, seconds))


class VirtualClock:
    """A clock that moves only when it is slept on, so that ten minutes pass in milliseconds."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start_s = start.timestamp()
        self._now_ns = 0
        self._lock = threading.Lock()
        self._ticks: list[tuple[int, Callable[[], None]]] = []

    def now_ns(self) -> int:
        """Return nanoseconds since the clock was made."""
        return self._now_ns

    def wall(self) -> datetime:
        """Return the start plus what has passed."""
        return datetime.fromtimestamp(self._start_s + self._now_ns / 1e9, UTC)

    def sleep(self, seconds: float) -> None:
        """Move on by *seconds*, calling every tick that falls due on the way."""
        self.advance(round(max(0.0, seconds) * 1e9))

    def advance(self, nanoseconds: int) -> None:
        """Move on, stopping at each due tick so that it sees its own instant."""
        with self._lock:
            end = self._now_ns + max(0, nanoseconds)
            while self._ticks and self._ticks[0][0] <= end:
                due, call = self._ticks.pop(0)
                self._now_ns = max(self._now_ns, due)
                call()
            self._now_ns = end

    def every(self, nanoseconds: int, call: Callable[[], None]) -> Callable[[], None]:
        """Call *call* each *nanoseconds* of virtual time until the returned function is called."""
        stopped = threading.Event()

        def schedule() -> None:
            insort(self._ticks, (self._now_ns + nanoseconds, tick), key=itemgetter(0))

        def tick() -> None:
            if not stopped.is_set():
                call()
                schedule()

        schedule()
        return stopped.set


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks."""

    now_ns: int
    wall: datetime

    @classmethod
    def of(cls, clock: Clock) -> "Instant":
        """Read both clocks."""
        return cls(clock.now_ns(), clock.wall())


def wall_seconds(at: str) -> float | None:
    """Return the seconds since 1970 of a stamp; None where there is none."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        return None


CLOCK_STEP_S = 2.0
"""Smaller corrections of the time of day are normal for a time server."""


def clock_gap(before: Instant, now: Instant, *, expected: float, interval: float) -> str | None:
    """Return what happened if the time passed differs from *expected* seconds; None if it does not.

    Durations are those of the monotonic clock, which stands still while a host sleeps. If the time of day advanced
    further, the host slept or its clock was set. The two cannot be distinguished, and earlier evidence is dropped.
    """
    passed = (now.now_ns - before.now_ns) / 1e9
    by_wall = (now.wall - before.wall).total_seconds()
    limit = max(2 * interval, CLOCK_STEP_S)
    if by_wall - passed > limit:
        return f"the host slept, or its clock was set {by_wall - passed:.0f} s forward"
    if passed - by_wall > limit:
        return f"the clock was set {passed - by_wall:.0f} s back"
    if passed - expected > limit:
        return f"the watch was delayed by {passed - expected:.0f} s"
    return None
