"""The passage of time: sleep, a clock that was set, and a watch that was held up are noticed."""

from datetime import UTC, datetime, timedelta

import pytest

from gatekeeper.core.clock import Instant
from gatekeeper.deploy.watch.session import clock_gap

START = Instant(0, datetime(2026, 1, 1, tzinfo=UTC))


def after(monotonic: float, wall: float) -> Instant:
    return Instant(round(monotonic * 1e9), START.wall + timedelta(seconds=wall))


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (after(10, 10), None),
        (after(10.5, 11.5), None),
        (after(30, 30), None),
        (after(10, 3610), "the host slept, or its clock was set 3600 s forward"),
        (after(10, -3590), "the clock was set 3600 s back"),
        (after(110, 110), "the watch was held up for 100 s"),
    ],
)
def test_time_that_went_by_otherwise_is_told(now: Instant, says: str | None) -> None:
    """
    More than two intervals beside what was expected, on either clock, is told; a time server's step is not.
    """
    assert says == clock_gap(START, now, expected=10, interval=10)


def test_short_intervals_forgive_a_small_step() -> None:
    """
    A watch of a tenth of a second does not take a corrected clock for a sleep.
    """
    assert clock_gap(START, after(0.1, 1.6), expected=0.1, interval=0.1) is None
