"""Guards: crossed only beyond chance, kept only when shown, and never by what is not there."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.core.judgement import Outcome
from gatekeeper.core.policy import MeasuredValue
from gatekeeper.core.records import Claims, Reading
from gatekeeper.live.guards.guard_judgement import STRETCHES, judge_guards, round_error
from gatekeeper.live.guards.guard_values import certified_spread
from gatekeeper.live.guards.recent_samples import GuardEvidence
from gatekeeper.live.running.deployed_server import CounterGain
from tests.builders.golden_words import says
from tests.builders.slo import FAST, PLAIN, SECOND, canary, counted, near, steady
from tests.builders.watch import (
    DAY_S,
    accepting,
    alone,
    context,
    evidence,
    figure,
    guard,
    judged,
    pairs,
    sampled,
    speed,
)

RATIO = guard("throughput_ratio", at_least=1.16)
ACCEPTANCE = guard("acceptance_rate", at_least=0.4)
ERRORS = guard("error_rate", at_most=0.05)
WAVE = [1.0 + 0.02 * math.sin(number) for number in range(200)]
"""A little noise that is the same each time."""


def at_ratio(ratio: float, count: int) -> list[float]:
    return [ratio * wave for wave in WAVE[:count]]


# Speed


@pytest.mark.parametrize(
    ("ratio", "outcome"), [(1.5, Outcome.PASS), (1.16, Outcome.UNPROVEN), (0.6, Outcome.FAIL), (1.0, Outcome.FAIL)]
)
def test_the_ratio_is_judged_pair_by_pair(ratio: float, outcome: Outcome) -> None:
    """Well above its bound it is kept, well below it is crossed, and at the bound nothing is decided."""
    result = judged(context(RATIO), evidence(pairs(at_ratio(ratio, 24))))

    assert outcome is result.outcome
    assert "paired plain requests" in result.check.because
    assert near(ratio) == pytest.approx(result.check.center, rel=0.02)


def test_a_guard_counts_the_time_of_all_pairs() -> None:
    """Every third pair at 3x and the others at 0.85x: 1.11x by the time of all and 1.29x on average is below 1.16x."""
    unequal = [ratio * wave for ratio, wave in zip([3.0, 0.85, 0.85] * 60, WAVE, strict=False)]

    result = judged(context(RATIO, measured={}), evidence(pairs(unequal, step_s=20.0)))

    assert 3 / (1 / 3 + 2 / 0.85) == pytest.approx(result.check.center, rel=0.03)


def test_too_few_pairs_decide_nothing() -> None:
    """Seven pairs at half the speed are still too few; the eighth may speak."""
    results = [judged(context(RATIO), evidence(pairs(at_ratio(0.5, count)))) for count in (7, 8)]

    assert [Outcome.UNPROVEN, Outcome.FAIL] == [result.outcome for result in results]
    says("watch", "too few pairs decide nothing", results[0].check.because)
    assert results[0].fresh_ns is not None


def test_a_change_is_not_diluted_by_what_was() -> None:
    """A hundred good pairs before do not hide sixteen bad ones now."""
    result = judged(context(RATIO), evidence(pairs([*at_ratio(1.5, 100), *at_ratio(0.7, 16)], step_s=20.0)))

    assert Outcome.FAIL is result.outcome
    assert "last 16 values" in result.check.because or "last 8 values" in result.check.because


def test_a_recovery_is_not_diluted_by_what_was() -> None:
    """A hundred bad pairs before do not hide sixteen good ones: the latest stretch that decides, decides."""
    result = judged(context(RATIO), evidence(pairs([*at_ratio(0.7, 100), *at_ratio(1.5, 16)], step_s=20.0)))

    assert Outcome.PASS is result.outcome


def test_one_look_at_the_gates_confidence_is_no_proof() -> None:
    """What a single round would call crossed at 95 % is left undecided: of 43,200 rounds many would show it by
    chance.
    """
    noisy = [1.1 * math.exp(0.12 * (-1) ** number) for number in range(16)]

    result = judged(context(RATIO), evidence(pairs(noisy)))

    assert Outcome.UNPROVEN is result.outcome
    assert 1.17 > (result.check.hi or math.inf)


@pytest.mark.parametrize(
    ("certified", "outcome"), [(figure(1.5, 1.2, 1.9), Outcome.UNPROVEN), (figure(1.5, 1.48, 1.52), Outcome.FAIL)]
)
def test_a_few_hard_canaries_in_a_row_are_no_loss(certified: dict[str, Any], outcome: Outcome) -> None:
    """Eight pairs at 0.9 are a loss where all canaries gained alike, and may be chance where they differed widely."""
    guarded = context(RATIO, measured={"throughput_ratio": certified})

    assert outcome is judged(guarded, evidence(pairs(at_ratio(0.9, 8)))).outcome


def test_pairs_of_unlike_length_carry_no_speed() -> None:
    """If more than 5 % of the pairs did different work, the ratio counts as missing."""
    answers = pairs(at_ratio(1.5, 20))
    cut = [
        replace(answer, answer=steady(0.01, 10)) if answer.canary == "c-000" and answer.arm == "candidate" else answer
        for answer in answers
    ]

    result = judged(context(RATIO), evidence(cut))

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)
    assert "pairs are lost" in result.check.because


@pytest.mark.parametrize(("ratio", "outcome"), [(1.5, Outcome.PASS), (1.05, Outcome.UNPROVEN), (0.8, Outcome.FAIL)])
def test_without_plain_decoding_the_certified_speed_is_the_reference(ratio: float, outcome: Outcome) -> None:
    """75 tok/s were certified as 1.5; now 40 tok/s are 0.8. 15 % slower is tolerated: it may have slowed both arms."""
    answers = alone([speed(pair_ratio, 60.0 * number) for number, pair_ratio in enumerate(at_ratio(ratio, 40))])

    result = judged(context(RATIO), evidence(answers))

    assert outcome is result.outcome
    assert "the certified speed" in result.check.because
    assert "15% slower is tolerated" in result.check.because


def test_without_any_reference_there_is_no_speed_to_guard() -> None:
    """No plain decoding and no certified figure: that is missing evidence, with its reason."""
    guarded = context(RATIO)
    bare = guarded.policy.route[0].model_copy(update={"measured": type(guarded.policy.route[0].measured)()})
    guarded = replace(guarded, policy=guarded.policy.model_copy(update={"route": (bare,)}))

    result = judged(guarded, evidence(alone([speed(1.5, 60.0 * number) for number in range(40)])))

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)
    says("watch", "without any reference there is no speed to guard", result.check.because)


def test_decode_speed_is_judged_as_promised() -> None:
    """The bound is 20 tok/s; forty answers at 15 cross it."""
    guarded = context(guard("decode_throughput", at_least=20.0))

    result = judged(guarded, evidence(alone([steady(1 / 15, 40, sent_s=60.0 * number) for number in range(40)])))

    assert Outcome.FAIL is result.outcome


# Acceptance


@pytest.mark.parametrize(("share", "outcome"), [(0.9, Outcome.PASS), (0.4, Outcome.PASS), (0.2, Outcome.FAIL)])
def test_acceptance_is_the_median_answer(share: float, outcome: Outcome) -> None:
    """Its floor holds by order statistics, as in the gate."""
    assert outcome is judged(context(ACCEPTANCE), evidence(accepting([share] * 40))).outcome


def test_a_servers_claims_stand_in_for_counters() -> None:
    """Without counts of our own, the server's own figures are used, and the reason says so."""
    answers = [speed(1.4, 60.0 * number, claims=Claims(drafted=100, accepted=10)) for number in range(40)]

    result = judged(context(ACCEPTANCE), evidence(alone(answers)))

    assert Outcome.FAIL is result.outcome
    assert "as the server reports" in result.check.because


def test_a_draft_that_proposes_nothing_is_missing_evidence() -> None:
    """A server that was restarted without its draft shows no acceptance at all, which is not a good one."""
    answers = [speed(1.0, 60.0 * number, rounds=counted(40, 0, 0)) for number in range(40)]

    result = judged(context(ACCEPTANCE), evidence(alone(answers)))

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)


def moved(share: float, count: int = 60) -> list[CounterGain]:
    return [CounterGain(number * 60 * SECOND, 10_000, round(10_000 * share)) for number in range(count)]


def test_the_servers_counters_see_prompts_that_canaries_do_not() -> None:
    """The canaries' acceptance is good, but the real prompts' is not: the bound is crossed, by the server's
    counters.
    """
    result = judged(context(ACCEPTANCE), evidence(accepting([0.9] * 40), counter_gains=moved(0.1)))

    assert Outcome.FAIL is result.outcome
    assert "by the server's counters" in result.check.because


def test_a_collapse_to_half_crosses_within_two_windows() -> None:
    """Real traffic of a few answers a minute, then half of its acceptance: crossed within ten minutes, since it
    began.
    """

    def crossed_after(minutes: int) -> Any:
        shares = [0.8] * 60 + [0.4] * minutes
        gains = [
            CounterGain(number * 60 * SECOND, 1000, round(1000 * share), rounds=1500)
            for number, share in enumerate(shares, 1)
        ]
        guarded = context(guard("acceptance_rate", at_least=0.6))
        return judged(guarded, evidence(accepting([0.8] * 8), counter_gains=gains))

    first = next(minutes for minutes in range(1, 30) if crossed_after(minutes).outcome is Outcome.FAIL)

    assert 3 <= first <= 10
    assert 61 * 60 * SECOND == crossed_after(first).crossed_ns


def test_the_servers_counters_never_speak_for_a_route() -> None:
    """They are of all routes together: good ones are no evidence, and a route without canaries stays unproven."""
    result = judged(context(ACCEPTANCE), evidence(counter_gains=moved(0.9)))

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)


def test_counters_of_all_routes_cross_the_lowest_floor_only() -> None:
    """A mix may lie below the floor of one route and be right for another."""
    guarded = context(ACCEPTANCE, guard("acceptance_rate", at_least=0.2))

    results = [judged(guarded, evidence(accepting([0.9] * 40), counter_gains=moved(0.3)), at=at) for at in (0, 1)]

    assert [Outcome.PASS, Outcome.PASS] == [result.outcome for result in results]


# Errors and right answers


def failing(count: int, faulty: int) -> list[Any]:
    answers = [speed(1.4, 60.0 * number) for number in range(count)]
    return alone(
        [
            replace(answer, fault="timeout") if number >= count - faulty else answer
            for number, answer in enumerate(answers)
        ]
    )


@pytest.mark.parametrize(
    ("count", "faulty", "outcome"),
    [(80, 0, Outcome.PASS), (20, 0, Outcome.UNPROVEN), (80, 1, Outcome.UNPROVEN), (80, 10, Outcome.FAIL)],
)
def test_errors_are_judged_by_an_exact_interval(count: int, faulty: int, outcome: Outcome) -> None:
    """One timeout is no trend; a server that is gone crosses the bound after a few answers, however many were good."""
    assert outcome is judged(context(ERRORS), evidence(failing(count, faulty), now_s=2 * 3600)).outcome


def test_at_most_none_is_crossed_by_the_first() -> None:
    """Whoever writes 0 by hand means it."""
    result = judged(context(guard("error_rate", at_most=0.0)), evidence(failing(20, 1)))

    assert Outcome.FAIL is result.outcome


def saying(texts: list[str], knobs: Any = FAST) -> list[Any]:
    return alone([speed(1.4, 30.0 * number, text=text) for number, text in enumerate(texts)], knobs=knobs)


EXPECT_OK = [canary(f"c-{number:03}", expect={"equals": "ok"}) for number in range(8)]


@pytest.mark.parametrize(("wrong", "outcome"), [(0, Outcome.PASS), (4, Outcome.UNPROVEN), (24, Outcome.FAIL)])
def test_right_answers_are_counted(wrong: int, outcome: Outcome) -> None:
    """40 right answers keep a bound of 90 %, 24 wrong ones at the end cross it, 4 of them decide nothing."""
    guarded = context(guard("canary_pass_rate", at_least=0.9), canaries=EXPECT_OK)

    assert outcome is judged(guarded, evidence(saying(["ok"] * (40 - wrong) + ["no"] * wrong))).outcome


def paired(drafted: str, plain: str, rounds: int = 2) -> list[Any]:
    """Return answers of both arms to every canary, where the first canary is answered so."""
    out = []
    for number in range(8 * rounds):
        name, texts = f"c-{number % 8:03}", (drafted, plain) if number % 8 == 0 else ("ok", "ok")
        out += [
            replace(answer, canary=name, pair=f"p{number}")
            for text, knobs in zip(texts, (FAST, PLAIN), strict=True)
            for answer in alone([speed(1.4, 30.0 * number, text=text)], knobs=knobs)
        ]
    return out


DELTA = guard("task_pass_delta", at_least=0.0)


@pytest.mark.parametrize(
    ("drafted", "plain", "outcome"),
    [("ok", "ok", Outcome.PASS), ("no", "no", Outcome.PASS), ("no", "ok", Outcome.FAIL)],
)
def test_pass_rates_of_both_arms_are_facts_once_all_was_answered_twice(
    drafted: str, plain: str, outcome: Outcome
) -> None:
    """One canary that only the candidate gets wrong, twice, fails an objective of no difference."""
    assert outcome is judged(context(DELTA, canaries=EXPECT_OK), evidence(paired(drafted, plain))).outcome


def test_a_single_wrong_answer_is_not_a_fact_yet() -> None:
    """Before every canary was answered twice the difference has an interval, and lies on both sides."""
    result = judged(context(DELTA, canaries=EXPECT_OK), evidence(paired("no", "ok", rounds=1)))

    assert Outcome.UNPROVEN is result.outcome
    assert result.fresh_ns is not None


@pytest.mark.parametrize(("wrong", "outcome"), [(0, Outcome.PASS), (1, Outcome.UNPROVEN), (30, Outcome.FAIL)])
def test_without_plain_decoding_the_certified_pass_rate_is_the_reference(wrong: int, outcome: Outcome) -> None:
    """The whole set, twice alike, shows that nothing was lost; that something was needs more than chance."""
    result = judged(context(DELTA, canaries=EXPECT_OK), evidence(saying(["ok"] * (40 - wrong) + ["no"] * wrong)))

    assert outcome is result.outcome
    assert "certified pass rate" in result.check.because


# The host

HEADROOM = guard("memory_headroom", at_least=8e9, missing_for=300.0)


def on_host(value: float | None, *, name: str = "memory_headroom", since_s: float = 0.0, **more: Any) -> GuardEvidence:
    return evidence(since_s=since_s, samples=sampled({name: value}, at_s=range(3500, 3600)), **more)


@pytest.mark.parametrize(("value", "outcome"), [(9e9, Outcome.PASS), (7e9, Outcome.FAIL)])
def test_the_host_is_a_fact(value: float, outcome: Outcome) -> None:
    """With its samples there, the lowest 10 s of the last minute decide."""
    assert outcome is judged(context(HEADROOM), on_host(value)).outcome


@pytest.mark.parametrize("status", ["absent", "denied", "stale", "parse_error"])
def test_a_sensor_that_vanished_is_missing(status: str) -> None:
    """A host reading without a number is no evidence."""
    reading = Reading(9e9, "B", "made", status)
    samples = [replace(sample, values={"memory_headroom": reading}) for sample in on_host(9e9).samples]

    result = judged(context(HEADROOM), evidence(samples=samples))

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)


@pytest.mark.parametrize("samples", [(), sampled({"memory_headroom": 9e9}, at_s=range(3540, 3560))])
def test_a_sampler_that_stopped_is_missing(samples: Any) -> None:
    """A third of the last minute is not 95 % of it, and no sample at all is nothing."""
    result = judged(context(HEADROOM), evidence(samples=samples))

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)


def test_a_stretch_that_has_only_begun_keeps_nothing() -> None:
    """Ten good seconds of a minute are fresh evidence, but no proof of the minute; ten bad ones cross the bound."""
    results = [judged(context(HEADROOM), on_host(value, since_s=3590)) for value in (9e9, 7e9)]

    assert [Outcome.UNPROVEN, Outcome.FAIL] == [result.outcome for result in results]
    assert results[0].fresh_ns is not None
    says("watch", "a stretch that has only begun keeps nothing", results[0].check.because)


@pytest.mark.parametrize(("grown", "outcome"), [(0.0, Outcome.PASS), (1e6, Outcome.FAIL)])
def test_swap_is_judged_over_its_own_stretch(grown: float, outcome: Outcome) -> None:
    """Growth counts over the last ten minutes, not over the last round."""
    guarded = context(guard("swap_growth", at_most=256e6, over=600.0))
    samples = [sample for at in range(3000, 3600) for sample in sampled({"swap_used": grown * (at - 3000)}, at_s=[at])]

    assert outcome is judged(guarded, evidence(samples=samples)).outcome


def test_pressure_is_judged_by_its_longest_run() -> None:
    """20 s of critical pressure cross a bound of 10 s; the host reports 4 for critical."""
    guarded = context(guard("memory_pressure_critical", at_most=10.0, over=80.0))
    levels = [4.0 if 3540 <= at < 3560 else 1.0 for at in range(3520, 3600)]
    samples = [
        sample
        for at, level in enumerate(levels, 3520)
        for sample in sampled({"memory_pressure_level": level}, at_s=[at])
    ]

    assert Outcome.FAIL is judged(guarded, evidence(samples=samples)).outcome


THROTTLE = guard("throttle_time", at_most=0.0, over=90.0, missing_for=300.0)


@pytest.mark.parametrize(("level", "outcome"), [(0.0, Outcome.PASS), (1.0, Outcome.PASS), (2.0, Outcome.FAIL)])
def test_throttling_is_judged_by_its_sensors(level: float, outcome: Outcome) -> None:
    """Heavy pressure is throttled, moderate is not; in production one sensor is enough, and the reason names it."""
    result = judged(context(THROTTLE), on_host(level, name="thermal_level"))

    assert outcome is result.outcome
    assert (outcome is Outcome.PASS) == ("thermal sensors alone" in result.check.because)


def test_counters_of_throttling_are_judged_where_there_is_no_level() -> None:
    """Where a host counts throttle events instead, one more of them crosses a bound of none."""
    names = ("throttle_events", "throttle_total")
    outcomes = [
        judged(
            context(THROTTLE),
            evidence(
                samples=[
                    sample
                    for at in range(3500, 3600)
                    for sample in sampled(dict.fromkeys(names, 7.0 + grown * (at > 3550)), at_s=[at])
                ]
            ),
        ).outcome
        for grown in (0.0, 1.0)
    ]

    assert [Outcome.PASS, Outcome.FAIL] == outcomes


def test_thermal_sensors_that_contradict_each_other_are_missing() -> None:
    """A nominal level with another sensor that reports heavy is no evidence."""
    samples = sampled({"thermal_level": 0.0, "thermal_level_powermetrics": 2.0}, at_s=range(3500, 3600))

    result = judged(context(THROTTLE), evidence(samples=samples))

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)


# What may be rested on


def test_while_plain_a_guard_of_speculation_sleeps() -> None:
    """Guards of speed and acceptance are asleep on plain decoding; errors, the pass rate and the host are judged."""
    guarded = context(RATIO, ACCEPTANCE, ERRORS, guard("canary_pass_rate", at_least=0.9), HEADROOM, canaries=EXPECT_OK)
    answers = alone([speed(1.0, 30.0 * number, text="ok") for number in range(80)], knobs=PLAIN)

    guards = judge_guards("easy", evidence(answers, samples=on_host(9e9).samples), guarded, PLAIN)

    assert [True, True, False, False, False] == [result.asleep for result in guards]
    assert [Outcome.PASS] * 3 == [result.outcome for result in guards if not result.asleep]


def test_answers_of_another_setting_are_no_evidence() -> None:
    """Answers of the certified setting are no evidence for the step below it."""
    lower = (("draft", "heavy"), ("num_draft_tokens", 2))

    result = judged(context(RATIO), evidence(pairs(at_ratio(1.5, 24))), knobs=lower)

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)


def test_old_answers_are_forgotten() -> None:
    """What is older than the window is not judged."""
    result = judged(context(RATIO), evidence(pairs(at_ratio(1.5, 24)), now_s=2 * DAY_S))

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)


def test_a_window_that_never_fills_is_missing_evidence() -> None:
    """While it fills, seven pairs are fresh; when a whole window of time has not brought the eighth, they are not."""
    seven = pairs(at_ratio(1.5, 7), first_s=DAY_S, step_s=600.0)

    results = [judged(context(RATIO), evidence(seven, now_s=1.5 * DAY_S, since_s=since)) for since in (DAY_S, 0.0)]

    assert [True, False] == [result.fresh_ns is not None for result in results]


def test_the_error_of_a_look_is_a_share_of_a_whole_life() -> None:
    """5 % over 43,200 rounds, two guards and six stretches of each."""
    assert near(0.05 / (43_200 * 2 * STRETCHES)) == round_error(context(RATIO, ERRORS, HEADROOM), "easy")


def test_acceptance_spends_on_an_interval_and_on_falls() -> None:
    """An interval has one share of the error, and a fall of the canaries' or of the counters' acceptance another."""
    assert near(0.05 / (43_200 * 2 * STRETCHES)) == round_error(context(ACCEPTANCE), "easy")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.3, 3.0), max_size=40), st.floats(1.01, 1.5))
def test_a_slower_candidate_never_looks_better(ratio_of: list[float], times: float) -> None:
    """Slowing every candidate down by one factor never improves the outcome of the ratio."""
    before, after = (
        judged(context(RATIO), evidence(pairs(ratios))) for ratios in (ratio_of, [ratio / times for ratio in ratio_of])
    )

    assert after.outcome >= before.outcome


@settings(max_examples=40, deadline=None)
@given(st.lists(st.booleans(), max_size=60))
def test_one_more_fault_never_looks_better(faulty: list[bool]) -> None:
    """An answer that fails on top of all others never improves the error rate."""
    answers = [replace(speed(1.4, 30.0 * number), fault="died" if bad else None) for number, bad in enumerate(faulty)]
    more = [*answers, replace(speed(1.4, 30.0 * len(faulty)), fault="died")]

    before, after = (judged(context(ERRORS), evidence(alone(window))) for window in (answers, more))

    assert after.outcome >= before.outcome


def test_the_spread_of_a_set_is_read_off_its_certified_interval() -> None:
    """[1.0, 1.2] of 25 canaries at 95 % is ln(1.2) / 2 * 5 / t(0.95, 24); an interval of one canary gives nothing."""
    figures = [MeasuredValue(center=1.1, lo=1.0, hi=1.2, n=count) for count in (25, 1)]

    assert [pytest.approx(math.log(1.2) / 2 * 5 / 1.7108821, rel=1e-6), 0.0] == [
        certified_spread(interval) for interval in figures
    ]
    assert 0.0 == certified_spread(None)
