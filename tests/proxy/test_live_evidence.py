"""What live requests prove: intervals that hold at every moment, and a benefit that is gone."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest

from gatekeeper.core.clock import Instant
from gatekeeper.core.verdict import Outcome
from gatekeeper.deploy.watch import route_state
from gatekeeper.deploy.watch.route_state import RouteRules, Standing
from gatekeeper.proxy.live_evidence import LiveEvidence, Observation
from tests.builders.live_server import live_policy

SECOND = 1_000_000_000
NOW = Instant(3600 * SECOND, datetime(2026, 11, 22, tzinfo=UTC))


def fed(ratio: float, holdout: int, *, failing: float = 0.0, seed: int = 5) -> LiveEvidence:
    """Return evidence of *holdout* plain answers and twenty times as many at *ratio* of their speed."""
    rng, evidence = np.random.default_rng(seed), LiveEvidence()
    evidence.restart("easy", 86400.0, 0)
    for number in range(21 * holdout):
        arm = "holdout" if number % 21 == 0 else "speculative"
        prompt, answer = math.exp(rng.normal(6, 1)), math.exp(rng.normal(5, 0.8))
        speed = 90 * prompt**-0.1 * answer**0.1 * (ratio if arm == "speculative" else 1) * math.exp(rng.normal(0, 0.2))
        failed = arm == "speculative" and rng.random() < failing
        evidence.add(Observation("easy", arm, 1, int(prompt), int(answer), True, speed, 0.2, failed), number)
    return evidence


def test_a_benefit_that_is_there_turns_nothing_off() -> None:
    """
    A ratio of 1.6 is bounded around the truth, adjusted for lengths, and no guard is crossed.
    """
    evidence = fed(1.6, 40)
    benefit = evidence.benefit("easy")

    assert () == evidence.judge("easy", live_policy(), NOW)
    assert benefit is not None
    assert benefit.speed.lo < 1.6 < benefit.speed.hi  # type: ignore[union-attr]
    assert {"speculative": 800, "holdout": 40} == benefit.answers


def test_a_benefit_proven_gone_moves_the_route_down_through_the_state_machine() -> None:
    """
    Answers at 0.7 of plain speed cross a guard, and the change of the route says what live requests showed.
    """
    policy = live_policy()
    (found,) = fed(0.7, 60).judge("easy", policy, NOW)
    rules = RouteRules(policy.route_of("easy").steps, policy.watch, True)
    state, changes = route_state.after_round(route_state.start(Standing(workload="easy"), 0), [found], rules, NOW)

    assert Outcome.FAIL is found.outcome
    assert ("down", 1) == (changes[0].kind, state.standing.step)
    assert "live requests" in changes[0].because


def test_failing_answers_cross_a_guard_too() -> None:
    """
    A third of failed answers where plain decoding fails none is a benefit that is gone.
    """
    (found,) = fed(1.6, 200, failing=0.33).judge("easy", live_policy(), NOW)

    assert ("error_rate", Outcome.FAIL) == (found.guard.metric, found.outcome)


def test_too_few_answers_prove_nothing() -> None:
    """
    Fifteen plain answers are missing evidence: no interval, and nothing is turned off.
    """
    evidence = fed(0.3, 15)
    benefit = evidence.benefit("easy")

    assert () == evidence.judge("easy", live_policy(), NOW)
    assert benefit is not None
    assert "needed" in benefit.speed.because  # type: ignore[union-attr]


def test_answers_of_an_earlier_setting_are_not_evidence() -> None:
    """
    What was drawn before the setting changed is dropped when it ends after the change.
    """
    evidence = fed(1.6, 20)
    evidence.restart("easy", 86400.0, 0)
    evidence.add(Observation("easy", "holdout", 1, 5, 5, True, 9.0, 0.1, False), 1)
    benefit = evidence.benefit("easy")

    assert benefit is not None
    assert {"speculative": 0, "holdout": 0} == benefit.answers


@pytest.mark.nightly
def test_the_interval_holds_the_truth_on_95_percent_of_simulated_days() -> None:
    """
    Looked at after every plain answer, the interval holds the true ratio all day, under six kinds of noise.
    """
    from bench.proxy.coverage import coverage  # noqa: PLC0415

    missed = {name: share for name, share in coverage(days=200, seed=11).items() if share < 0.95}

    assert {} == missed
