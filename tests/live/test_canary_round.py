"""The budget: canaries cost a bounded share of a server's time."""

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.live.canary_round import DutyBudget

SECOND = 10**9


@given(
    duty=st.floats(0.001, 0.5),
    costs=st.lists(st.floats(0.01, 20.0), min_size=1, max_size=60),
    interval=st.floats(1.0, 120.0),
)
def test_the_share_is_bounded(duty: float, costs: list[float], interval: float) -> None:
    """Whatever answers cost, they take no more than the duty of the time, and what the dearest costs beyond."""
    budget = DutyBudget(duty, interval, begun_ns=0)
    now, pending, last = 0, list(costs), 0.0
    while pending:
        while pending and budget.affords(last, now):
            last = pending.pop()
            now += round(last * SECOND)
            budget.spend(last, now)
        now += round(max(interval, last / duty) * SECOND)

        assert budget.spent <= duty * now / 1e9 + 3 * max(costs) + 1e-6


def test_a_turn_is_paid_for_before_it_is_sent() -> None:
    """One second of answers at two percent asks for fifty seconds, and the debt of the first for fifty more."""
    budget = DutyBudget(0.02, 60.0, begun_ns=0)
    budget.spend(1.0, 0)

    assert [False, False, True] == [budget.affords(1.0, at * SECOND) for at in (1, 99, 101)]


def test_idle_time_is_no_licence_for_a_burst() -> None:
    """After an hour without canaries no more is saved up than an interval grants and the next turn takes."""
    budget = DutyBudget(0.02, 50.0, begun_ns=0)

    assert [True, 1.5] == [budget.affords(0.5, 3600 * SECOND), budget.balance]
    assert [True, 3.0] == [budget.affords(2.0, 7200 * SECOND), budget.balance]
