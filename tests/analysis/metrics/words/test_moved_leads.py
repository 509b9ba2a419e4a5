"""Leads in the passes that verified a draft, against plain decoding's."""

import pytest

from gatekeeper.analysis.metrics.words.moved_leads import LEAST, Move, moves_of, too_far
from gatekeeper.core.records import Likely, Scored


def place(*logprobs: tuple[str, float]) -> tuple[Likely, ...]:
    return tuple(Likely(*pair) for pair in logprobs)


def scored(arm: str, *places: tuple[Likely, ...], tokens: str, after: int = 0, fault: str | None = None) -> Scored:
    logprobs = (-0.1,) * len(tokens)
    return Scored("w", "c", arm, "", tuple(tokens), logprobs, likeliest=places, after=after, fault=fault)


def moved(nats: list[float], workload: str = "w") -> tuple[Move, ...]:
    return tuple(Move(workload, f"c{number}", number, size) for number, size in enumerate(nats))


ORDINARY = [number / 1000 for number in range(1000)]
"""Of which 99 % move by less than a nat."""


def test_leads_are_compared_up_to_the_first_other_token_and_after_it() -> None:
    """
    The lead of plain decoding's best token over its second, in both passes after the same beginning.
    """
    same, turned = place(("a", -0.5), ("b", -1.5)), place(("a", -2.0), ("b", -0.5))
    drafting = scored("candidate", same, turned, same, tokens="aba")
    plain = scored("plain", same, same, same, tokens="aaa")
    later = scored("plain", turned, tokens="b", after=2)

    moves = moves_of([drafting, plain, later])

    assert [(0, 0.0), (1, 2.5), (2, 2.5)] == [(move.position, move.nats) for move in moves]


@pytest.mark.parametrize(
    ("verified", "nats"),
    [
        (place(("a", -0.5), ("c", -5.5)), 4.0),
        (place(("a", -0.5), ("c", -0.8)), 0.0),
        (place(("b", -0.5), ("c", -0.8)), 1.3),
        (place(("c", -0.5), ("d", -0.8)), None),
        ((), None),
    ],
)
def test_a_token_that_is_not_among_the_likeliest_is_less_likely_than_those(
    verified: tuple[Likely, ...], nats: float | None
) -> None:
    """
    So the lead moved by so much at least; where neither token is named, nothing is known.
    """
    plain = scored("plain", place(("a", -0.5), ("b", -1.5)), tokens="a")

    moves = moves_of([scored("candidate", verified, tokens="a"), plain])

    assert ([] if nats is None else [pytest.approx(nats)]) == [move.nats for move in moves]


def test_few_leads_that_moved_far_are_no_numerics_and_those_of_all_workloads_count() -> None:
    """
    Of a thousand places, 99 % of which move by less than a nat, numerics move one in 25 runs by four nats.
    """
    far = moved([4.5] * 3, "other")

    assert () == too_far((*moved(ORDINARY), *far[:1]), 0.95)
    assert far == too_far((*moved(ORDINARY), *far), 0.95)


def test_numerics_and_rounding_move_no_lead_too_far() -> None:
    """
    Changes that fall with the fourth power, changes below LEAST, and too few places to know what is ordinary.
    """
    heavy = [0.1 * (1000 / (1000 - number)) ** 0.25 for number in range(1000)]

    assert () == too_far(moved(heavy), 0.95)
    assert () == too_far(moved([0.0] * 900 + [LEAST] * 9), 0.95)
    assert () == too_far(moved([0.0] * 100 + [50.0]), 0.95)
