"""Shuffled rounds: every item once per round, each round in another random order that depends on a seed.

Canary files are often sorted. In file order, eight hard canaries in a row would look like a loss in every round.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def shuffled(items: Iterable[Item], shuffle: random.Random) -> list[Item]:
    """Return *items* in random order."""
    order = list(items)
    shuffle.shuffle(order)
    return order


def endless_rounds(items: Sequence[Item], shuffle: random.Random) -> Iterator[Item]:
    """Yield *items* without end; each round is shuffled when it begins."""
    while items:
        yield from reversed(shuffled(items, shuffle))


def in_shuffled_rounds(items: Sequence[Item], number: int, seed: str) -> Item:
    """Return item *number*, counted from 0 over all rounds; it depends only on the arguments."""
    rounds, place = divmod(number, len(items))
    return shuffled(items, random.Random(f"{seed}/{rounds}"))[place]
