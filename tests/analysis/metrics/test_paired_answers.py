"""The evidence: which answers are compared with which."""

import math

import pytest

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.lost_pairs import MIN_LENGTH_RATIO, MIN_LENGTH_RATIO_SAMPLED, similar_lengths
from gatekeeper.analysis.metrics.readers import speeds_of
from gatekeeper.core.judgement import Estimate
from gatekeeper.core.records import Role
from tests.builders.slo import answer, because, evidence, generation, known, near, steady, twins


def test_pairs_by_their_pair() -> None:
    """Answers that share a pair and a canary are compared, whatever lies nearer in time."""
    candidates = [
        generation(steady(0.1, sent_s=0), "a", pair="p1", key="far"),
        generation(steady(0.1, sent_s=100), "a", pair="p2", key="near"),
    ]
    plain = [generation(steady(0.2, sent_s=101), "a", arm="plain", role=Role.BASELINE, pair="p1")]

    pairs = evidence(candidates, plain).pairs

    assert ["far"] == [candidate.key for candidate, _ in pairs]


def test_blocks_pair_with_the_nearest_answer_to_the_same_canary() -> None:
    """A plain answer of a block is compared with the candidate's answer to its canary that was sent nearest in time."""
    candidates = [
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

    pairs = evidence(candidates, plain).pairs

    assert ["early", "late"] == [candidate.key for candidate, _ in pairs]


def test_blocks_pair_inside_their_segment() -> None:
    """The clocks of two segments do not compare: an answer of the block's own segment is taken, however far away."""
    candidates = [
        generation(steady(0.1, sent_s=5), "a", key="other", segment=0),
        generation(steady(0.1, sent_s=500), "a", key="own", segment=1),
    ]
    plain = [generation(steady(0.2, sent_s=5), "a", arm="plain", role=Role.BLOCK, segment=1)]

    assert ["own"] == [candidate.key for candidate, _ in evidence(candidates, plain).pairs]


def test_warm_ups_are_never_judged() -> None:
    """A warm-up is recorded and left out, in both arms."""
    slow = generation(steady(5.0), "a", role=Role.WARMUP, pair="p")
    slow_plain = generation(steady(5.0), "a", arm="plain", role=Role.WARMUP, pair="p")

    paired = evidence([slow], [slow_plain])

    assert ((), (), ()) == (paired.answers, paired.plain, paired.pairs)


@pytest.mark.parametrize(
    ("candidate", "twin", "greedy", "similar"),
    [
        (6, 10, True, True),
        (10, 6, True, True),
        (5, 10, True, False),
        (1, 10, False, True),
        (0, 10, False, False),
        (0, 10, True, False),
        (None, 10, True, True),
        (10, None, False, True),
        (0, 0, True, True),
    ],
)
def test_only_answers_of_like_length_are_compared(
    candidate: int | None, twin: int | None, *, greedy: bool, similar: bool
) -> None:
    """Six tokens of ten are the same greedy work, five are not; drawn lengths differ up to tenfold."""
    pair = (generation(answer(output_tokens=candidate)), generation(answer(output_tokens=twin), arm="plain"))

    assert similar == similar_lengths(pair, MIN_LENGTH_RATIO if greedy else MIN_LENGTH_RATIO_SAMPLED)


def test_every_pair_is_either_read_or_lost() -> None:
    """Of seven pairs two differ in length and one has a fault: three are lost and four are read."""
    candidate, plain = twins(7, lambda at: steady(0.05, count=4 if at in {1, 3} else 8), lambda _: steady(0.1))
    candidate[5] = generation(steady(0.05, fault="died"), "c-005", pair="p5")

    speeds, _, lost = speeds_of("throughput_ratio", evidence(candidate, plain))

    assert (3, ["c-000", "c-002", "c-004", "c-006"]) == (lost, [speed.canary for speed in speeds])
    assert [near(2.0)] * 4 == [math.exp(speed.log_ratio) for speed in speeds]


def test_half_an_answer_is_no_speed_where_lengths_are_not_drawn() -> None:
    """Greedy answers half as long as plain decoding's did other work; drawn ones are answers like others."""
    candidate, plain = twins(6, lambda _: steady(0.05, count=4), lambda _: steady(0.1))

    assert "6 of 6 pairs are lost" in because(estimate("throughput_ratio", evidence(candidate, plain)))
    assert isinstance(estimate("throughput_ratio", evidence(candidate, plain, greedy=False)), Estimate)


def test_one_pair_too_many_is_too_many() -> None:
    """The share of lost pairs is compared with the limit that was given."""
    candidate, plain = twins(10, lambda at: steady(0.05, count=4 if at < 2 else 8), lambda _: steady(0.1))

    assert 8 == known(estimate("throughput_ratio", evidence(candidate, plain, lost_limit=0.2))).n
    assert "19 % allowed" in because(estimate("throughput_ratio", evidence(candidate, plain, lost_limit=0.19)))
