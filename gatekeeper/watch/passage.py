"""The passage of time between two looks: whether the host slept, the clock was set, or the watch was held up."""

from dataclasses import dataclass
from datetime import datetime

from gatekeeper.terms.clock import Clock

LEAST_S = 2.0
"""Smaller corrections of the time of day are a time server's daily work."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks."""

    now_ns: int
    wall: datetime

    @classmethod
    def of(cls, clock: Clock) -> "Instant":
        """Read both clocks."""
        return cls(clock.now_ns(), clock.wall())


def gap(before: Instant, now: Instant, *, expected: float, interval: float) -> str | None:
    """Say what happened where more, or other, time went by than *expected* seconds; None where all is well.

    Durations are the monotonic clock's, which stands still while a host sleeps. Where the time of day went on without
    it, the host slept or somebody set the clock; the two can not be told apart, and nothing seen before counts.
    """
    passed = (now.now_ns - before.now_ns) / 1e9
    told = (now.wall - before.wall).total_seconds()
    much = max(2 * interval, LEAST_S)
    if told - passed > much:
        return f"the host slept, or its clock was set {told - passed:.0f} s forward"
    if passed - told > much:
        return f"the clock was set {passed - told:.0f} s back"
    if passed - expected > much:
        return f"the watch was held up for {passed - expected:.0f} s"
    return None
