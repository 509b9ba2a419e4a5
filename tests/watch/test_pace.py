"""The pace: canaries cost a bounded share of a server's time."""

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.watch.pace import Pace

SECOND = 10**9


@given(
    duty=st.floats(0.001, 0.5),
    costs=st.lists(st.floats(0.01, 20.0), min_size=1, max_size=60),
    interval=st.floats(1.0, 120.0),
)
def test_the_share_is_bounded(duty: float, costs: list[float], interval: float) -> None:
    """
    Whatever answers cost, they never take more than the duty, one turn, and what idle time may save up.
    """
    pace = Pace(duty, most=duty * interval, begun_ns=0)
    now, pending = 0, list(costs)
    while pending:
        while pending and pace.may(now):
            cost = pending.pop()
            now += round(cost * SECOND)
            pace.spend(cost, now)
        now += round(interval * SECOND)

        assert pace.spent <= duty * now / 1e9 + max(costs) + duty * interval + 1e-6


def test_a_turn_is_paid_back_before_the_next() -> None:
    """
    One second of answers at two percent asks for fifty seconds; the answer's own second counts.
    """
    pace = Pace(0.02, most=10.0, begun_ns=0)
    assert pace.may(0)
    pace.spend(1.0, SECOND)

    assert (False, False, True) == (pace.may(SECOND), pace.may(49 * SECOND), pace.may(51 * SECOND))


def test_idle_time_is_no_licence_for_a_burst() -> None:
    """
    After an hour without canaries no more is saved up than was allowed.
    """
    pace = Pace(0.02, most=1.0, begun_ns=0)

    assert pace.may(3600 * SECOND)
    assert 1.0 == pace.balance


def test_the_time_to_the_next_turn_is_told() -> None:
    """
    Half a second owed at five percent is ten seconds of waiting.
    """
    pace = Pace(0.05, most=1.0, begun_ns=0)
    pace.spend(0.5, 0)

    assert 10.0 == pace.rest(0)
