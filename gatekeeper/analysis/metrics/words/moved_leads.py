"""Leads in the passes that verified a draft, held against those of plain decoding after the same beginning."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gatekeeper.analysis.metrics.words.numerics_null import FALSE_ALARM, chance_of_so_many
from gatekeeper.analysis.metrics.words.scored_answers import by_canary_and_arm, shared_length
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Likely, Scored
from gatekeeper.core.verdict import Missing

ORDINARY = 0.99
"""The share of places whose leads move no further than numerics move them, whatever the engine does.

A cache that is wrong now and then moves few leads far, so that the run's own places show what is ordinary.
"""
LEAST = 0.01
"""In nats: a lead that moves by less is ordinary, because servers round."""
SIZES = 12
"""Moves that are counted: twice an ordinary one, and each larger by the square root of two than the one before."""


class Move(NamedTuple):
    """By how much a lead differs between the pass that verified a token and plain decoding."""

    workload: str
    canary: str
    position: int
    nats: float


def moves_of(records: Iterable[Scored]) -> tuple[Move, ...]:
    """Return the moves at all places of drafted answers that plain decoding can be compared at."""
    by_workload = defaultdict[str, list[Scored]](list)
    for record in records:
        by_workload[record.workload].append(record)
    return tuple(move for name, of_workload in by_workload.items() for move in _moves(name, of_workload))


def _moves(workload: str, records: Sequence[Scored]) -> Iterator[Move]:
    answers = by_canary_and_arm(tuple(record for record in records if not record.after))
    for plain in records:
        drafting = answers.get((plain.canary, "candidate"))
        if plain.arm != "plain" or plain.fault is not None or drafting is None:
            continue
        compared = min(shared_length(plain, drafting) + 1, len(plain.tokens), len(drafting.tokens) - plain.after)
        for place in range(compared):
            position = plain.after + place
            if (nats := _moved(plain.likeliest[place], drafting.likeliest[position])) is not None:
                yield Move(workload, plain.canary, position, nats)


def _moved(plain: tuple[Likely, ...], verified: tuple[Likely, ...]) -> float | None:
    """Return by how much the lead of plain decoding's best token over its second moved, at least."""
    named = {likely.name: likely.logprob for likely in verified}
    if len(plain) < 2 or not {plain[0].name, plain[1].name} & named.keys():
        return None
    least = min(named.values())
    best, second = (named.get(likely.name, least) for likely in plain[:2])
    lost = plain[0].logprob - plain[1].logprob - (best - second)
    if plain[1].name not in named:  # its log-probability is smaller yet: the lead is larger
        return max(0.0, -lost)
    return abs(lost) if plain[0].name in named else max(0.0, lost)


def ordinary_move(moves: Sequence[Move], level: float) -> float:
    """Return the move that ORDINARY of the places keep below; infinite where too few are known."""
    bound = intervals.quantile([move.nats for move in moves], ORDINARY, level)
    return math.inf if isinstance(bound, Missing) else max(bound.hi, LEAST)


def too_far(moves: Sequence[Move], level: float) -> tuple[Move, ...]:
    """Return the moves that are more than numerics make of their size; none where numerics explain all.

    How often numerics move a lead by k times an ordinary move falls with the fourth power of k, as in
    `numerics_null.Null`. The number of places beyond each of SIZES is held against that by Poisson's test, each at its
    share of FALSE_ALARM. Those beyond the smallest size that is refuted are returned.
    """
    ordinary = ordinary_move(moves, level)
    for step in range(2, 2 + SIZES):
        beyond = tuple(move for move in moves if move.nats > ordinary * 2 ** (step / 2))
        expected = len(moves) * (1 - ORDINARY) / 4**step
        if chance_of_so_many(len(beyond), expected) < FALSE_ALARM / SIZES:
            return beyond
    return ()
