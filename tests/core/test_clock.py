"""The clocks: ticks of the virtual one, and how an instant is written."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.clock import VirtualClock, stamp


def test_ticks_see_their_own_instant() -> None:
    """A sampler on the virtual clock is called at each due time on the way, not all at once at the end."""
    clock, instants = VirtualClock(), []
    clock.every(10**9, lambda: instants.append(clock.now_ns()))

    clock.sleep(3.5)

    assert ([1 * 10**9, 2 * 10**9, 3 * 10**9], 3_500_000_000) == (instants, clock.now_ns())


@given(st.lists(st.floats(-1, 5), max_size=20))
def test_time_never_goes_back(waits: list[float]) -> None:
    """A negative wait waits for nothing; wall time moves with the monotonic one."""
    clock = VirtualClock()
    start = clock.wall()

    instants = []
    for wait in waits:
        clock.sleep(wait)
        instants.append(clock.now_ns())

    assert sorted(instants) == instants
    assert pytest.approx((clock.wall() - start).total_seconds(), abs=1e-5) == clock.now_ns() / 1e9


def test_instants_are_written_in_utc() -> None:
    """One format, always UTC, so that text sorts as time."""
    assert "2026-11-20T09:12:00.123456Z" == stamp(datetime(2026, 11, 20, 9, 12, 0, 123456, tzinfo=UTC))
