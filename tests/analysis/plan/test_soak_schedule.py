"""What a soak asks next."""

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.analysis.plan.planned_request import PlannedRequest, in_shuffled_rounds
from gatekeeper.analysis.plan.soak_schedule import (
    CanaryNeeds,
    Coverage,
    canaries_needed,
    closing_requests,
    plain_block,
    soak_requests,
)
from gatekeeper.core.records import Role, Setting
from tests.builders.slo import FAST, PLAIN, canaries, objective, slo

EASY: dict[str, Setting] = {"easy": FAST}
TWO: dict[str, Setting] = {"easy": FAST, "hard": PLAIN}
FROZEN = {"easy": canaries(10, "easy"), "hard": canaries(10, "hard")}


def asked(
    knobs: dict[str, Setting], count: int, share: float = 0.2, seed: int = 7, **weights: float
) -> list[PlannedRequest]:
    every = {name: weights.get(name, 1.0) for name in knobs}
    groups = islice(soak_requests(knobs, FROZEN, every, baseline_share=share, seed=seed), count)
    return [turn for group in groups for turn in group]


@given(st.floats(0.01, 0.5), st.integers(0, 2**40))
@settings(max_examples=30, deadline=None)
def test_baseline_requests_approach_their_share(share: float, seed: int) -> None:
    """Of a thousand turns' answers the promised share is plain, but for the one that comes first of all."""
    turns = asked(EASY, 1000, share, seed)

    plain = sum(turn.role is Role.BASELINE for turn in turns)
    assert abs(plain - share * len(turns)) <= 2


def test_a_short_soak_has_a_baseline_request() -> None:
    """The first answer already has its baseline: same canary, same pair, next to it; without a share none has one."""
    first, second = asked(EASY, 1)

    assert {"candidate", "plain"} == {first.arm, second.arm}
    assert (first.canary, first.pair) == (second.canary, second.pair)
    assert {"candidate"} == {turn.arm for turn in asked(EASY, 50, share=0.0)}


def test_twins_come_in_random_order() -> None:
    """Neither arm always goes first."""
    groups = [
        group
        for group in islice(soak_requests(EASY, FROZEN, {"easy": 1.0}, baseline_share=0.5, seed=7), 60)
        if len(group) == 2
    ]

    assert {"candidate", "plain"} == {group[0].arm for group in groups}


def test_workloads_come_by_their_weight() -> None:
    """Three to one in every stretch, not only in the long run; a weight of zero is never asked."""
    workloads = [
        group[0].workload
        for group in islice(soak_requests(TWO, FROZEN, {"easy": 3, "hard": 1}, baseline_share=0, seed=1), 80)
    ]

    assert all(3 == Counter(workloads[at : at + 4])["easy"] for at in range(0, 80, 4))
    assert {"easy"} == {turn.workload for turn in asked(TWO, 50, hard=0.0)}


def test_canaries_rotate_in_rounds_of_their_own_order() -> None:
    """Every canary is sent once before any is sent again, no round has the order of the file or of the one before, and
    the same seed sends the same.
    """
    names = [turn.canary.id for turn in asked(EASY, 30, share=0.0)]
    rounds = [names[at : at + 10] for at in (0, 10, 20)]

    assert all(sorted(turns) == [canary.id for canary in FROZEN["easy"]] for turns in rounds)
    assert 4 == len({tuple(turns) for turns in (*rounds, sorted(names[:10]))})
    assert names == [turn.canary.id for turn in asked(EASY, 30, share=0.0)]


@given(st.integers(1, 30), st.integers(0, 20), st.text(max_size=5))
def test_each_item_comes_once_a_round(count: int, rounds: int, seed: str) -> None:
    """Whatever the seed, whole rounds have every item alike often."""
    counter = Counter(in_shuffled_rounds(range(count), number, seed) for number in range(count * rounds))

    assert dict.fromkeys(range(count), rounds) == {number: counter[number] for number in range(count)}


def test_each_request_draws_anew_and_the_same_again() -> None:
    """With one seed for all, two repeats would be one draw; a run that is made again has the same seeds."""
    requests = [PlannedRequest("easy", FROZEN["easy"][0], "plain", PLAIN, prefix=f"soak-1:{at}") for at in range(3)]
    sampled = slo(sampling={"temperature": 0.7, "seed": 5})

    seeds = [request.sampled_by(sampled).seed for request in requests]

    assert 3 == len(set(seeds))
    assert all(seed is not None and 0 <= seed < 2**31 for seed in seeds)
    assert seeds == [request.sampled_by(sampled).seed for request in requests]
    assert requests[0].sampled_by(slo()).seed is None, "none is sent at temperature 0"


@pytest.mark.parametrize(
    ("promise", "expected"),
    [
        (objective("throughput_ratio"), CanaryNeeds(1, 12)),
        (objective("ttft", at_most=1), CanaryNeeds(6, 12)),
        (objective("itl_p95", at_most=1), CanaryNeeds(80, 12)),
        (objective("itl_p99", at_most=1), CanaryNeeds(100, 12)),
        (objective("token_agreement"), CanaryNeeds(1, 12, 100)),
        (objective("json_pass_delta", at_least=0), CanaryNeeds(1, 12, 100)),
        (objective("error_rate", at_most=0.1), CanaryNeeds(1, 12)),
        (objective("error_rate", at_most=0.1, scope="population"), CanaryNeeds(100, 12)),
        (objective("speculation_engaged", at_least=0.9, scope="population"), CanaryNeeds(100, 12)),
        (objective("truncation_rate", at_most=0.1, scope="population"), CanaryNeeds(1, 100)),
        (objective("throughput_ratio", scope="population"), CanaryNeeds(1, 100)),
        (objective("ttft", at_most=1, scope="population"), CanaryNeeds(100, 12)),
    ],
)
def test_needs_of_a_speculating_workload(promise: dict[str, object], expected: CanaryNeeds) -> None:
    """A quantile wants its samples, a census every canary in both arms, a ratio a dozen pairs, plain decoding none."""
    assert expected == canaries_needed(slo(promise), "easy", FAST, canaries(100))
    assert 0 == canaries_needed(slo(promise), "easy", PLAIN, canaries(100)).paired


def lacking(need: CanaryNeeds, *answers: tuple[str, str]) -> list[str]:
    coverage = Coverage({"easy": need})
    for arm, canary in answers:
        coverage.add("easy", arm, canary)
    return coverage.lacking()


def test_words_that_the_sweep_compared_need_no_second_answer() -> None:
    """A census is complete where sweep and soak together have answered each canary in both arms."""
    need = {"easy": CanaryNeeds(1, 1, 3)}
    coverage = Coverage(need, {"easy": {"b", "c"}})
    assert ["easy"] == coverage.lacking()

    for arm in ("candidate", "plain"):
        coverage.add("easy", arm, "a")

    assert [] == coverage.lacking()


def test_coverage_counts_distinct_canaries_in_each_arm() -> None:
    """Repeats do not count, a pair needs both arms, and a plain workload counts its plain answers."""
    candidate = [("candidate", name) for name in ("a", "a", "b")]
    plain = [("plain", name) for name in ("a", "x", "y", "z")]

    assert [] == lacking(CanaryNeeds(2, 1), *candidate, *plain)
    assert ["easy"] == lacking(CanaryNeeds(3, 1), *candidate, *plain)
    assert ["easy"] == lacking(CanaryNeeds(2, 2), *candidate, *plain)
    assert ["easy"] == lacking(CanaryNeeds(1, 0))
    assert [] == lacking(CanaryNeeds(4, 0), *plain)


def test_half_a_pair_is_none() -> None:
    """A run killed between the two answers of a pair needs another pair: only answers of one pair are compared."""
    coverage = Coverage({"easy": CanaryNeeds(1, 1)})
    coverage.add("easy", "candidate", "a")
    coverage.add("easy", "plain", "a", "1.1")

    assert ["easy"] == coverage.lacking()
    coverage.add("easy", "candidate", "a", "2.1")
    assert ["easy"] == coverage.lacking()
    coverage.add("easy", "plain", "a", "2.1")
    assert [] == coverage.lacking()


def test_plain_blocks_ask_the_same_canaries_or_share_many() -> None:
    """A small set is sent three times in all blocks; a large one once, or twice above temperature 0."""
    large, hot = canaries(96), slo(sampling={"temperature": 0.7})
    small = [turn.canary.id for number in range(6) for turn in plain_block(slo(), EASY, FROZEN, number, 6)]
    split = [turn.canary.id for number in range(6) for turn in plain_block(slo(), EASY, {"easy": large}, number, 6)]

    drawn = [turn.canary.id for number in range(6) for turn in plain_block(hot, EASY, {"easy": large}, number, 6)]

    assert {prompt.id: 3 for prompt in FROZEN["easy"]} == Counter(small)
    assert sorted(prompt.id for prompt in large) == sorted(split)
    assert {prompt.id: 2 for prompt in large} == Counter(drawn)


def test_closing_asks_quality_canaries_in_the_arm_that_was_soaked() -> None:
    """At most two dozen canaries that expect something are sent again, spread over the set."""
    marked = canaries(60, expect={"equals": "x"})
    turns = closing_requests(TWO, {"easy": (*canaries(5, "bare"), *marked), "hard": canaries(3)})

    assert {("easy", "candidate", Role.CLOSING)} == {(turn.workload, turn.arm, turn.role) for turn in turns}
    assert 20 == len(turns)
    assert {"c-000", "c-057"} <= {turn.canary.id for turn in turns}
