"""Guards: crossed only beyond chance, kept only when shown, and never by what is not there."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.judgement import Outcome
from gatekeeper.core.policy import MeasuredValue
from gatekeeper.core.records import Answer, Claims, Generation, HostSample, Reading
from gatekeeper.live.guards.guard_judgement import STRETCHES, GuardContext, judge_guards, round_error
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
DELTA = guard("task_pass_delta", at_least=0.0)
RIGHT = guard("canary_pass_rate", at_least=0.9)
HEADROOM = guard("memory_headroom", at_least=8e9, missing_for=300.0)
THROTTLE = guard("throttle_time", at_most=0.0, over=90.0, missing_for=300.0)
SWAP = guard("swap_growth", at_most=256e6, over=600.0)
PRESSURE = guard("memory_pressure_critical", at_most=10.0, over=80.0)
WAVE = [1.0 + 0.02 * math.sin(number) for number in range(200)]
"""A little noise that is the same each time."""
EXPECT_OK = [canary(f"c-{number:03}", expect={"equals": "ok"}) for number in range(8)]
MINUTE = range(3500, 3600)
"""Seconds before the look at which the host was sampled."""


def at_ratio(ratio: float, count: int) -> list[float]:
    return [ratio * wave for wave in WAVE[:count]]


def ratios(*values: float, **more: Any) -> GuardEvidence:
    """Return pairs with these ratios."""
    return evidence(pairs([value * wave for value, wave in zip(values, WAVE, strict=False)], **more))


def unpaired(ratio: float) -> GuardEvidence:
    return evidence(alone([speed(value, 60.0 * at) for at, value in enumerate(at_ratio(ratio, 40))]))


def unlike() -> GuardEvidence:
    """Return pairs of which one in eight did a quarter of the work."""
    cut = [
        replace(answer, answer=steady(0.01, 10)) if answer.canary == "c-000" and answer.arm == "candidate" else answer
        for answer in pairs(at_ratio(1.5, 20))
    ]
    return evidence(cut)


def accepted(count: int = 40, step_s: float = 60.0, **more: Any) -> list[Answer]:
    return [speed(1.4, step_s * number, **more) for number in range(count)]


def moved(share: float, count: int = 60) -> list[CounterGain]:
    return [CounterGain(number * 60 * SECOND, 10_000, round(10_000 * share)) for number in range(count)]


def failing(count: int, faulty: int) -> GuardEvidence:
    answers = accepted(count - faulty) + [
        replace(speed(1.4, 60.0 * number), fault="timeout") for number in range(count - faulty, count)
    ]
    return evidence(alone(answers), now_s=2 * 3600)


def saying(wrong: int) -> GuardEvidence:
    texts = ["ok"] * (40 - wrong) + ["no"] * wrong
    return evidence(alone([speed(1.4, 30.0 * number, text=text) for number, text in enumerate(texts)]))


def both_arms(drafted: str, plain: str, rounds: int = 2) -> GuardEvidence:
    """Return answers of both arms to every canary, where the first canary is answered so."""
    answers: list[Generation] = []
    for number in range(8 * rounds):
        texts = (drafted, plain) if number % 8 == 0 else ("ok", "ok")
        for text, knobs in zip(texts, (FAST, PLAIN), strict=True):
            (answer,) = alone([speed(1.4, 30.0 * number, text=text)], knobs=knobs)
            answers.append(replace(answer, canary=f"c-{number % 8:03}", pair=f"p{number}"))
    return evidence(answers)


def on_host(since_s: float = 0.0, **values: float) -> GuardEvidence:
    return evidence(since_s=since_s, samples=sampled(values, at_s=MINUTE))


def each_second(name: str, seconds: range, value: Callable[[int], float]) -> list[HostSample]:
    return [sample for at in seconds for sample in sampled({name: value(at)}, at_s=[at])]


def throttled(grown: float) -> GuardEvidence:
    names = ("throttle_events", "throttle_total")
    values = [sampled(dict.fromkeys(names, 7.0 + grown * (at > 3550)), at_s=[at]) for at in MINUTE]
    return evidence(samples=[sample for samples in values for sample in samples])


def without_reference() -> GuardContext:
    guarded = context(RATIO)
    bare = guarded.policy.route[0].model_copy(update={"measured": type(guarded.policy.route[0].measured)()})
    return replace(guarded, policy=guarded.policy.model_copy(update={"route": (bare,)}))


def denied(status: str) -> GuardEvidence:
    reading = Reading(9e9, "B", "made", status)
    return evidence(
        samples=[
            replace(sample, values={"memory_headroom": reading}) for sample in on_host(memory_headroom=9e9).samples
        ]
    )


SPREAD, ALIKE = ({"throughput_ratio": figure(1.5, *ends)} for ends in ((1.2, 1.9), (1.48, 1.52)))
NOISY = [1.1 * math.exp(0.12 * (-1) ** number) for number in range(16)]
LOWEST = (ACCEPTANCE, guard("acceptance_rate", at_least=0.2))
Row = tuple[GuardContext, Callable[[], GuardEvidence], str, str]

CASES: dict[str, Row] = {
    # The ratio is judged pair by pair; in 43,200 rounds chance alone would show at 95 % what one round may not decide.
    "well above": (context(RATIO), lambda: ratios(*[1.5] * 24), "pass", "paired plain requests"),
    "at the bound": (context(RATIO), lambda: ratios(*[1.16] * 24), "open", ""),
    "well below": (context(RATIO), lambda: ratios(*[0.6] * 24), "fail", ""),
    "no gain": (context(RATIO), lambda: ratios(*[1.0] * 24), "fail", ""),
    "seven pairs at half the speed": (context(RATIO), lambda: ratios(*[0.5] * 7), "open", ""),
    "eight pairs at half the speed": (context(RATIO), lambda: ratios(*[0.5] * 8), "fail", ""),
    "a fall after many good pairs": (
        context(RATIO), lambda: ratios(*[1.5] * 100, *[0.7] * 16, step_s=20.0), "fail", "values",
    ),
    "a recovery after many bad pairs": (
        context(RATIO), lambda: ratios(*[0.7] * 100, *[1.5] * 16, step_s=20.0), "pass", "",
    ),
    "one look at 95 %": (context(RATIO), lambda: evidence(pairs(NOISY)), "open", ""),
    "a few hard canaries where they differ": (context(RATIO, measured=SPREAD), lambda: ratios(*[0.9] * 8), "open", ""),
    "a few canaries where all gain alike": (context(RATIO, measured=ALIKE), lambda: ratios(*[0.9] * 8), "fail", ""),
    "pairs of unlike length": (context(RATIO), unlike, "missing", "pairs are lost"),
    "good without plain decoding": (context(RATIO), lambda: unpaired(1.5), "pass", "the certified speed"),
    "a little slower without plain decoding": (context(RATIO), lambda: unpaired(1.05), "open", "15% slower"),
    "slow without plain decoding": (context(RATIO), lambda: unpaired(0.8), "fail", "15% slower is tolerated"),
    "no reference at all": (without_reference(), lambda: unpaired(1.5), "missing", ""),
    "below a speed": (context(guard("decode_throughput", at_least=80.0)), lambda: unpaired(1.4), "fail", ""),
    "answers of yesterday": (
        context(RATIO), lambda: evidence(pairs(at_ratio(1.5, 24)), now_s=2 * DAY_S), "missing", "",
    ),
    "a window that fills": (
        context(RATIO),
        lambda: evidence(pairs(at_ratio(1.5, 7), first_s=DAY_S, step_s=600.0), now_s=1.5 * DAY_S, since_s=DAY_S),
        "open", "",
    ),
    "a window that never fills": (
        context(RATIO),
        lambda: evidence(pairs(at_ratio(1.5, 7), first_s=DAY_S, step_s=600.0), now_s=1.5 * DAY_S),
        "missing", "",
    ),
    # Acceptance is the median answer's; the server's counters are of all routes: they may cross, and never keep.
    "accepted": (context(ACCEPTANCE), lambda: evidence(accepting([0.9] * 40)), "pass", ""),
    "accepted at the bound": (context(ACCEPTANCE), lambda: evidence(accepting([0.4] * 40)), "pass", ""),
    "rejected": (context(ACCEPTANCE), lambda: evidence(accepting([0.2] * 40)), "fail", ""),
    "rejected by the server's claims": (
        context(ACCEPTANCE),
        lambda: evidence(alone(accepted(claims=Claims(drafted=100, accepted=10)))),
        "fail", "as the server reports",
    ),
    "a draft that proposes nothing": (
        context(ACCEPTANCE), lambda: evidence(alone(accepted(rounds=counted(40, 0, 0)))), "missing", "",
    ),
    "prompts that canaries are not": (
        context(ACCEPTANCE),
        lambda: evidence(accepting([0.9] * 40), counter_gains=moved(0.1)),
        "fail", "by the server's counters",
    ),
    "counters alone": (context(ACCEPTANCE), lambda: evidence(counter_gains=moved(0.9)), "missing", ""),
    "counters below the floor of one route": (
        context(*LOWEST), lambda: evidence(accepting([0.9] * 40), counter_gains=moved(0.3)), "pass", "",
    ),
    # Errors and right answers.
    "no error": (context(ERRORS), lambda: failing(80, 0), "pass", ""),
    "no error in few": (context(ERRORS), lambda: failing(20, 0), "open", ""),
    "one timeout": (context(ERRORS), lambda: failing(80, 1), "open", ""),
    "a server that is gone": (context(ERRORS), lambda: failing(80, 10), "fail", ""),
    "the first where none may be": (context(guard("error_rate", at_most=0.0)), lambda: failing(20, 1), "fail", ""),
    "right answers": (context(RIGHT, canaries=EXPECT_OK), lambda: saying(0), "pass", ""),
    "four wrong ones": (context(RIGHT, canaries=EXPECT_OK), lambda: saying(4), "open", ""),
    "24 wrong ones": (context(RIGHT, canaries=EXPECT_OK), lambda: saying(24), "fail", ""),
    "both arms right": (context(DELTA, canaries=EXPECT_OK), lambda: both_arms("ok", "ok"), "pass", ""),
    "both arms wrong": (context(DELTA, canaries=EXPECT_OK), lambda: both_arms("no", "no"), "pass", ""),
    "the draft alone wrong, twice": (context(DELTA, canaries=EXPECT_OK), lambda: both_arms("no", "ok"), "fail", ""),
    "the draft alone wrong, once": (context(DELTA, canaries=EXPECT_OK), lambda: both_arms("no", "ok", 1), "open", ""),
    "right without plain decoding": (context(DELTA, canaries=EXPECT_OK), lambda: saying(0), "pass", "certified pass"),
    "one wrong without plain decoding": (context(DELTA, canaries=EXPECT_OK), lambda: saying(1), "open", ""),
    "30 wrong without plain decoding": (context(DELTA, canaries=EXPECT_OK), lambda: saying(30), "fail", ""),
    # The host is a fact where its samples are there; a sensor that is not is no evidence.
    "headroom": (context(HEADROOM), lambda: on_host(memory_headroom=9e9), "pass", ""),
    "no headroom": (context(HEADROOM), lambda: on_host(memory_headroom=7e9), "fail", ""),
    **{f"a sensor that is {status}": (context(HEADROOM), partial(denied, status), "missing", "")
       for status in ("absent", "denied", "stale", "parse_error")},
    "no sample": (context(HEADROOM), evidence, "missing", ""),
    "a sampler that stopped": (
        context(HEADROOM),
        lambda: evidence(samples=sampled({"memory_headroom": 9e9}, at_s=range(3540, 3560))),
        "missing", "",
    ),
    "ten good seconds": (context(HEADROOM), lambda: on_host(3590, memory_headroom=9e9), "open", ""),
    "ten bad seconds": (context(HEADROOM), lambda: on_host(3590, memory_headroom=7e9), "fail", ""),
    "no swap": (
        context(SWAP), lambda: evidence(samples=each_second("swap_used", range(3000, 3600), lambda _: 1e6)), "pass", "",
    ),
    "swap that grows": (
        context(SWAP),
        lambda: evidence(samples=each_second("swap_used", range(3000, 3600), lambda at: 1e6 * (at - 3000))),
        "fail", "",
    ),
    "20 s of critical pressure": (
        context(PRESSURE),
        lambda: evidence(
            samples=each_second("memory_pressure_level", range(3520, 3600), lambda at: 4 if 3540 <= at < 3560 else 1)
        ),
        "fail", "",
    ),
    "nominal": (context(THROTTLE), lambda: on_host(thermal_level=0.0), "pass", "thermal sensors alone"),
    "moderate": (context(THROTTLE), lambda: on_host(thermal_level=1.0), "pass", "thermal sensors alone"),
    "heavy": (context(THROTTLE), lambda: on_host(thermal_level=2.0), "fail", ""),
    "no event": (context(THROTTLE), lambda: throttled(0.0), "pass", ""),
    "one more event": (context(THROTTLE), lambda: throttled(1.0), "fail", ""),
    "sensors that contradict each other": (
        context(THROTTLE), lambda: on_host(thermal_level=0.0, thermal_level_powermetrics=2.0), "missing", "",
    ),
}  # fmt: skip
"""A guard, what was seen, and what that is: kept, crossed, open although there is fresh evidence, or missing."""
STATES = {
    "pass": (Outcome.PASS, True), "fail": (Outcome.FAIL, True),
    "open": (Outcome.UNPROVEN, True), "missing": (Outcome.UNPROVEN, False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_guard_is_kept_crossed_open_or_missing(name: str) -> None:
    """Each case ends in its outcome, with fresh evidence or without, and its reason says by what."""
    guarded, seen, state, words = CASES[name]

    result = judged(guarded, seen())

    assert STATES[state] == (result.outcome, result.fresh_ns is not None)
    assert words in result.check.because


def test_reasons_that_decide_nothing_are_words_for_people() -> None:
    """Too few pairs, no reference and a stretch that has only begun are explained."""
    names = {
        "seven pairs at half the speed": "too few pairs decide nothing",
        "no reference at all": "without any reference there is no speed to guard",
        "ten good seconds": "a stretch that has only begun keeps nothing",
    }
    for name, stored in names.items():
        guarded, seen, _, _ = CASES[name]
        says("watch", stored, judged(guarded, seen()).check.because)


def test_a_guard_counts_the_time_of_all_pairs() -> None:
    """Every third pair at 3x and the others at 0.85x: 1.11x by the time of all and 1.29x on average is below 1.16x."""
    result = judged(context(RATIO, measured={}), ratios(*[3.0, 0.85, 0.85] * 60, step_s=20.0))

    assert 3 / (1 / 3 + 2 / 0.85) == pytest.approx(result.check.center, rel=0.03)


def test_a_collapse_to_half_crosses_within_two_windows() -> None:
    """Real traffic of a few answers a minute, then half of its acceptance: crossed within ten minutes."""

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


def test_while_plain_a_guard_of_speculation_sleeps() -> None:
    """Guards of speed and acceptance are asleep on plain decoding; errors, the pass rate and the host are judged."""
    guarded = context(RATIO, ACCEPTANCE, ERRORS, guard("canary_pass_rate", at_least=0.9), HEADROOM, canaries=EXPECT_OK)
    answers = alone([speed(1.0, 30.0 * number, text="ok") for number in range(80)], knobs=PLAIN)

    guards = judge_guards("easy", evidence(answers, samples=on_host(memory_headroom=9e9).samples), guarded, PLAIN)

    assert [True, True, False, False, False] == [result.asleep for result in guards]
    assert [Outcome.PASS] * 3 == [result.outcome for result in guards if not result.asleep]


def test_answers_of_another_setting_are_no_evidence() -> None:
    """Answers of the certified setting are no evidence for the step below it."""
    lower = (("draft", "heavy"), ("num_draft_tokens", 2))

    result = judged(context(RATIO), evidence(pairs(at_ratio(1.5, 24))), knobs=lower)

    assert (Outcome.UNPROVEN, None) == (result.outcome, result.fresh_ns)


def test_the_error_of_a_look_is_a_share_of_a_whole_life() -> None:
    """5 % over 43,200 rounds, two guards and six stretches of each."""
    assert near(0.05 / (43_200 * 2 * STRETCHES)) == round_error(context(RATIO, ERRORS, HEADROOM), "easy")


def test_acceptance_spends_on_an_interval_and_on_falls() -> None:
    """An interval has one share of the error, and a fall of the canaries' or of the counters' acceptance another."""
    assert near(0.05 / (43_200 * 2 * STRETCHES)) == round_error(context(ACCEPTANCE), "easy")


@given(st.lists(st.floats(0.3, 3.0), max_size=40), st.floats(1.01, 1.5))
def test_a_slower_candidate_never_looks_better(ratio_of: list[float], times: float) -> None:
    """Slowing every candidate down by one factor never improves the outcome of the ratio."""
    before, after = (
        judged(context(RATIO), evidence(pairs(ratios))) for ratios in (ratio_of, [ratio / times for ratio in ratio_of])
    )

    assert after.outcome >= before.outcome


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
