"""The rotation: in which order a frozen set is asked over and over, so that any stretch of it is a fair sample."""

import random
from collections.abc import Sequence
from typing import TypeVar

One = TypeVar("One")


def turn(frozen: Sequence[One], number: int, seed: str) -> One:
    """Return what the turn *number* asks, counted from 0: each once a round, every round shuffled anew by *seed*.

    People sort their files. In file order eight hard canaries in a row would look like a loss once a round.
    """
    order = list(range(len(frozen)))
    random.Random(f"{seed}/{number // len(frozen)}").shuffle(order)
    return frozen[order[number % len(frozen)]]
