"""The evidence: which answers are compared with which."""

from gatekeeper.terms.records import Role
from tests.verdict.made import evidence, generation, steady


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
