"""Whether drafting harms: degenerate answers of one arm alone, and what their number proves."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.harm import (
    HARM_LEVEL,
    SAMPLED_HARM_LEVEL,
    harm,
    is_repetitive,
    mid_p,
    visible_share,
)
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Answer, Generation, Replayed, Role, setting
from tests.builders.slo import followed

FINE = "The quick brown fox jumps over the lazy dog while the band plays an old tune in the park."
STUCK = "The quick brown fox jumps " + "over the dog " * 12
OTHER = "A quick brown fox jumped across one lazy dog as a band was playing some old tune in town."


def answered(arm: str, text: str, number: int, workload: str, finish: str = "stop") -> Generation:
    knobs = setting(draft=None if arm == "plain" else "d")
    answer = Answer(0, 99, text=text, finish=finish, output_tokens=len(text.split()))
    return Generation("soak-1", f"{arm}/{number}", workload, f"c-{number}", arm, knobs, Role.MEASURED, 0, "", 1, answer)


def both_arms(drafting: Sequence[str], plain: Sequence[str], workload: str = "w") -> PairedAnswers:
    names = [f"c-{number}" for number in range(len(plain))]
    canaries = {name: Canary(id=name, messages=({"role": "user", "content": "?"},)) for name in names}
    arms = [
        tuple(answered(arm, text, number, workload) for number, text in enumerate(texts))
        for arm, texts in (("candidate", drafting), ("plain", plain))
    ]
    return PairedAnswers(workload, canaries, arms[0], arms[1], level=0.98, seed=1, greedy=True)


def chance(evidence: PairedAnswers) -> float:
    estimate = harm(evidence)
    assert isinstance(estimate, Estimate)
    return estimate.center


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FINE, False),
        (STUCK, True),
        ("1. one\n2. two\n3. three\n4. four\n5. five\n6. six\n", False),
        (" ".join(f"{word} {word}" for word in FINE.split()), True),
        (" ".join(word * 2 for word in FINE.split()), True),
        ("", False),
    ],
)
def test_repetition_and_doubled_pieces_are_told_from_prose(text: str, expected: bool) -> None:
    """A piece again and again at the end, or words twice, are degenerate; prose and lists are not."""
    assert expected == is_repetitive(text)


def test_answers_that_differ_in_words_alone_harm_nothing() -> None:
    """Honest flips change the words of all answers, and some answers of both arms may repeat themselves."""
    assert 1.0 == chance(both_arms([OTHER] * 40, [FINE] * 40))
    assert 1.0 == chance(both_arms([STUCK, OTHER] * 10, [FINE, STUCK] * 10))


def test_a_workload_without_worse_answers_is_not_harmed_by_the_others() -> None:
    """The signs of all workloads count together, but fail only a workload that has some of them."""
    stuck = both_arms([STUCK] * 20, [FINE] * 20, "stuck")
    fine = replace(both_arms([OTHER] * 20, [FINE] * 20, "fine"), elsewhere=(*stuck.answers, *stuck.plain))

    assert 1.0 == chance(fine)
    assert chance(stuck) < HARM_LEVEL


def test_an_answer_that_runs_into_its_limit_alone_is_one_sign() -> None:
    """Plain decoding ends by itself, the draft's answer only at its limit."""
    evidence = both_arms([OTHER] * 8, [FINE] * 8)
    endless = tuple(replace(answer, answer=replace(answer.answer, finish="length")) for answer in evidence.answers)

    assert chance(replace(evidence, answers=endless)) < HARM_LEVEL


def test_above_temperature_0_it_takes_more_signs() -> None:
    """Chance makes drawn answers degenerate in either arm: nine of nine fail, where six of six do at 0."""
    few, enough = (replace(both_arms([STUCK] * count, [FINE] * count), greedy=False) for count in (8, 9))

    assert HARM_LEVEL > chance(few) > SAMPLED_HARM_LEVEL > chance(enough)
    assert visible_share(92) < visible_share(92, 0, SAMPLED_HARM_LEVEL) < visible_share(92, 5, SAMPLED_HARM_LEVEL)


@pytest.mark.parametrize(("count", "wanted", "proves"), [(8, 0.4, False), (8, 0.9, True), (24, 0.4, True)])
def test_a_test_without_power_proves_nothing(count: int, wanted: float, *, proves: bool) -> None:
    """Eight answers of other words, none degenerate, would show harm in nine of ten at best: unproven where four of ten
    must be found, which 24 canaries do; and the reason says how many it takes.
    """
    outcome = harm(replace(both_arms([OTHER] * count, [FINE] * count), visible_harm=wanted))

    assert proves == isinstance(outcome, Estimate)
    if isinstance(outcome, Missing):
        assert chance(replace(both_arms([STUCK] * 6, [FINE] * 6), visible_harm=wanted)) < HARM_LEVEL, "proven harm"
        assert "found if it were 89 % of the answers, and must be at 40 %: about 24 canaries" in outcome.because


def test_words_that_are_known_to_be_the_targets_need_no_power() -> None:
    """Plain decoding's own words, and tokens that a replay verified, cannot be harmed unseen."""
    same = both_arms([FINE] * 8, [FINE] * 8)
    other = both_arms([OTHER] * 8, [FINE] * 8)
    replays = tuple(Replayed("w", answer.canary, answer.key) for answer in other.answers)

    for evidence in (same, replace(other, followed=followed(replay=replays))):
        assert 1.0 == chance(replace(evidence, visible_harm=0.4))


@given(st.integers(0, 60), st.integers(0, 60))
def test_mid_p_is_that_of_the_binomial_distribution(worse: int, better: int) -> None:
    """More than so many signs, and half of exactly so many."""
    signs = worse + better
    expected = binom.sf(worse, signs, 0.5) + binom.pmf(worse, signs, 0.5) / 2

    assert mid_p(worse, signs) == pytest.approx(expected, abs=1e-12)


@pytest.mark.whole
@pytest.mark.parametrize("mean", [3.0, 9.0, 25.0])
def test_a_harmless_kernel_keeps_the_level(mean: float) -> None:
    """Over any number of signs, as they come about, a fair kernel fails with at most the chance of HARM_LEVEL."""
    canaries = 232
    false_alarms = sum(
        binom.pmf(signs, canaries, mean / canaries)
        * sum(binom.pmf(worse, signs, 0.5) for worse in range(signs + 1) if mid_p(worse, signs) < HARM_LEVEL)
        for signs in range(1, 80)
    )

    assert false_alarms <= HARM_LEVEL
