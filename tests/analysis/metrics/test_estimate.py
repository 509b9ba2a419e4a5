"""Every metric on answers whose figures can be worked out on paper."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.pass_rates import pass_rate
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.metrics import ALL, SPEED_RATIOS
from gatekeeper.core.records import Answer, Claims, Generation, Role, Tie
from tests.builders.golden_words import says
from tests.builders.slo import (
    PLAIN,
    Twins,
    answer,
    because,
    canaries,
    canary,
    claimed,
    counted,
    evidence,
    followed,
    generation,
    grown,
    known,
    marked,
    near,
    spread,
    steady,
    twins,
)

WORKLOAD_METRICS = [metric.name for metric in ALL if not metric.host]


# Ratios


def busy(seconds: float) -> Callable[[int], Answer]:
    """Return answers of eight tokens: the first canary's takes so long, each other's a second."""
    return lambda at: answer([seconds if at == 0 else 1.0], tokens=[8], sent_s=100.0 * seconds)


RATIOS_BY_HAND: list[tuple[str, int, Callable[[int], Answer], Callable[[int], Answer], float]] = [
    # Prefill left out, and counted: 8 tokens in 1.25 s against 8 in 0.8 s.
    ("throughput_ratio", 6, lambda _: steady(0.05, first_s=0.9), lambda _: steady(0.1), 2.0),
    ("answer_throughput_ratio", 6, lambda _: steady(0.05, first_s=0.9), lambda _: steady(0.1), 0.8 / 1.25),
    # A draft that is nearly always right and thirteen times slower is judged by its speed.
    ("throughput_ratio", 6, lambda _: steady(1.3, rounds=counted(4, 16, 15)), lambda _: steady(0.1), 1 / 13),
    # Three chunks of the first round lie 1 ms apart, a hundredth of plain decoding's gap: they are no decode speed.
    ("throughput_ratio", 6, lambda _: answer([0.1, 0.101, 0.102, 0.2, 0.3]), lambda _: steady(0.1, count=5), 1.0),
    # The same tokens in 8 s against 12 s.
    ("system_throughput_ratio", 5, busy(4.0), busy(8.0), 12 / 8),
    ("ttft_delta", 7, lambda _: answer([0.108]), lambda _: answer([0.1]), 0.08),
]


@pytest.mark.parametrize(("metric", "count", "candidate", "plain", "center"), RATIOS_BY_HAND)
def test_a_ratio_by_hand(
    metric: str, count: int, candidate: Callable[[int], Answer], plain: Callable[[int], Answer], center: float
) -> None:
    """Pairs that are all alike have exactly their ratio; the system's ratio weighs by busy time."""
    ratio = known(estimate(metric, evidence(*twins(count, candidate, plain))))

    assert pytest.approx((center, count)) == (ratio.center, ratio.n)
    if metric != "system_throughput_ratio":
        assert pytest.approx((center, center)) == (ratio.lo, ratio.hi)


@pytest.mark.parametrize(
    ("metric", "reply", "value"),
    [
        ("decode_throughput", steady(0.05), 20.0),
        ("prefill_throughput", replace(answer([0.4], prompt_tokens=50), claims=Claims(prompt_seconds=0.1)), 500.0),
        ("ttft", answer([0.25]), 0.25),
        ("acceptance_rate", answer(rounds=counted(2, 8, 6)), 0.75),
        ("acceptance_length", answer(rounds=counted(2, 8, 6)), 4.0),
        ("tpot_p95", steady(0.05), 0.05),
        ("stall_p95", answer([0.1, 0.2, 0.9, 1.0]), 0.7),
        ("round_gap_p95", steady(0.05), 0.05),
        ("itl_p50", steady(0.05), 0.05),
        ("itl_p95", steady(0.05), 0.05),
        # One token in ten comes alone after 0.5 s, which a mean would hide.
        ("itl_p95", answer(np.cumsum([0.1, *([0.01] * 9 + [0.5]) * 4]).tolist()), 0.5),
        # A server that does not stream shows no arrival.
        ("answer_latency_p95", answer([], ended_s=2.5), 2.5),
    ],
)
def test_quantiles_of_equal_answers_are_that_answer(metric: str, reply: Answer, value: float) -> None:
    """Sixty canaries that all show the same value have exactly that value, with n = 60."""
    interval = known(estimate(metric, evidence(spread(60, lambda _: reply))))

    assert pytest.approx((value, value, value)) == (interval.lo, interval.center, interval.hi)
    assert 60 == interval.n


@pytest.mark.parametrize("metric", SPEED_RATIOS)
@pytest.mark.parametrize(("lost", "sees"), [(1, True), (2, False)])
def test_more_than_five_percent_of_lost_pairs_leave_no_ratio(metric: str, lost: int, *, sees: bool) -> None:
    """One lost pair of twenty is 5 %, which is allowed; two leave every ratio unproven."""
    candidate, plain = twins(20, lambda at: steady(0.05, fault="died" if at < lost else None), lambda _: steady(0.1))

    assert sees == isinstance(estimate(metric, evidence(candidate, plain)), Estimate)


# Quantiles over canaries


def test_greedy_repeats_are_not_independent() -> None:
    """Six canaries sent a hundred times are six answers: a median, but no p95."""
    paired = evidence(spread(6, lambda _: steady(0.05), repeats=100))

    assert 6 == known(estimate("ttft", paired)).n
    for metric in ("tpot_p95", "itl_p95", "stall_p95", "round_gap_p95"):
        assert "too few" in because(estimate(metric, paired))


def test_itl_is_normalised_by_tokens() -> None:
    """A round of four tokens every 0.2 s is 0.05 s a token, however it arrives; its gap is still 0.2 s."""

    def rounds(_: int) -> Answer:
        times = [0.1 + 0.2 * number for number in range(6) for _ in range(4)]
        return answer(times, drafted=[True, True, True, False] * 6)

    paired = evidence(spread(60, rounds))

    centers = {metric: known(estimate(metric, paired)).center for metric in ("itl_p50", "itl_p95", "round_gap_p95")}

    assert {
        "itl_p50": pytest.approx(0.05),
        "itl_p95": pytest.approx(0.05),
        "round_gap_p95": pytest.approx(0.2),
    } == centers


def test_a_character_of_two_tokens_leaves_the_itl_known_and_no_shorter() -> None:
    """Where a chunk holds two of twenty tokens, each counts as one: gaps read longer, never shorter."""
    times = [0.1 * number for number in range(1, 20)]
    answers = spread(60, lambda at: answer(times, tokens=[None] * 19, output_tokens=20) if at % 2 else answer(times))

    itl = known(estimate("itl_p95", evidence(answers)))

    assert pytest.approx(0.1) == itl.center
    assert 60 == itl.n
    says("estimates", "a character of two tokens leaves the itl known and no shorter", itl.notes[0])


def test_faulty_answers_have_no_latency() -> None:
    """An answer that failed is counted as an error, and its times are not mixed with sound ones."""
    good = spread(5, lambda _: answer([0.2]))
    bad = [generation(answer([9.0], fault="timeout"), f"f-{at}") for at in range(5)]

    first_token = known(estimate("ttft", evidence([*good, *bad])))

    assert pytest.approx((0.2, 0.2, 5)) == (first_token.center, first_token.hi, first_token.n)


# Facts of the frozen set


LOST_TWO, LOST_ONE = [True] * 7 + [False, False, True], [True] * 9 + [False]


@pytest.mark.parametrize(
    ("candidate", "plain", "change", "center", "certain"),
    [
        # Two of ten canaries lost and one gained: the set is a census at temperature 0.
        (marked(LOST_TWO, "candidate"), LOST_ONE, {}, -0.1, True),
        (marked([True] * 10, "candidate", fault="cut off"), [True] * 10, {}, -1.0, True),
        # Sampled, of a population, and where a canary passed once and failed once.
        (marked([True] * 10, "candidate"), [True] * 10, {"greedy": False}, 0.0, False),
        (marked([True] * 10, "candidate"), [True] * 10, {"frozen": False}, 0.0, False),
        ([*marked([True] * 10, "candidate"), *marked([False], "candidate")], [True] * 10, {}, -0.05, False),
    ],
)
def test_a_pass_delta_is_a_fact_of_the_frozen_set_alone(
    candidate: list[Generation], plain: list[bool], change: dict[str, Any], center: float, *, certain: bool
) -> None:
    """It has no interval where the set is a census, and honest bounds elsewhere; a failed answer is wrong."""
    paired = evidence(candidate, marked(plain, "plain"), canaries(10, expect={"equals": "right"}), **change)

    delta = known(estimate("task_pass_delta", paired))

    assert pytest.approx((center, 10)) == (delta.center, delta.n)
    assert (delta.lo == center == delta.hi) if certain else (delta.lo < -0.25 and 0.2 < delta.hi)


def test_pass_deltas_count_their_own_kind() -> None:
    """The JSON delta looks at canaries with a schema alone, the tool delta at calls, the task delta at all."""
    frozen = (
        canary("text", expect={"equals": "ok"}),
        canary("json", expect={"json_schema": {"type": "object"}}),
        canary("none"),
    )
    candidate = [generation(answer(text=text), name) for name, text in (("text", "no"), ("json", "{}"), ("none", "x"))]
    plain = [
        generation(answer(text=text), name, arm="plain")
        for name, text in (("text", "ok"), ("json", "{}"), ("none", "y"))
    ]
    paired = evidence(candidate, plain, frozen)

    task, schema = (known(estimate(metric, paired)) for metric in ("task_pass_delta", "json_pass_delta"))

    assert ((-0.5, 2), (0.0, 1)) == ((task.center, task.n), (schema.center, schema.n))
    assert "no canary" in because(estimate("tool_call_pass_delta", paired))


def test_the_pass_rate_is_a_share_of_canaries() -> None:
    """Three of four canaries are right, one of them in half of its repeats: 2.5 / 4, bounded as 2 of 4."""
    prompts = [canary(f"c-{number}", expect={"equals": "ok"}) for number in range(4)]
    texts = ["ok", "ok", "no", "ok", "ok", "ok", "no", "no"]
    answers = [
        generation(steady(0.1, sent_s=float(number), text=text), f"c-{number % 4}") for number, text in enumerate(texts)
    ]

    rate = pass_rate(evidence(answers, known=prompts), None)

    assert rate is not None
    assert (0.625, 4) == (rate.center, rate.n)
    assert intervals.proportion_bounds(2, 4, 0.95) == (rate.lo, rate.hi)


def agreeing(texts: Sequence[str], plain: Sequence[str]) -> Twins:
    return twins(len(texts), lambda at: answer(text=texts[at]), lambda at: answer(text=plain[at]))


def test_one_difference_in_many_repeats_is_a_difference() -> None:
    """A canary agrees only if every answer agrees with every plain answer."""
    candidate, plain = agreeing(["a", "b"], ["a", "b"])
    late = generation(answer(text="z"), "c-001", key="late", role=Role.CLOSING)

    assert 0.5 == known(estimate("token_agreement", evidence([*candidate, late], plain))).center


TEN = answer(output_tokens=10)


@pytest.mark.parametrize(
    ("candidate", "plain", "greedy", "cut"),
    [
        (TEN, TEN, True, False),
        (answer(finish="tool_calls", output_tokens=10), TEN, True, False),
        (answer(finish="length", output_tokens=10), TEN, True, True),
        (answer(finish=None, output_tokens=10), TEN, True, True),
        (answer(output_tokens=4), TEN, True, True),
        (answer(output_tokens=5), TEN, True, False),
        (answer(finish="length"), answer(finish="length"), True, False),
        (answer(finish="length"), answer(finish="tool_calls"), False, True),
        (answer(output_tokens=0), answer(output_tokens=2), True, True),
        (answer(output_tokens=0), answer(output_tokens=0), True, False),
        (answer(output_tokens=1), answer(output_tokens=9), False, False),
        (answer(output_tokens=None), answer(output_tokens=9), True, False),
    ],
)
def test_cut_short_by_finish_or_length(candidate: Answer, plain: Answer, *, greedy: bool, cut: bool) -> None:
    """Where plain decoding completes, an answer that does not was cut short at any temperature, and one under half as
    long where lengths are not sampled; where plain decoding runs into the limit too, it is as long as it may be.
    """
    paired = evidence([generation(candidate)], [generation(plain, arm="plain")], greedy=greedy)

    assert float(cut) == known(estimate("truncation_rate", paired)).center


# Counts, notes and reasons


def test_ttft_delta_compares_canaries_answered_in_both_arms() -> None:
    """A canary whose plain answer failed is left out; prompts that differ fivefold hide nothing of a change of 4 %."""
    candidate, plain = twins(9, lambda at: answer([1.04 * (0.1 + at / 20)]), lambda at: answer([0.1 + at / 20]))
    plain[0] = replace(plain[0], answer=replace(plain[0].answer, fault="died"))

    delta = known(estimate("ttft_delta", evidence(candidate, plain)))

    assert 8 == delta.n
    assert pytest.approx((0.04, 0.04, 0.04), abs=1e-6) == (delta.lo, delta.center, delta.hi)


def test_agreement_carries_its_notes_and_its_excuses() -> None:
    """Two canaries part from plain decoding, one of them at a near-tie: 3 of 4 agree, and a note says what was excused;
    an objective about the population says the same with bounds of its own.
    """
    candidate, plain = twins(
        4,
        lambda at: answer(ids=[1, 2, 9 if at < 2 else 3], text=f"{at < 2}"),
        lambda _: answer(ids=[1, 2, 3], text="False"),
    )
    tie = Tie("easy", "c-000", 2, (1, 2), 3, 9, 0.001)

    counted_, guessed = (
        known(
            estimate("token_agreement", evidence(candidate, plain, followed=followed(near_ties=[tie]), frozen=frozen))
        )
        for frozen in (True, False)
    )

    assert (0.75, 0.75, 0.75, 4) == (counted_.lo, counted_.center, counted_.hi, counted_.n)
    lo, hi = intervals.proportion_bounds(3, 4, 0.95)
    assert (lo, 0.75, hi, 4) == (guessed.lo, guessed.center, guessed.hi, guessed.n)
    assert counted_.notes == guessed.notes
    says("estimates", "agreement carries its notes and its excuses", "; ".join(counted_.notes))


def test_a_fault_makes_its_canary_fail() -> None:
    """Five canaries are sent twice; one fails both times, another once: 3 of 10 answers on the frozen set. For all
    prompts like them as many may fail as 2 of 5 leave open, and at least as many do as 1 of 5 that always failed shows.
    """
    answers = spread(5, lambda _: answer(), repeats=2)
    for failed, fault in enumerate(("cut off: at 3", "cut off: at 3", "timeout: 60 s")):
        answers[failed] = replace(answers[failed], answer=answer(fault=fault))

    counted_, guessed = (known(estimate("error_rate", evidence(answers, frozen=frozen))) for frozen in (True, False))

    assert (0.3, 0.3, 0.3, 10) == (counted_.lo, counted_.center, counted_.hi, counted_.n)
    lo, hi = intervals.proportion_bounds(1, 5, 0.95)[0], intervals.proportion_bounds(2, 5, 0.95)[1]
    assert (lo, near(0.3), hi, 5) == (guessed.lo, guessed.center, guessed.hi, guessed.n)
    says("estimates", "a fault makes its canary fail", "; ".join(guessed.notes))


def test_engagement_is_bounded_over_canaries() -> None:
    """Drafts propose in every answer to two canaries and in half of those to a third; of a fourth nobody counted one
    answer, which shows nothing. An answer of one token leaves nothing to draft, and its canary is none of them.
    """
    rounds = [counted(2, 4, 1)] * 5 + [counted(2, 0, 0), counted(2, 4, 1), None]
    answers = [generation(answer(rounds=counts), f"c-{at // 2}") for at, counts in enumerate(rounds)]
    answers.append(generation(answer([0.1], rounds=counted(1, 0, 0)), "c-9"))

    share = known(estimate("speculation_engaged", evidence(answers, frozen=False)))

    lo, _ = intervals.proportion_bounds(2, 4, 0.95)
    assert (lo, 0.75, 1.0, 4) == (share.lo, share.center, share.hi, share.n)
    says("estimates", "engagement is bounded over canaries", "; ".join(share.notes))


def test_engagement_of_failed_canaries_is_unknown() -> None:
    """A canary whose every answer failed may engage or not: for other prompts like it nothing is shown."""
    answers = spread(4, lambda at: answer(rounds=counted(2, 4, 1), fault="died" if at == 2 else None), repeats=2)

    unknown = estimate("speculation_engaged", evidence(answers, frozen=False))

    assert 6 == unknown.n
    says("estimates", "engagement of failed canaries is unknown", because(unknown))
    assert 1.0 == known(estimate("speculation_engaged", evidence(answers))).center


def test_bursts_show_engagement_of_the_run_alone() -> None:
    """Without counters bursts show that the draft was used in this run, and of other prompts nothing."""
    candidate, plain = twins(
        8,
        lambda _: answer([0.1 * (at // 4) for at in range(4, 24)]),
        lambda _: answer([0.1 * at for at in range(1, 21)]),
    )

    assert 1.0 == known(estimate("speculation_engaged", evidence(candidate, plain))).center
    unknown = Missing("cannot determine in which answers the draft was used: no counters", 8)
    assert unknown == estimate("speculation_engaged", evidence(candidate, plain, frozen=False))


def test_truncation_is_bounded_over_canaries() -> None:
    """One canary of four is cut short: a quarter of the frozen set, and a bound for all prompts."""
    candidate, plain = twins(4, lambda at: answer(finish="length" if at == 1 else "stop"), lambda _: answer())
    paired = evidence(candidate, plain)

    counted_, guessed = (
        known(estimate("truncation_rate", replace(paired, frozen=is_frozen))) for is_frozen in (True, False)
    )
    unseen = estimate("truncation_rate", evidence(candidate, plain[1:], frozen=False))

    lo, hi = intervals.proportion_bounds(1, 4, 0.95)
    assert (0.25, 0.25, 0.25, 4) == (counted_.lo, counted_.center, counted_.hi, counted_.n)
    assert (lo, 0.25, hi, 4) == (guessed.lo, guessed.center, guessed.hi, guessed.n)
    assert 3 == unseen.n
    says("estimates", "truncation is bounded over canaries", because(unseen))
    assert near(1 / 3) == known(estimate("truncation_rate", evidence(candidate, plain[1:]))).center


@pytest.mark.parametrize("metric", [metric.name for metric in ALL if metric.population and metric.counted])
def test_no_share_of_a_population_is_a_fact(metric: str) -> None:
    """What could be counted on a frozen set has an interval once all prompts are meant, however often it was sent."""
    kinds = {"task_pass_delta": "equals", "json_pass_delta": "json_schema", "tool_call_pass_delta": "tool_calls"}
    expect = {"equals": "ok", "json_schema": {}, "tool_calls": [{"name": "f"}]}
    prompts = canaries(12, expect={kinds[metric]: expect[kinds[metric]]}) if metric in kinds else canaries(12)
    calls = [{"function": {"name": "f", "arguments": "{}"}}]
    text = "{}" if metric == "json_pass_delta" else "ok"
    reply = answer(text=text, rounds=counted(2, 4, 1), tool_calls=tuple(calls) if "tool" in metric else ())
    candidate = spread(12, lambda _: reply, 5)
    twice = spread(12, lambda _: replace(reply, rounds=None), 2)
    plain = [replace(record, arm="plain", role=Role.BASELINE, setting=PLAIN) for record in twice]
    warm = [turn for prompt in prompts for turn in grown(prompt.id)]

    share = known(
        estimate(metric, evidence(candidate, plain, prompts, followed=followed(warm_cache=warm), frozen=False))
    )

    assert (12, True) == (share.n, 0.2 < share.hi - share.lo)


@pytest.mark.parametrize(
    ("reply", "engaged"),
    [
        (answer([0.1, 0.2], rounds=counted(1, 1, 0)), 1.0),
        (answer([0.1, 0.2], rounds=counted(1, 1, 0), claims=claimed(0, 0)), 1.0),
        (answer([0.1, 0.2], rounds=counted(1, 0, 0), claims=claimed(9, 9)), 0.0),
        (answer([0.1, 0.2], claims=claimed(1, 0)), 1.0),
        (answer([0.1, 0.2], claims=claimed(0, 0)), 0.0),
        (answer([0.1, 0.2], claims=Claims(accepted=0, rounds=1)), 1.0),
    ],
)
def test_one_proposal_is_engagement(reply: Answer, engaged: float) -> None:
    """An answer of two tokens for which one was proposed engaged its draft; our counts outweigh what is claimed."""
    share = known(estimate("speculation_engaged", evidence([generation(reply)])))

    assert (engaged, 1) == (share.center, share.n)


def test_engagement_is_a_share_of_answers() -> None:
    """Our counters come before claims, silence is no proposal, and answers of one token are left out."""
    answers = [
        generation(answer(rounds=counted(2, 8, 0)), "a"),
        generation(answer(rounds=counted(2, 0, 0), claims=claimed(9, 9)), "b"),
        generation(answer(claims=claimed(4, 1)), "c"),
        generation(answer(claims=claimed(0, 0)), "d"),
        generation(answer(), "e"),
        generation(answer([0.1]), "f"),
        generation(answer(output_tokens=None, rounds=counted(2, 8, 3)), "g"),
    ]

    share = known(estimate("speculation_engaged", evidence(answers)))

    assert (0.4, 5) == (share.center, share.n)


# All metrics


@pytest.mark.parametrize("metric", WORKLOAD_METRICS)
def test_nothing_and_faults_alone_are_no_good_news(metric: str) -> None:
    """An empty soak shows nothing, with a reason; one in which every answer failed shows its error rate alone."""
    frozen = canaries(60, expect={"equals": "right"})
    candidate, plain = (marked([True] * 60, arm, fault="died") for arm in ("candidate", "plain"))

    result = estimate(metric, evidence(candidate, plain, frozen))

    assert because(estimate(metric, evidence([])))
    if metric == "error_rate":
        assert 1.0 == known(result).center
    else:
        assert isinstance(result, Missing)


@pytest.mark.parametrize("metric", WORKLOAD_METRICS)
def test_estimates_do_not_depend_on_the_order_of_the_records(metric: str) -> None:
    """Concurrent answers are recorded as they end: the same records in another order give the same bytes."""
    frozen = canaries(60, expect={"equals": "ok"})

    def mine(at: int) -> Answer:
        return steady(0.05 + at / 1000, rounds=counted(2, 8, at % 8), prompt_tokens=50)

    candidate, plain = twins(60, mine, lambda at: steady(0.1 + at % 7 / 100))

    forth = estimate(metric, evidence(candidate, plain, frozen))
    back = estimate(metric, evidence(candidate[::-1], plain[::-1], frozen))

    assert forth == back


AT_ONCE: dict[str, dict[str, Any]] = {
    "answers at their limit that arrived at once": {"finish": "length"},
    "answers that ended by themselves and arrived at once": {"finish": "stop"},
    "fast answers that arrived at once": {"finish": "length", "claims": Claims(decode_seconds=0.009)},
    "answers that the server held back": {"finish": "length", "claims": Claims(decode_seconds=0.4)},
    "tool calls that arrived at once": {"tool_calls": ({"function": {"name": "f", "arguments": "{}"}},)},
}


@pytest.mark.parametrize("case", AT_ONCE)
def test_answers_that_arrived_at_once_say_what_shows_a_speed(case: str) -> None:
    """They have no decode speed, whatever the server's own timings say; the reason counts them and says how long
    answers have to be, or that none is long enough: where the server sends them whole.
    """

    def whole(number: int) -> Answer:
        return replace(answer([0.1, 0.1], tokens=[None, None], output_tokens=4 * number), **AT_ONCE[case])

    paired = evidence(*twins(6, lambda at: whole(at + 1), lambda _: steady(0.1)))
    ratio, rate = (because(estimate(name, paired)) for name in ("throughput_ratio", "decode_throughput"))

    says("estimates", case, ratio)
    assert ratio.rpartition("; ")[2].replace("12", "6") == rate


def test_a_few_answers_read_late_are_not_blamed_on_the_server() -> None:
    """Where most answers of that length came in pieces, a busy machine read the others late."""

    def late(number: int) -> Answer:
        arrivals = [0.4, 0.4] if number < 3 else [0.1, 0.2, 0.3, 0.4]
        tokens = [None] * len(arrivals)
        return answer(arrivals, tokens=tokens, output_tokens=24, claims=Claims(decode_seconds=0.3))

    paired = evidence(*twins(30, late, lambda _: steady(0.1, count=24)))

    says("estimates", "a few answers that were read late", because(estimate("throughput_ratio", paired)))


def test_an_answer_that_came_whole_has_no_gap() -> None:
    """One arrival has no gap and no rate; the stalls and the times per token are those of the other answers."""
    single_chunks = [generation(answer([0.1]), f"w-{at}") for at in range(3)]
    paired = evidence([*single_chunks, *spread(60, lambda _: answer([0.1, 0.2, 0.9]))])

    stall, per_token = (known(estimate(metric, paired)) for metric in ("stall_p95", "tpot_p95"))

    assert (60, 60, near(0.7), near(0.4)) == (stall.n, per_token.n, stall.hi, per_token.hi)


def bursty(bursts_: int, tokens: int = 16) -> Answer:
    """Return *tokens* tokens in so many bursts 0.1 s apart; those of a burst lie a millisecond apart."""
    return answer(sorted(0.1 + 0.1 * (at % bursts_) + 0.001 * (at // bursts_) for at in range(tokens)))


def mixed(count: int, in_bursts: int, arm: str, tokens: int = 16) -> list[Generation]:
    return [generation(bursty(4 if at < in_bursts else tokens, tokens), f"c-{at:03}", arm=arm) for at in range(count)]


@pytest.mark.parametrize(
    ("candidate", "plain", "tokens", "engaged"),
    [
        ((10, 2), (20, 1), 16, True),
        ((10, 1), (20, 1), 16, False),
        ((10, 2), (19, 1), 16, False),
        ((10, 2), (0, 0), 16, False),
        ((10, 10), (10, 0), 15, False),  # too short to tell a draft from a hiccup
    ],
)
def test_bursts_tell_that_a_draft_was_used(
    candidate: tuple[int, int], plain: tuple[int, int], tokens: int, *, engaged: bool
) -> None:
    """A fifth of the answers in bursts tells of a draft, unless more than a twentieth of plain ones are."""
    arms = mixed(*candidate, "candidate", tokens), mixed(*plain, "plain")
    engagement = estimate("speculation_engaged", evidence(*arms))

    counts = f"{candidate[1]} of {candidate[0]} answers came in bursts, {plain[1]} of {plain[0]} plain ones did"
    if engaged:
        assert Estimate(1.0, 1.0, 1.0, candidate[0], (f"without counters: {counts}",)) == engagement
    else:
        assert tokens < 16 or because(engagement).endswith(counts)
        assert isinstance(engagement, Missing)
