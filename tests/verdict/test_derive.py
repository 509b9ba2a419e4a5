"""Every metric on answers whose figures can be worked out on paper."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.terms.metrics import ALL, RATIOS
from gatekeeper.terms.outcome import Estimate, Missing
from gatekeeper.terms.records import Answer, Generation, Role
from gatekeeper.verdict.agreement import same_output
from gatekeeper.verdict.derive import estimate
from gatekeeper.verdict.drift import drift
from gatekeeper.verdict.evidence import BURST, plain_gap
from gatekeeper.verdict.timing import (
    acceptance,
    acceptance_length,
    answer_rate,
    bursts,
    decode_rate,
    first_burst,
    prefill_rate,
    ttft,
)
from tests.verdict.made import answer, canaries, canary, claimed, counted, evidence, generation, steady

WORKLOAD_METRICS = [one.name for one in ALL if not one.host]


def known(found: Estimate | Missing) -> Estimate:
    assert isinstance(found, Estimate), found
    return found


def near(value: float) -> Any:
    return pytest.approx(value)


def because(found: Estimate | Missing) -> str:
    assert isinstance(found, Missing), found
    return found.because


Twins = tuple[list[Generation], list[Generation]]


def twins(
    count: int,
    mine: Callable[[int], Answer],
    plain: Callable[[int], Answer],
    *,
    role: Role = Role.SENTINEL,
) -> Twins:
    """Return *count* pairs, one per canary."""
    ours = [generation(mine(at), f"c-{at:03}", pair=f"p{at}") for at in range(count)]
    theirs = [generation(plain(at), f"c-{at:03}", arm="plain", role=role, pair=f"p{at}") for at in range(count)]
    return ours, theirs


# One answer


def test_ttft_is_sent_to_first_arrival() -> None:
    """
    An answer sent at 5 s whose first piece comes 0.25 s later has a TTFT of 0.25 s; one without pieces has none.
    """
    assert pytest.approx(0.25) == ttft(answer([0.25, 0.3], sent_s=5.0))
    assert ttft(answer([], ended_s=1.0)) is None


def test_decode_rate_of_plain_tokens() -> None:
    """
    Three tokens 0.1 s apart are two tokens in 0.2 s: 10 tok/s; the first one belongs to the prefill.
    """
    assert pytest.approx(10.0) == decode_rate(answer([0.1, 0.2, 0.3]))


def test_decode_rate_leaves_out_the_whole_first_round() -> None:
    """
    The first round's three tokens came out of the prefill's time; the second's three took 0.3 s: 10 tok/s, not 16.7.
    """
    rounds = answer([0.5, 0.5, 0.5, 0.8, 0.8, 0.8], drafted=[True, True, False] * 2)

    assert pytest.approx(10.0) == decode_rate(rounds)


def test_decode_rate_leaves_out_a_first_burst_by_closeness() -> None:
    """
    Where nothing marks a round, what arrives together with the first token is its burst.
    """
    chunks = answer([0.1, 0.101, 0.102, 0.4, 0.402])

    assert pytest.approx(2 / 0.302) == decode_rate(chunks, together_s=0.01)
    assert pytest.approx(4 / 0.302) == decode_rate(chunks)


def test_decode_rate_of_chunks_with_unknown_counts() -> None:
    """
    Twelve tokens in three chunks of unknown size: the later two stand for eight, in 0.4 s.
    """
    chunks = answer([0.1, 0.3, 0.5], tokens=[None, None, None], output_tokens=12)

    assert pytest.approx(20.0) == decode_rate(chunks)


@pytest.mark.parametrize(
    "one",
    [
        answer([], ended_s=1.0),
        answer([0.1]),
        answer([0.1, 0.1, 0.1], drafted=[True, True, False]),
        answer([0.1, 0.2], tokens=[None, None], output_tokens=None),
        answer([0.1, 0.1]),
        answer([0.1, 0.2], tokens=[5, 0]),
    ],
    ids=["nothing", "one arrival", "one round", "uncounted", "no time passed", "no tokens later"],
)
def test_an_answer_without_a_second_burst_has_no_decode_rate(one: Answer) -> None:
    """
    What came whole, uncounted or at once has no decode speed; it is never zero or infinite.
    """
    assert decode_rate(one) is None


def test_answer_rate_counts_from_the_request_to_the_end() -> None:
    """
    Thirty tokens in three seconds, prefill included, are 10 tok/s; no tokens or no time have no rate.
    """
    assert pytest.approx(10.0) == answer_rate(answer([1.0, 3.0], output_tokens=30))
    assert answer_rate(answer([1.0], output_tokens=None)) is None
    assert answer_rate(answer([], ended_s=0.0, output_tokens=3)) is None


def test_prefill_rate() -> None:
    """
    Fifty prompt tokens in 0.1 s are 500 tok/s; an unknown prompt has no rate.
    """
    assert pytest.approx(500.0) == prefill_rate(answer([0.1], prompt_tokens=50))
    assert prefill_rate(answer([0.1])) is None


def test_acceptance_in_the_fields_terms() -> None:
    """
    Six of eight drafted tokens kept in two rounds: a rate of 0.75, and four tokens per round with the target's own.
    """
    one = answer(rounds=counted(2, 8, 6))

    assert (0.75, 4.0) == (acceptance(one), acceptance_length(one))


def test_acceptance_of_nothing_drafted_is_unknown() -> None:
    """
    No drafted token is no acceptance, not an acceptance of zero; a server's claim is not our count.
    """
    assert acceptance(answer(rounds=counted(0, 0, 0))) is None
    assert acceptance_length(answer(rounds=counted(0, 0, 0))) is None
    assert acceptance(answer(claims=claimed(10, 9))) is None


def test_bursts_by_rounds() -> None:
    """
    A round ends with the token the target made itself, however far its pieces lie apart; the first burst is left out.
    """
    one = answer([0.5, 0.5, 0.5, 0.9, 0.95, 1.0], drafted=[True, True, False, True, False, False])

    assert [(near(0.4), 2), (near(0.1), 1)] == bursts(one, 0.0)


def test_bursts_by_closeness() -> None:
    """
    Chunks closer together than the limit are one burst, whose gap runs from start to start.
    """
    one = answer([0.1, 0.102, 0.3, 0.305, 0.31, 0.6], tokens=[1, 1, 2, 3, 1, 1])

    assert [(near(0.2), 6), (near(0.3), 1)] == bursts(one, 0.01)


def test_a_burst_with_an_uncounted_chunk_is_uncounted() -> None:
    """
    An unknown number of tokens plus three is unknown.
    """
    one = answer([0.1, 0.3, 0.301], tokens=[1, 3, None])

    assert [(near(0.2), None)] == bursts(one, 0.01)


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 4), st.booleans()), min_size=1, max_size=30),
    st.floats(0, 0.2),
)
def test_bursts_lose_no_token_and_no_time(steps: list[tuple[float, int, bool]], together: float) -> None:
    """
    The gaps of all bursts add up to the time from the first arrival to the last burst, and their tokens to the rest.
    """
    times, at = [], 0.1
    for gap, _, _ in steps:
        at += gap
        times.append(at)
    one = answer(times, tokens=[many for _, many, _ in steps], drafted=[flag for _, _, flag in steps])

    found = bursts(one, together)

    first = first_burst(one, together)
    assert sum(many for _, many, _ in steps[first:]) == sum(many or 0 for _, many in found)
    assert sum(gap for gap, _ in found) <= times[-1] - times[0] + 1e-6
    assert all(gap >= 0 for gap, _ in found)


def test_same_output_by_token_ids() -> None:
    """
    The same text from other tokens is another answer where tokens are seen.
    """
    one, same, other = (answer(ids=ids, text="ab") for ids in ([1, 2, 3], [1, 2, 3], [1, 2, 4]))

    assert same_output(one, same)
    assert not same_output(one, other)


def test_same_output_by_text_where_no_ids_are_seen() -> None:
    """
    Without ids on both sides the text and the tool calls decide.
    """
    call = {"id": "call_1", "function": {"name": "f", "arguments": "{}"}}
    renamed = {"id": "call_2", "function": {"name": "f", "arguments": "{}"}}
    other = {"function": {"name": "g", "arguments": "{}"}}
    bare = answer(text="ab")

    assert same_output(answer(ids=[1, 2, 3], text="ab"), bare)
    assert not same_output(answer(text="ac"), bare)
    assert same_output(answer(tool_calls=(call,)), answer(tool_calls=(renamed,)))
    assert not same_output(answer(tool_calls=(call,)), answer(tool_calls=(other,)))
    assert not same_output(answer(tool_calls=(call,)), answer())


# Pairing


def test_pairs_by_their_pair() -> None:
    """
    Answers that share a pair and a canary are compared, whatever lies nearer in time.
    """
    mine = [
        generation(steady(0.1, sent_s=0), "a", pair="p1", key="far"),
        generation(steady(0.1, sent_s=100), "a", pair="p2", key="near"),
    ]
    plain = [generation(steady(0.2, sent_s=101), "a", arm="plain", role=Role.SENTINEL, pair="p1")]

    found = evidence(mine, plain).pairs

    assert ["far"] == [ours.key for ours, _ in found]


def test_blocks_pair_with_the_nearest_answer_to_the_same_canary() -> None:
    """
    A plain answer of a block is compared with the candidate's answer to its canary that was asked nearest in time.
    """
    mine = [
        generation(steady(0.1, sent_s=10), "a", key="early"),
        generation(steady(0.1, sent_s=300), "a", key="late"),
        generation(steady(0.1, sent_s=290), "b", key="other canary"),
        generation(steady(0.1, sent_s=295), "a", key="closing", role=Role.CLOSING),
        generation(steady(0.1, sent_s=294), "a", key="warm-up", role=Role.WARMUP),
    ]
    plain = [
        generation(steady(0.2, sent_s=0), "a", arm="plain", role=Role.BLOCK),
        generation(steady(0.2, sent_s=290), "a", arm="plain", role=Role.BLOCK),
        generation(steady(0.2, sent_s=290), "nobody", arm="plain", role=Role.BLOCK),
    ]

    found = evidence(mine, plain).pairs

    assert ["early", "late"] == [ours.key for ours, _ in found]


def test_blocks_pair_inside_their_segment() -> None:
    """
    The clocks of two segments do not compare: an answer of the block's own segment is taken, however far away.
    """
    mine = [
        generation(steady(0.1, sent_s=5), "a", key="other", segment=0),
        generation(steady(0.1, sent_s=500), "a", key="own", segment=1),
    ]
    plain = [generation(steady(0.2, sent_s=5), "a", arm="plain", role=Role.BLOCK, segment=1)]

    assert ["own"] == [ours.key for ours, _ in evidence(mine, plain).pairs]


def test_warm_ups_are_never_judged() -> None:
    """
    A warm-up is recorded and left out, in both arms.
    """
    slow = generation(steady(5.0), "a", role=Role.WARMUP, pair="p")
    slow_plain = generation(steady(5.0), "a", arm="plain", role=Role.WARMUP, pair="p")

    found = evidence([slow], [slow_plain])

    assert ((), (), ()) == (found.answers, found.plain, found.pairs)


# Ratios


def test_throughput_ratio_by_hand() -> None:
    """
    Twice the tokens per second on every canary is a ratio of 2, prefill left out.
    """
    ours, theirs = twins(6, lambda _: steady(0.05, first_s=0.9), lambda _: steady(0.1, first_s=0.1))

    found = known(estimate("throughput_ratio", evidence(ours, theirs)))

    assert pytest.approx((2.0, 2.0, 2.0, 6)) == (found.lo, found.center, found.hi, found.n)


def test_answer_throughput_ratio_counts_the_prefill() -> None:
    """
    The same answers with the prefill counted: 8 tokens in 1.25 s against 8 in 0.8 s.
    """
    ours, theirs = twins(6, lambda _: steady(0.05, first_s=0.9), lambda _: steady(0.1, first_s=0.1))

    found = known(estimate("answer_throughput_ratio", evidence(ours, theirs)))

    assert pytest.approx(0.8 / 1.25) == found.center


def test_system_throughput_ratio_divides_sums() -> None:
    """
    Tokens over busy time of one arm, over the same of the other: 40 tokens in 5 s against 40 in 10 s.
    """
    ours, theirs = twins(5, lambda _: answer([1.0], tokens=[8]), lambda _: answer([2.0], tokens=[8]))

    found = known(estimate("system_throughput_ratio", evidence(ours, theirs)))

    assert pytest.approx(2.0) == found.center


def test_high_acceptance_without_speed_is_a_loss() -> None:
    """
    A draft that is nearly always right and thirteen times slower is judged by its speed.
    """
    ours, theirs = twins(6, lambda _: steady(1.3, rounds=counted(4, 16, 15)), lambda _: steady(0.1))
    seen = evidence(ours, theirs)

    ratio = known(estimate("throughput_ratio", seen))
    accepted = known(estimate("acceptance_rate", seen))

    assert pytest.approx((1 / 13, 15 / 16)) == (ratio.center, accepted.center)


@pytest.mark.parametrize("metric", sorted(RATIOS))
@pytest.mark.parametrize(("lost", "sees"), [(0, True), (1, True), (2, False)])
def test_more_than_five_percent_of_lost_pairs_leave_no_ratio(metric: str, lost: int, *, sees: bool) -> None:
    """
    One lost pair of twenty is 5 %, which is allowed; two leave every ratio unproven.
    """
    ours, theirs = twins(20, lambda _: steady(0.05), lambda _: steady(0.1))
    ours = [
        replace(one, answer=replace(one.answer, fault="timeout")) if at < lost else one for at, one in enumerate(ours)
    ]

    assert sees == isinstance(estimate(metric, evidence(ours, theirs)), Estimate)


@pytest.mark.parametrize("metric", sorted(RATIOS))
def test_a_fault_of_plain_decoding_loses_the_pair_too(metric: str) -> None:
    """
    A ratio against an arm that died is no ratio.
    """
    ours, theirs = twins(8, lambda _: steady(0.05), lambda _: steady(0.1, fault="died"))

    assert "8 of 8 pairs" in because(estimate(metric, evidence(ours, theirs)))


@pytest.mark.parametrize("metric", sorted(RATIOS))
def test_a_ratio_needs_plain_answers(metric: str) -> None:
    """
    Without plain decoding there is nothing to compare with.
    """
    ours, _ = twins(8, lambda _: steady(0.05), lambda _: steady(0.1))

    assert "paired" in because(estimate(metric, evidence(ours)))


def drifting(change: float, repeats: int = 4) -> Twins:
    """Return four canaries asked *repeats* times over 600 s, plain decoding's speed changing by *change* on the way."""
    ours, theirs = [], []
    for repeat in range(repeats):
        for at in range(5):
            sent = 600 * (repeat * 5 + at) / (repeats * 5)
            gap = 0.1 * math.exp(-change * sent / 600)
            pair = f"{repeat}.{at}"
            ours.append(generation(steady(gap / 2, sent_s=sent), f"c-{at}", pair=pair))
            theirs.append(generation(steady(gap, sent_s=sent), f"c-{at}", arm="plain", role=Role.SENTINEL, pair=pair))
    return ours, theirs


def test_drift_by_hand() -> None:
    """
    Plain decoding that loses 20 % in log speed over the soak is seen to lose nearly that; centring takes a little.
    """
    found = known(drift(evidence(*drifting(-0.2))))

    assert -0.21 < found.center < -0.16
    assert found.hi < 0


@pytest.mark.parametrize("metric", sorted(RATIOS))
def test_drift_leaves_ratios_unproven(metric: str) -> None:
    """
    A host that slowed down by more than the SLO allows proves no ratio; it is not called slow.
    """
    ours, theirs = drifting(-0.2)

    assert "drifted" in because(estimate(metric, evidence(ours, theirs)))
    assert isinstance(estimate(metric, evidence(ours, theirs, drift_limit=0.5)), Estimate)


def test_a_steady_host_does_not_drift() -> None:
    """
    The same speed throughout is no drift.
    """
    found = known(drift(evidence(*drifting(0.0))))

    assert pytest.approx(0.0, abs=1e-9) == found.center


def test_canaries_of_different_speed_are_no_drift() -> None:
    """
    Each canary is compared with itself: a slow one asked late is not a slow host, and once asked tells nothing.
    """
    ours, theirs = twins(9, lambda _: steady(0.05), lambda at: steady(0.1 * (1 + at), sent_s=60.0 * at))

    assert "too few" in because(drift(evidence(ours, theirs)))


def test_drift_looks_at_the_last_segment_alone() -> None:
    """
    A resumed soak starts its clock anew; the interrupted stretch is not laid beside it.
    """
    _, old = drifting(-0.5)
    _, new = drifting(0.0)
    theirs = [*old, *(replace(one, segment=1, key=f"1{one.key}") for one in new)]

    assert pytest.approx(0.0, abs=1e-9) == known(drift(evidence([], theirs))).center


# Quantiles over canaries


def spread(count: int, make: Callable[[int], Answer], repeats: int = 1) -> list[Generation]:
    return [generation(make(at), f"c-{at:03}", key=f"{at}.{again}") for at in range(count) for again in range(repeats)]


@pytest.mark.parametrize(
    ("metric", "make", "value"),
    [
        ("decode_throughput", lambda _: steady(0.05), 20.0),
        ("prefill_throughput", lambda _: answer([0.1], prompt_tokens=50), 500.0),
        ("ttft", lambda _: answer([0.25]), 0.25),
        ("acceptance_rate", lambda _: answer(rounds=counted(2, 8, 6)), 0.75),
        ("acceptance_length", lambda _: answer(rounds=counted(2, 8, 6)), 4.0),
        ("tpot_p95", lambda _: steady(0.05), 0.05),
        ("stall_p95", lambda _: answer([0.1, 0.2, 0.9, 1.0]), 0.7),
        ("round_gap_p95", lambda _: steady(0.05), 0.05),
        ("itl_p50", lambda _: steady(0.05), 0.05),
        ("itl_p95", lambda _: steady(0.05), 0.05),
    ],
)
def test_quantiles_of_equal_answers_are_that_answer(metric: str, make: Callable[[int], Answer], value: float) -> None:
    """
    Sixty canaries that all show the same value have exactly that value, with n = 60.
    """
    found = known(estimate(metric, evidence(spread(60, make))))

    assert pytest.approx((value, value, value)) == (found.lo, found.center, found.hi)
    assert 60 == found.n


def test_greedy_repeats_are_not_independent() -> None:
    """
    Six canaries asked a hundred times are six answers: a median, but no p95.
    """
    seen = evidence(spread(6, lambda _: steady(0.05), repeats=100))

    assert 6 == known(estimate("ttft", seen)).n
    for metric in ("tpot_p95", "itl_p95", "stall_p95", "round_gap_p95"):
        assert "too few" in because(estimate(metric, seen))


def test_itl_is_normalised_by_tokens() -> None:
    """
    A round of four tokens every 0.2 s is 0.05 s a token, however it arrives; its gap is still 0.2 s.
    """

    def rounds(_: int) -> Answer:
        times = [0.1 + 0.2 * number for number in range(6) for _ in range(4)]
        return answer(times, drafted=[True, True, True, False] * 6)

    seen = evidence(spread(60, rounds))

    found = {metric: known(estimate(metric, seen)).center for metric in ("itl_p50", "itl_p95", "round_gap_p95")}

    assert {
        "itl_p50": pytest.approx(0.05),
        "itl_p95": pytest.approx(0.05),
        "round_gap_p95": pytest.approx(0.2),
    } == found


def test_itl_tail_sees_the_gap_a_mean_would_hide() -> None:
    """
    One token in ten comes alone after 0.5 s: the p95 reads 0.5 s although the mean is a tenth of that.
    """

    def stuttering(_: int) -> Answer:
        gaps = [0.01] * 9 + [0.5]
        times = [0.1]
        for gap in gaps * 4:
            times.append(times[-1] + gap)
        return answer(times)

    found = known(estimate("itl_p95", evidence(spread(60, stuttering))))

    assert pytest.approx(0.5) == found.center


def test_itl_merges_what_arrives_within_a_tenth_of_plain_decodings_gap() -> None:
    """
    Plain decoding's median gap is 0.1 s, so that chunks 5 ms apart are one burst and chunks 20 ms apart are two.
    """
    ours, theirs = twins(6, lambda _: answer([0.1, 0.3, 0.305, 0.6, 0.62]), lambda _: steady(0.1))
    seen = evidence(ours, theirs)

    assert pytest.approx(0.1) == plain_gap(seen)
    found = bursts(ours[0].answer, BURST * plain_gap(seen))
    assert [pytest.approx(0.2), pytest.approx(0.3), pytest.approx(0.02)] == [gap for gap, _ in found]
    assert [2, 1, 1] == [tokens for _, tokens in found]


def test_itl_of_uncounted_chunks_is_unknown() -> None:
    """
    A latency per token needs the tokens: chunks of unknown size give none, and no guess.
    """
    seen = evidence(spread(60, lambda _: answer([0.1, 0.2, 0.3], tokens=[None] * 3, output_tokens=9)))

    assert "does not count" in because(estimate("itl_p50", seen))


def test_faulty_answers_have_no_latency() -> None:
    """
    An answer that failed is counted as an error, and its times are not mixed with sound ones.
    """
    good = spread(5, lambda _: answer([0.2]))
    bad = [generation(answer([9.0], fault="timeout"), f"f-{at}") for at in range(5)]

    found = known(estimate("ttft", evidence([*good, *bad])))

    assert pytest.approx((0.2, 0.2, 5)) == (found.center, found.hi, found.n)


def test_ttft_delta_by_hand() -> None:
    """
    A median of 0.108 s against 0.1 s is +8 %.
    """
    ours, theirs = twins(7, lambda _: answer([0.108]), lambda _: answer([0.1]))

    found = known(estimate("ttft_delta", evidence(ours, theirs)))

    assert pytest.approx((0.08, 0.08, 0.08)) == (found.lo, found.center, found.hi)


# Facts of the frozen set


def marked(passes: Sequence[bool], arm: str, **more: Any) -> list[Generation]:
    """Answer canary number n of the frozen set rightly or wrongly."""
    role = Role.MEASURED if arm == "candidate" else Role.SENTINEL
    return [
        generation(answer(text="right" if ok else "wrong", **more), f"c-{at:03}", arm=arm, role=role)
        for at, ok in enumerate(passes)
    ]


def test_pass_delta_is_a_fact_of_the_frozen_set() -> None:
    """
    Two of ten canaries lost and one gained is -0.1, with no interval: the set is a census at temperature 0.
    """
    frozen = canaries(10, expect={"equals": "right"})
    mine = [True] * 7 + [False, False, True]
    plain = [True] * 9 + [False]

    found = known(estimate("task_pass_delta", evidence(marked(mine, "candidate"), marked(plain, "plain"), frozen)))

    assert pytest.approx((-0.1, -0.1, -0.1, 10)) == (found.lo, found.center, found.hi, found.n)


@pytest.mark.parametrize("change", [{"greedy": False}, {"frozen": False}])
def test_pass_delta_of_a_population_has_an_interval(change: dict[str, Any]) -> None:
    """
    Above temperature 0, or where the canaries stand for more than themselves, the same marks get honest bounds.
    """
    frozen = canaries(10, expect={"equals": "right"})
    seen = evidence(marked([True] * 10, "candidate"), marked([True] * 10, "plain"), frozen, **change)

    found = known(estimate("task_pass_delta", seen))

    assert (True, 0.0, True) == (found.lo < -0.25, found.center, found.hi > 0.25)


def test_repeats_that_disagree_are_no_census() -> None:
    """
    A canary passed once and failed once shows that greedy decoding is not repeatable here: bounds, not a fact.
    """
    frozen = canaries(10, expect={"equals": "right"})
    mine = [*marked([True] * 10, "candidate"), *marked([False], "candidate")]

    found = known(estimate("task_pass_delta", evidence(mine, marked([True] * 10, "plain"), frozen)))

    assert found.lo < found.center < found.hi


def test_pass_deltas_count_their_own_kind() -> None:
    """
    The JSON delta looks at canaries with a schema alone, the tool delta at calls, the task delta at all.
    """
    frozen = (
        canary("text", expect={"equals": "ok"}),
        canary("json", expect={"json_schema": {"type": "object"}}),
        canary("none"),
    )
    mine = [generation(answer(text=text), name) for name, text in (("text", "no"), ("json", "{}"), ("none", "x"))]
    plain = [
        generation(answer(text=text), name, arm="plain")
        for name, text in (("text", "ok"), ("json", "{}"), ("none", "y"))
    ]
    seen = evidence(mine, plain, frozen)

    task, schema = (known(estimate(metric, seen)) for metric in ("task_pass_delta", "json_pass_delta"))

    assert ((-0.5, 2), (0.0, 1)) == ((task.center, task.n), (schema.center, schema.n))
    assert "no canary" in because(estimate("tool_call_pass_delta", seen))


def test_pass_delta_wants_every_marked_canary_in_both_arms() -> None:
    """
    A canary that plain decoding was never asked leaves the delta unproven, not smaller.
    """
    frozen = canaries(10, expect={"equals": "right"})
    seen = evidence(marked([True] * 10, "candidate"), marked([True] * 9, "plain"), frozen)

    assert "1 of 10" in because(estimate("task_pass_delta", seen))


def test_a_dead_plain_arm_does_not_make_the_candidate_good() -> None:
    """
    Plain answers that failed are no evidence that plain decoding is wrong: nothing is gained by comparison with them.
    """
    frozen = canaries(10, expect={"equals": "right"})
    seen = evidence(marked([True] * 10, "candidate"), marked([True] * 10, "plain", fault="died"), frozen)

    assert "10 of 10" in because(estimate("task_pass_delta", seen))


def test_a_faulty_candidate_is_wrong() -> None:
    """
    An answer of the candidate that failed does not pass, whatever its text.
    """
    frozen = canaries(4, expect={"equals": "right"})
    seen = evidence(marked([True] * 4, "candidate", fault="cut off"), marked([True] * 4, "plain"), frozen)

    assert -1.0 == known(estimate("task_pass_delta", seen)).center


def agreeing(texts: Sequence[str], plain: Sequence[str]) -> Twins:
    return twins(len(texts), lambda at: answer(text=texts[at]), lambda at: answer(text=plain[at]))


def test_token_agreement_is_a_share_of_canaries() -> None:
    """
    Three of four canaries alike are 0.75; a promise about the population has bounds.
    """
    ours, theirs = agreeing(["a", "b", "c", "x"], ["a", "b", "c", "d"])

    fact, guess = (
        known(estimate("token_agreement", evidence(ours, theirs, frozen=frozen))) for frozen in (True, False)
    )

    assert (0.75, 0.75, 0.75, 4) == (fact.lo, fact.center, fact.hi, fact.n)
    assert guess.lo < 0.75 < guess.hi


def test_one_difference_in_many_repeats_is_a_difference() -> None:
    """
    A canary agrees only if every answer agrees with every plain answer.
    """
    ours, theirs = agreeing(["a", "b"], ["a", "b"])
    late = generation(answer(text="z"), "c-001", key="late", role=Role.CLOSING)

    assert 0.5 == known(estimate("token_agreement", evidence([*ours, late], theirs))).center


def test_agreement_needs_every_canary() -> None:
    """
    A canary without a plain answer, or with a failed one, leaves agreement unproven.
    """
    ours, theirs = agreeing(["a", "b"], ["a", "b"])
    failed = [replace(theirs[0], answer=replace(theirs[0].answer, fault="died")), theirs[1]]

    assert "1 of 2" in because(estimate("token_agreement", evidence(ours, theirs[:1])))
    assert "1 of 2" in because(estimate("token_agreement", evidence(ours, failed)))


def test_agreement_is_for_greedy_decoding() -> None:
    """
    Above temperature 0 two right answers differ.
    """
    ours, theirs = agreeing(["a"], ["a"])

    assert "temperature 0" in because(estimate("token_agreement", evidence(ours, theirs, greedy=False)))


def test_error_rate_counts_faults() -> None:
    """
    One failed answer of four is 0.25, as a fact.
    """
    answers = [generation(answer(fault=fault), f"c-{at}") for at, fault in enumerate([None, "timeout", None, None])]

    found = known(estimate("error_rate", evidence(answers)))

    assert (0.25, 0.25, 0.25, 4) == (found.lo, found.center, found.hi, found.n)


def test_engaged_counts_answers_with_a_proposal() -> None:
    """
    Drafted tokens show engagement, ours before the server's claim; an answer of one token leaves nothing to draft.
    """
    answers = [
        generation(answer(rounds=counted(2, 8, 0)), "a"),
        generation(answer(rounds=counted(2, 0, 0), claims=claimed(9, 9)), "b"),
        generation(answer(claims=claimed(4, 1)), "c"),
        generation(answer(claims=claimed(0, 0)), "d"),
        generation(answer([0.1]), "e"),
    ]

    found = known(estimate("speculation_engaged", evidence(answers)))

    assert (0.5, 4) == (found.center, found.n)


def test_engagement_that_nobody_shows_is_unproven() -> None:
    """
    Speculation silently off: neither rounds nor claims prove nothing, and are not good news.
    """
    assert "nothing shows" in because(estimate("speculation_engaged", evidence(spread(5, lambda _: answer()))))


@pytest.mark.parametrize(
    ("mine", "cut"),
    [
        (answer(finish="stop"), False),
        (answer(finish="tool_calls"), False),
        (answer(finish="length"), True),
        (answer(finish=None), True),
        (answer([0.1, 0.2], tokens=[1, 3], finish="stop"), True),
        (answer([0.1, 0.2], tokens=[1, 4], finish="stop"), False),
    ],
    ids=["complete", "call", "limit", "never finished", "under half as long", "half as long"],
)
def test_cut_short_against_a_complete_twin(mine: Answer, *, cut: bool) -> None:
    """
    Plain decoding completes ten tokens; an answer that does not finish, or stops under half of them, was cut short.
    """
    whole = answer([0.1, 0.2], tokens=[5, 5], finish="stop")
    full = replace(mine, output_tokens=10) if len(mine.arrivals) == 3 else mine

    seen = evidence([generation(full, "a")], [generation(whole, "a", arm="plain")])

    assert float(cut) == known(estimate("truncation_rate", seen)).center


def test_both_arms_at_their_limit_are_not_cut_short() -> None:
    """
    Where plain decoding runs into the limit too, the answer is as long as it may be.
    """
    seen = evidence([generation(answer(finish="length"), "a")], [generation(answer(finish="length"), "a", arm="plain")])

    assert 0.0 == known(estimate("truncation_rate", seen)).center


def windowed(rates: Sequence[tuple[int, int] | None], **more: Any) -> list[Generation]:
    """Return one answer in the middle of each 120 s window with (accepted, drafted), or none; the first starts at 0."""
    first = generation(answer([0.1], rounds=counted(0, 0, 0)), "first", **more)
    return [first] + [
        generation(answer([1.0], sent_s=120 * at + 60, rounds=counted(1, rate[1], rate[0])), f"w-{at}", **more)
        for at, rate in enumerate(rates)
        if rate is not None
    ]


def test_low_for_more_than_two_windows_is_at_least_x() -> None:
    """
    Two low windows in a row are forgiven (their third is high); three are the smallest of the largest.
    """
    two_low = windowed([(8, 10), (3, 10), (2, 10), (8, 10), (7, 10)])
    three_low = windowed([(8, 10), (3, 10), (2, 10), (1, 10), (7, 10)])

    forgiven, caught = (known(estimate("acceptance_window_min", evidence(one))).center for one in (two_low, three_low))

    assert (0.8, 0.3) == (forgiven, caught)


def test_windows_pool_tokens_not_answers() -> None:
    """
    One long answer at 10 % outweighs a short one at 100 % in the same window.
    """
    answers = windowed([(1, 2), (1, 2), (1, 2)])
    long = generation(answer([1.0], sent_s=70, rounds=counted(9, 98, 10)), "long")
    both = [*answers, *(replace(long, key=str(at), answer=_later(long.answer, 120.0 * at)) for at in range(3))]

    assert pytest.approx(11 / 100) == known(estimate("acceptance_window_min", evidence(both))).center


def _later(one: Answer, seconds: float) -> Answer:
    shift = round(seconds * 1e9)
    return replace(one, sent_ns=one.sent_ns + shift, ended_ns=one.ended_ns + shift)


def test_windows_do_not_join_across_segments_or_gaps() -> None:
    """
    Three windows in a row are three of one unbroken stretch; two before an interruption and one after are not.
    """
    broken = [*windowed([(5, 10), (5, 10)]), *windowed([(5, 10)], segment=1)]
    holed = windowed([(5, 10), (5, 10), None, (5, 10), (5, 10)])

    assert "three consecutive" in because(estimate("acceptance_window_min", evidence(broken)))
    assert "three consecutive" in because(estimate("acceptance_window_min", evidence(holed)))


# All metrics


@pytest.mark.parametrize("metric", WORKLOAD_METRICS)
def test_no_records_are_missing(metric: str) -> None:
    """
    Every metric of an empty soak is Missing, with a reason.
    """
    assert because(estimate(metric, evidence([])))


@pytest.mark.parametrize("metric", WORKLOAD_METRICS)
def test_only_faults_are_no_good_news(metric: str) -> None:
    """
    A soak in which every answer failed shows its error rate, and nothing else.
    """
    frozen = canaries(60, expect={"equals": "right"})
    seen = evidence(marked([True] * 60, "candidate", fault="died"), marked([True] * 60, "plain", fault="died"), frozen)

    found = estimate(metric, seen)

    if metric == "error_rate":
        assert 1.0 == known(found).center
    else:
        assert isinstance(found, Missing)


@pytest.mark.parametrize("metric", WORKLOAD_METRICS)
def test_estimates_do_not_depend_on_the_order_of_the_records(metric: str) -> None:
    """
    Concurrent answers are recorded as they end: the same records in another order give the same bytes.
    """
    frozen = canaries(60, expect={"equals": "ok"})

    def mine(at: int) -> Answer:
        return steady(0.05 + at / 1000, rounds=counted(2, 8, at % 8), prompt_tokens=50)

    ours, theirs = twins(60, mine, lambda at: steady(0.1 + at % 7 / 100))

    forth = estimate(metric, evidence(ours, theirs, frozen))
    back = estimate(metric, evidence(ours[::-1], theirs[::-1], frozen))

    assert forth == back
