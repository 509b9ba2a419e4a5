"""Checks against the certified run: each metric that two runs can be compared in, and what both runs must show."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.verdict.against_certified import Certified, CertifiedFigures, check_against, summary
from gatekeeper.core.judgement import AGAINST_CERTIFIED, Check, Outcome
from gatekeeper.core.metrics import RUN_TO_RUN
from gatekeeper.core.records import Role
from gatekeeper.core.slo import Objective
from tests.builders.golden_words import says
from tests.builders.slo import canary, claimed, counted, evidence, generation, steady

CANARIES = 6
JSON = {"json_schema": {"const": 1}}


def run(
    *, token_s: float = 0.05, first_s: float = 0.1, accepted: int = 6, wrong: int = 0, plain_s: float = 0.1
) -> PairedAnswers:
    """A run of three rounds over six canaries, where the draft's answers are as told and plain decoding is steady."""
    candidate, plain = [], []
    for at in range(3 * CANARIES):
        name, sent = f"c-{at % CANARIES:03}", 10.0 * at
        counters: dict[str, Any] = {"rounds": counted(4, 8, accepted), "claims": claimed(8, accepted)}
        text = "2" if at % CANARIES < wrong else "1"
        fast = steady(token_s * (1 + at % 3 / 100), first_s=first_s, sent_s=sent, text=text, **counters)
        candidate.append(generation(fast, name, pair=f"p{at}"))
        slow = steady(plain_s * (1 + at % 3 / 100), sent_s=sent + 5, text="1")
        plain.append(generation(slow, name, arm="plain", role=Role.BASELINE, pair=f"p{at}"))
    prompts = [canary(f"c-{at:03}", expect=JSON) for at in range(CANARIES)]
    return evidence(candidate, plain, prompts)


def checked(now: PairedAnswers, then: PairedAnswers, metric: str, **bound: Any) -> Check:
    certified = Certified(CertifiedFigures("runs/first", "", Mock(), "", {"easy": summary(then)}))
    objective = Objective(metric=metric, against="certified", why="no worse than certified", **bound)
    return check_against(objective, now, certified, {})


BOUNDS: Mapping[str, dict[str, Any]] = {
    "throughput_ratio": {"at_least": 0.97},
    "answer_throughput_ratio": {"at_least": 0.97},
    "system_throughput_ratio": {"at_least": 0.97},
    "ttft_delta": {"at_most": 0.05},
    "plain_decode_throughput": {"at_least": 0.97},
    "acceptance_rate": {"at_least": 0.97},
    "acceptance_length": {"at_least": 0.97},
    "task_pass_delta": {"at_least": 0.0},
    "json_pass_delta": {"at_least": 0.0},
}


@pytest.mark.parametrize("metric", sorted(BOUNDS))
def test_a_worse_run_fails_and_the_same_run_passes(metric: str) -> None:
    """Every metric that two runs can be compared in: slower, later, fewer accepted and wrong answers are all seen."""
    worse = run(token_s=0.075, first_s=0.2, accepted=5, wrong=1, plain_s=0.11)

    unchanged, changed = (checked(now, run(), metric, **BOUNDS[metric]) for now in (run(), worse))

    assert (Outcome.PASS, Outcome.FAIL) == (unchanged.outcome, changed.outcome)
    assert AGAINST_CERTIFIED in changed.because
    assert {*RUN_TO_RUN} == {*BOUNDS, "tool_call_pass_delta"}, "each has a row"


def test_a_slower_engine_is_seen_although_the_ratio_rose() -> None:
    """Plain decoding lost an eighth and drafting nothing: the ratio passes and says so, the plain speed fails."""
    slower = run(plain_s=0.115)

    ratio = checked(slower, run(), "throughput_ratio", at_least=0.97)
    plain = checked(slower, run(), "plain_decode_throughput", at_least=0.97)

    assert (Outcome.PASS, Outcome.FAIL) == (ratio.outcome, plain.outcome)
    says("verdicts", "a slower engine is seen although the ratio rose", ratio.because)


def test_pass_rates_need_the_same_canaries() -> None:
    """A canary that one of the runs did not answer, or a kind that no canary expects, leaves the change unproven."""
    short = run()
    short = replace(short, answers=tuple(answer for answer in short.answers if answer.canary != "c-005"))

    result = checked(short, run(), "json_pass_delta", at_least=0.0)
    none = checked(run(), run(), "tool_call_pass_delta", at_least=0.0)

    assert (Outcome.UNPROVEN, Outcome.UNPROVEN) == (result.outcome, none.outcome)
    says("verdicts", "pass rates need the same canaries", result.because)


def test_a_servers_own_counters_are_compared_where_the_objective_says_so() -> None:
    """With from = "claims" the server's counters of both runs are compared, and labelled; ours may be missing."""

    def uncounted(**truth: Any) -> PairedAnswers:
        paired = run(**truth)
        return replace(
            paired,
            answers=tuple(replace(answer, answer=replace(answer.answer, rounds=None)) for answer in paired.answers),
        )

    bound: dict[str, Any] = {"at_least": 0.97, "from": "claims"}
    claimed_result = checked(uncounted(accepted=3), uncounted(), "acceptance_rate", **bound)
    counted_result = checked(uncounted(), uncounted(), "acceptance_rate", at_least=0.97)

    assert pytest.approx(0.5) == claimed_result.center
    assert "as the server reports" in claimed_result.because
    assert Outcome.UNPROVEN is counted_result.outcome
