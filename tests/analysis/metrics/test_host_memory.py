"""A leak hidden by noise, through the whole pipeline: the bound on the growth of memory decides."""

import pytest

from bench.truth import Scenario, run, scenarios

HIDDEN = {scenario.name: scenario.script for scenario in scenarios() if scenario.leaks}


@pytest.mark.parametrize("name", sorted(HIDDEN))
def test_twice_the_bound_is_never_promoted_and_no_leak_never_blocked(name: str) -> None:
    """
    Whatever hides it, a leak at twice its bound does not pass, and a process that does not grow does not fail.
    """
    twice, none = (run(Scenario(name, share, script=HIDDEN[name], leaks=True), 7) for share in (-1.0, 1.0))

    assert "promoted" != twice.gate
    assert "blocked" != none.gate


def test_a_leak_in_the_open_is_decided_both_ways() -> None:
    """
    With little noise a tenth of the bound is enough: more is blocked, less is promoted, on speed that wins anyway.
    """
    quiet = {"memory": {"noise": 1e6}}

    above, below = (run(Scenario("quiet", share, script=quiet, leaks=True), 3) for share in (-0.1, 0.1))

    assert ("blocked", "promoted") == (above.gate, below.gate)
    assert (-0.1, 0.1) == (above.truth, below.truth)


def test_a_leak_at_its_bound_is_unproven() -> None:
    """
    Noise that moves the slope by more than its distance from the bound leaves nothing proven.
    """
    slow = HIDDEN["leak, slow noise of 20 MB"]

    assert "unproven" == run(Scenario("slow", 0.0, script=slow, leaks=True), 5).gate
