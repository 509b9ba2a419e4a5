"""What the records give away about a subject."""

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.rehearsal import Rehearsed, canaries, rehearse, slo
from gatekeeper.analysis.metrics import comparability
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.analysis.verdict import answer_findings as findings
from gatekeeper.core.records import Answer, Claims, Generation, Role, Rounds, setting
from gatekeeper.core.records.arrivals import Arrival
from tests.builders.golden_words import says

HEAVY = setting(draft="heavy", num_draft_tokens=4)


def answered(
    canary: str,
    *,
    seconds: float = 1.0,
    tokens: int = 20,
    arm: str = "candidate",
    rounds: Rounds | None = None,
    claims: Claims | None = None,
    pair: str = "1",
) -> Generation:
    """An answer of evenly spaced tokens."""
    step = round(seconds * 1e9 / tokens)
    arrivals = tuple(Arrival(step * (index + 1), 1) for index in range(tokens))
    answer = Answer(
        0, step * tokens, arrivals, output_tokens=tokens, finish="stop", rounds=rounds, claims=claims or Claims()
    )
    knobs = HEAVY if arm == "candidate" else setting(draft=None)
    return Generation("t", f"{pair}{canary}", "w", canary, arm, knobs, Role.MEASURED, 0, pair, 1, answer)


def evidence(candidate: list[Generation], plain: list[Generation] | None = None) -> PairedAnswers:
    answers = PairedAnswers("w", {}, tuple(candidate), tuple(plain or ()), 0.95, 1, greedy=True)
    return pair_answers(answers)


def kinds(candidate: list[Generation], plain: list[Generation] | None = None) -> set[str]:
    return {finding.kind for finding in findings.examine(evidence(candidate, plain), HEAVY, "w")}


HONEST = Rounds(5, 20, 15)


@pytest.mark.parametrize(
    ("rounds", "claims"),
    [
        pytest.param(Rounds(5, 12, 15), None, id="acceptance above 1"),
        pytest.param(HONEST, Claims(20, 24, 5), id="acceptance above 1, claimed"),
        pytest.param(Rounds(5, 20, 2), None, id="fewer emitted than accepted and rounds say"),
        pytest.param(None, Claims(40, 1, 10), id="rounds that do not add up, claimed"),
        pytest.param(HONEST, Claims(20, 8, 5), id="claims of another count than ours"),
    ],
)
def test_counters_that_can_not_be_true_are_lies(rounds: Rounds | None, claims: Claims | None) -> None:
    """Arithmetic alone convicts a counter, ours or claimed."""
    candidate = [answered(f"c-{number}", rounds=rounds, claims=claims) for number in range(10)]

    kinds_found = kinds(candidate)

    assert {"counter_lie"} == kinds_found
    assert set() == kinds([answered(f"c-{at}", rounds=HONEST, claims=Claims(20, 15, 5)) for at in range(10)])


def test_counters_that_stand_still_are_lies() -> None:
    """The same claim after every answer, long or short, is not counted at all."""
    candidate = [answered(f"c-{number}", tokens=10 + 3 * number, claims=Claims(20, 12)) for number in range(10)]

    kinds_found = kinds(candidate)

    assert {"counter_lie"} == kinds_found


def test_all_accepted_for_nothing_is_a_lie_and_all_accepted_for_speed_is_not() -> None:
    """Every proposal accepted and no faster than plain decoding does not go together."""
    full = Rounds(4, 16, 16)
    plain = [answered(f"c-{number}", arm="plain") for number in range(10)]
    slow, fast = ([answered(f"c-{n}", rounds=full, seconds=seconds) for n in range(10)] for seconds in (1.0, 0.3))

    kinds_found = (kinds(slow, plain), kinds(fast, plain))

    assert ({"counter_lie"}, set()) == kinds_found


def test_a_draft_that_proposes_nothing_is_found() -> None:
    """Speculation that is silently off is said, not only unproven."""
    candidate = [answered(f"c-{number}", rounds=Rounds(20, 0, 0)) for number in range(10)]

    kinds_found = kinds(candidate)

    assert {"silent_speculation"} == kinds_found


def test_a_truncated_answer_is_no_speed() -> None:
    """13 tokens instead of 200 are a finding, and the pair is lost to every ratio."""
    candidate = [answered("c-1", tokens=13, seconds=0.1, rounds=Rounds(4, 16, 9))]
    plain = [answered("c-1", tokens=200, arm="plain")]

    mismatches = findings.examine(evidence(candidate, plain), HEAVY, "w")

    assert ["length_mismatch"] == [finding.kind for finding in mismatches]
    assert "13 tokens and 200" in mismatches[0].detail


def sampled(seed: int, longer: float, spread: float = 0.15) -> PairedAnswers:
    """Canaries of unlike lengths, answered twice in both arms, at 50 tokens a second and 60 with the draft."""
    lengths = np.random.default_rng(seed)
    means = np.exp(5 + 0.4 * lengths.standard_normal(24))
    arms: dict[str, list[Generation]] = {"candidate": [], "plain": []}
    for turn in range(2):
        for at, mean in enumerate(means.tolist()):
            for arm, times, rate in (("candidate", longer, 60.0), ("plain", 1.0, 50.0)):
                tokens = max(2, round(mean * times * math.exp(spread * lengths.standard_normal())))
                generation = answered(f"c-{at}", seconds=tokens / rate, tokens=tokens, arm=arm, pair=f"{turn}.{at}")
                arms[arm].append(generation)
    return replace(evidence(arms["candidate"], arms["plain"]), greedy=False)


def test_sampled_answers_that_are_longer_are_a_finding_with_what_they_take() -> None:
    """Answers a quarter longer at 1.2x the speed take longer than plain decoding's, which the ratio for the same tokens
    does not say. Nothing is void, so nothing is blocked.
    """
    longer, shorter = (comparability.length_shift(sampled(4, times), "w") for times in (1.25, 0.8))

    assert ["length_shift", "length_shift"] == [finding.kind for finding in (*longer, *shorter)]
    assert not longer[0].voids
    says("verdicts", "sampled answers that are longer are a finding with what they take", longer[0].detail)
    says("verdicts", "sampled answers that are shorter", shorter[0].detail)
    assert longer[0] in findings.examine(sampled(4, 1.25), HEAVY, "w")
    assert () == comparability.length_shift(replace(sampled(4, 1.25), greedy=True), "w"), (
        "greedy ones have another check"
    )


@given(st.integers(0, 1000), st.sampled_from([(6, 2), (12, 3), (24, 2)]), st.floats(0.0, 0.12))
def test_noise_is_no_unstable_arm(seed: int, shape: tuple[int, int], sigma: float) -> None:
    """An arm that merely scatters is left to the interval, however few answers there are to look at."""
    draw, (prompts, repeats) = random.Random(seed), shape
    plain = [
        answered(f"c-{number % prompts}", seconds=math.exp(draw.gauss(0, sigma)), arm="plain", pair=f"{number}")
        for number in range(prompts * repeats)
    ]

    assert None is comparability.instability(plain)


def test_two_speeds_show_where_each_canary_answered_once() -> None:
    """Forty canaries with one plain answer each, four in ten at a sixth of the speed: no canary repeats, and it shows.
    Long prompts that all decode at half the speed of short ones are no fault.
    """
    speeds = [5.0 if number % 5 in {0, 2} else 30.0 for number in range(40)]
    once = [answered(f"c-{at}", seconds=20 / speed, arm="plain", pair=f"{at}") for at, speed in enumerate(speeds)]
    long = [
        replace(record, answer=replace(record.answer, prompt_tokens=20_000))
        for record in once
        if record.answer.ended_ns > 2e9
    ]

    says("verdicts", "two speeds show where each canary answered once", comparability.instability(once) or "")
    assert None is comparability.instability([record for record in once if record.answer.ended_ns < 2e9] + long)


@given(st.integers(0, 11), st.integers(1, 12))
def test_a_slow_start_is_no_unstable_arm_of_a_sweep(slow: int, once_more: int) -> None:
    """First answers at a third of the speed, in a row, are left out of a sweep's look at plain decoding; others stay,
    slow ones between quick ones too, and never more than half are left out.
    """

    def arm(speeds: list[float]) -> list[Generation]:
        return [
            replace(generation, answer=replace(generation.answer, sent_ns=number * 10**10))
            for number, speed in enumerate(speeds)
            for generation in [answered(f"c-{number}", seconds=20 / speed, arm="plain", pair=f"{number}")]
        ]

    started = arm([140.0] * slow + [400.0] * (24 - slow))
    throughout = arm([400.0, *([140.0] * once_more), *([400.0] * (23 - once_more))])

    assert started[slow:] == comparability.after_slow_start(reversed(started))
    assert None is comparability.instability(comparability.after_slow_start(started))
    assert throughout == comparability.after_slow_start(throughout)
    assert 12 == len(comparability.after_slow_start(arm([140.0] * 12 + [400.0] * 12)))


def run(truth: dict[str, Any], promise: dict[str, Any], *, unforeseen: float | None = None) -> Rehearsed:
    names = ["work"] if unforeseen is None else ["work", "random"]
    promised = slo(
        workload=[{"name": name, "canaries": "x", "speculation": "optional"} for name in names],
        sweep={"repeats": 1, "num_draft_tokens": [4]},
        soak={"duration": 60.0, "baseline_share": 0.5},
        objective=[{**promise, "why": "w"}],
    )
    script = {"tokens": 40, "acceptance": 0.8, "noise": {"answer": 0.02}, **truth}
    if unforeseen is not None:
        script["canaries"] = {"random": {"acceptance": unforeseen, "ratio": 1.05}}
    return rehearse(promised, {name: canaries(name, 12, category=name) for name in names}, script, 1)


def test_a_lie_makes_its_checks_unproven() -> None:
    """A bound on acceptance that claims of 1.3 times the truth would pass is not passed."""
    promise = {"metric": "acceptance_rate", "at_least": 0.3}

    honest, lying = (run({"claims": {"accepted": factor}}, promise) for factor in (1.0, 1.3))

    assert ("promoted", "unproven") == (honest.verdict.workloads[0].outcome, lying.verdict.workloads[0].outcome)
    assert {"counter_lie"} == {finding.kind for finding in lying.verdict.findings}


def test_a_lie_in_the_sweep_is_named_though_plain_decoding_is_chosen() -> None:
    """A draft that slows decoding down is never soaked; the counters of the sweep are examined all the same."""
    slow = {"acceptance": 0.2, "verify": "40 ms", "draft_token": "10 ms"}
    promise = {"metric": "acceptance_rate", "at_least": 0.1}

    honest, lying = (run({**slow, "claims": {"accepted": factor}}, promise) for factor in (1.0, 9.0))

    assert ["graded_back"] * 2 == [rehearsed.verdict.workloads[0].outcome for rehearsed in (honest, lying)]
    assert [] == [finding for finding in honest.verdict.findings if finding.kind == "counter_lie"]
    (lie,) = (finding for finding in lying.verdict.findings if finding.kind == "counter_lie")
    assert lie.about.startswith("work, sweep with ")
    assert "acceptance_rate" in lie.voids


@pytest.mark.parametrize(("unforeseen", "expected"), [(0.1, set()), (0.95, {"counter_lie"})])
def test_the_unpredictable_is_the_negative_control(unforeseen: float, expected: set[str]) -> None:
    """What no draft can foresee must be accepted less often than what it can."""
    ran = run({}, {"metric": "acceptance_rate", "at_least": 0.05}, unforeseen=unforeseen)

    assert expected == {finding.kind for finding in ran.verdict.findings}
