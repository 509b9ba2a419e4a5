"""What live requests prove: intervals that hold at every moment, and a benefit that is gone."""

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.clock import Instant
from gatekeeper.core.judgement import Missing, Outcome
from gatekeeper.live import routes
from gatekeeper.live.anytime_bounds import MOST_WAITING, Moments
from gatekeeper.live.live_evidence import LiveEvidence, Observation
from gatekeeper.live.routes import RouteRules, Standing
from gatekeeper.live.server_load import LoadMet, ServerLoad
from tests.builders.golden_words import says
from tests.builders.live_server import live_policy

SECOND = 1_000_000_000
NOW = Instant(3600 * SECOND, datetime(2026, 11, 22, tzinfo=UTC))


def fed(ratio: float, holdout: int, *, failing: float = 0.0, seed: int = 5) -> LiveEvidence:
    """Return evidence of *holdout* plain answers and twenty times as many at *ratio* of their speed."""
    rng, evidence = np.random.default_rng(seed), LiveEvidence()
    evidence.restart("easy", 86400.0, 0)
    for number in range(21 * holdout):
        arm = "holdout" if number % 21 == 0 else "speculative"
        prompt = math.exp(rng.normal(6, 1))
        speed = 90 * prompt**-0.1 * (ratio if arm == "speculative" else 1) * math.exp(rng.normal(0, 0.2))
        failed = arm == "speculative" and rng.random() < failing
        evidence.add(answered(arm, number, speed=speed, prompt_chars=int(prompt), failed=failed), number)
    return evidence


def answered(arm: str, conversation: int, **changes: Any) -> Observation:
    """Return an answer of a conversation in an arm."""
    return replace(Observation("easy", arm, 1, str(conversation), 400, True, 90.0, 0.2, False), **changes)


def test_a_benefit_that_is_there_turns_nothing_off() -> None:
    """A ratio of 1.6 is bounded around the truth, adjusted for lengths, and no guard is crossed."""
    evidence = fed(1.6, 40)
    benefit = evidence.benefit("easy")

    assert () == evidence.judge("easy", live_policy(), NOW)
    assert benefit is not None
    assert benefit.speed.lo < 1.6 < benefit.speed.hi  # type: ignore[union-attr]
    assert {"speculative": 800, "holdout": 40} == benefit.answers


def test_a_benefit_proven_gone_moves_the_route_down_through_the_state_machine() -> None:
    """Answers at 0.7 of plain speed cross a guard, and the change of the route says what live requests showed."""
    policy = live_policy()
    (result,) = fed(0.7, 60).judge("easy", policy, NOW)
    rules = RouteRules(policy.route_of("easy").steps, policy.watch, True)
    state, changes = routes.after_round(routes.start(Standing(workload="easy"), 0), [result], rules, NOW)

    assert Outcome.FAIL is result.outcome
    assert ("down", 1) == (changes[0].kind, state.standing.step)
    assert "live requests" in changes[0].because


def test_failing_answers_cross_a_guard_too() -> None:
    """A third of failed answers where plain decoding fails none is a benefit that is gone."""
    (result,) = fed(1.6, 200, failing=0.33).judge("easy", live_policy(), NOW)

    assert ("error_rate", Outcome.FAIL) == (result.guard.metric, result.outcome)


def test_too_few_answers_prove_nothing() -> None:
    """Fifteen plain answers are missing evidence: no interval, and nothing is turned off."""
    evidence = fed(0.3, 15)
    benefit = evidence.benefit("easy")

    assert () == evidence.judge("easy", live_policy(), NOW)
    assert benefit is not None
    assert "needed" in benefit.speed.because  # type: ignore[union-attr]


def test_answers_of_an_earlier_setting_are_not_evidence() -> None:
    """What was drawn before the setting changed is dropped when it ends after the change."""
    evidence = fed(1.6, 20)
    evidence.restart("easy", 86400.0, 0)
    evidence.add(answered("holdout", 1), 1)
    benefit = evidence.benefit("easy")

    assert benefit is not None
    assert {"speculative": 0, "holdout": 0} == benefit.answers


def test_many_answers_of_one_conversation_are_one_piece_of_evidence() -> None:
    """A hundred plain answers of one conversation are less than the sixteen conversations needed."""
    evidence = fed(1.0, 0)
    for number in range(400):
        evidence.add(answered("holdout", 1, speed=900.0), number)
        evidence.add(answered("speculative", 2 + number), number)
    benefit = evidence.benefit("easy")

    assert () == evidence.judge("easy", live_policy(), NOW)
    assert benefit is not None
    assert {"speculative": 400, "holdout": 1} == benefit.conversations
    assert isinstance(benefit.speed, Missing)


def loaded(ratio: float, at_one: float) -> LiveEvidence:
    """Return evidence of an idle plain server and a loaded one, at which a share *at_one* of the answers is alone."""
    rng, evidence = np.random.default_rng(7), LiveEvidence()
    evidence.restart("easy", 86400.0, 0)
    for number in range(1600):
        arm = "holdout" if number % 20 == 0 else "speculative"
        in_flight = 0 if arm == "holdout" or rng.random() < at_one else 3
        speed = 90 * (ratio if arm == "speculative" else 1) * 0.8**in_flight * math.exp(rng.normal(0, 0.1))
        evidence.add(answered(arm, number, speed=speed, decoding=LoadMet(1.0 + in_flight)), number)
    return evidence


def test_a_loaded_server_is_compared_with_an_idle_one_at_the_load_of_the_idle_one() -> None:
    """Half of the drafted answers meet three others: the gain of 1.1 at equal load is found, and said."""
    evidence = loaded(1.1, at_one=0.5)
    benefit = evidence.benefit("easy")

    assert () == evidence.judge("easy", live_policy(), NOW)
    assert benefit is not None
    assert 1.0 < benefit.speed.lo < 1.1 < benefit.speed.hi < 1.2  # type: ignore[union-attr]
    says("proxy", "a loaded server is compared with an idle one", benefit.loads)


def test_loads_that_hardly_overlap_prove_nothing() -> None:
    """Where one answer in ten is written at the load of the plain ones, even half the speed turns nothing off."""
    evidence = loaded(0.5, at_one=0.1)
    benefit = evidence.benefit("easy")

    assert () == evidence.judge("easy", live_policy(), NOW)
    assert benefit is not None
    assert isinstance(benefit.speed, Missing)
    says("proxy", "loads that hardly overlap", benefit.loads)


def test_a_loss_at_the_load_of_the_idle_server_is_a_loss() -> None:
    """Half the speed at equal load crosses the guard, and the reason says at which load."""
    (result,) = loaded(0.5, at_one=0.5).judge("easy", live_policy(), NOW)

    says("proxy", "a loss at the load of the idle server", result.check.because)


def test_answers_without_a_speed_are_no_evidence_of_it() -> None:
    """Where answers are not streamed and the server states no time, the speed is unproven, and the reason says so."""
    evidence = fed(1.0, 0)
    for number in range(400):
        evidence.add(answered("holdout" if number % 2 else "speculative", number, speed=None, streamed=False), number)
    benefit = evidence.benefit("easy")

    assert benefit is not None
    assert "not streamed" in benefit.speed.because  # type: ignore[union-attr]


def test_failed_answers_count_by_conversation() -> None:
    """A client that tries one request a hundred times, in vain, is one conversation that failed."""
    evidence = fed(1.6, 200)
    for number in range(100):
        evidence.add(answered("speculative", 10**6, failed=True), number)
    benefit = evidence.benefit("easy")

    assert () == evidence.judge("easy", live_policy(), NOW)
    assert benefit is not None
    assert benefit.error_share["speculative"][1] < 0.01


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_the_interval_holds_the_truth_on_95_percent_of_the_days_of_each_world() -> None:
    """Idle plain servers, cached prompts, load, retries and clients that leave."""
    from bench.proxy_days import print_worlds  # noqa: PLC0415

    assert print_worlds(days=100, seed=11) >= 0.95


def whole_answers(ratio: float, holdout: int, seed: int = 5) -> LiveEvidence:
    """Return evidence of answers that are not streamed, at *ratio* of plain decoding's speed for whole answers."""
    rng, evidence = np.random.default_rng(seed), LiveEvidence()
    evidence.restart("easy", 86400.0, 0)
    for number in range(21 * holdout):
        arm = "holdout" if number % 21 == 0 else "speculative"
        speed = 40 * (ratio if arm == "speculative" else 1) * math.exp(rng.normal(0, 0.2))
        evidence.add(answered(arm, number, streamed=False, speed=None, ttft=None, whole_speed=speed), number)
    return evidence


def test_whole_answers_show_a_loss_where_no_prompt_is_cached() -> None:
    """The time of whole answers turns a route down; not where a prompt may be cached, nor for a gain that is small."""
    (result,) = whole_answers(0.7, 60).judge("easy", live_policy(), NOW)
    cached = [whole_answers(0.7, 60).judge("easy", live_policy(cache=cache), NOW) for cache in ("on", "unknown")]
    short = whole_answers(1.2, 60).judge("easy", live_policy(speedup_at_least=1.5), NOW)
    benefit = whole_answers(1.6, 60).benefit("easy")

    assert ("answer_throughput_ratio", Outcome.FAIL) == (result.guard.metric, result.outcome)
    says("proxy", "whole answers show a loss", result.check.because)
    assert [(), (), ()] == [*cached, short]
    assert benefit is not None
    assert isinstance(benefit.speed, Missing)
    assert benefit.whole.lo < 1.6 < benefit.whole.hi  # type: ignore[union-attr]
    assert sum(benefit.answers.values()) == benefit.untimed


ROWS = st.lists(st.tuples(*[st.floats(-20, 20)] * 3), min_size=2, max_size=3 * MOST_WAITING)


@given(ROWS, st.integers(0, MOST_WAITING))
def test_replaced_rows_leave_the_moments_of_the_others(rows: list[tuple[float, ...]], replaced: int) -> None:
    """Mean and centred products are those of numpy over the rows that stayed, also where they are read in between."""
    moments = Moments(3)
    for number, row in enumerate(rows):
        if number < replaced:
            moments.add((1.0, 2.0, 3.0))
            moments.replace((1.0, 2.0, 3.0), row)
        else:
            moments.add(row)
        if number % 7 == 0:
            moments.multiply_deviations()

    table = np.array(rows)
    assert len(rows) == moments.n
    assert table.mean(axis=0) == pytest.approx(moments.mean, abs=1e-9)
    assert np.cov(table.T, bias=True) * len(rows) == pytest.approx(moments.multiply_deviations(), abs=1e-6)


def test_an_answer_meets_what_is_in_flight_at_both_servers_in_the_mean_over_its_time() -> None:
    """Half of its time alone, then with another one at its server and two answers elsewhere."""
    now_ns = [5]
    load = ServerLoad(lambda: now_ns[0])
    answer = load.begin("a")
    now_ns[0] += 5
    answer.first_text()
    now_ns[0] += 10
    load.begin("a")
    elsewhere = load.begin("b", 2)
    now_ns[0] += 10
    answer.end()
    elsewhere.end()

    assert (LoadMet(1.0), LoadMet(1.5, 1.0)) == (answer.waiting, answer.decoding)


def test_what_has_ended_is_met_no_more() -> None:
    """An answer after others is alone, and one without a first text met the same before and after it."""
    now_ns = [0]
    load = ServerLoad(lambda: now_ns[0])
    for _ in range(2):
        answer = load.begin("a", 3)
        now_ns[0] += 10
        answer.end()

    assert (LoadMet(3.0), LoadMet(3.0)) == (answer.waiting, answer.decoding)
