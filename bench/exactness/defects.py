"""The defects that are planted: what each does, and in which rounds of which answers it strikes."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from bench.exactness.noise import mixed, struck

Hashes = NDArray[np.uint64] | np.uint64
"""Of the prompts of answers: the same defect strikes the same rounds of the same answer."""
TIE = 0.1
"""In logits: where the target leads by less, a defect of ties keeps the draft's token."""
REPEATED_FROM = 12
"""A repeating answer has at most this many sound tokens."""


class Kind(StrEnum):
    """What goes wrong; all but the last are of the engine, the last is of the kernel alone."""

    UNVERIFIED = "unverified"
    """A drafted token is kept although the target picks another one."""
    SHIFTED = "shifted"
    """After a rollback the target goes on one position too early: the cache lost the row of the last kept token."""
    STALE = "stale"
    """After a rollback the row of the rejected token stays in the cache, in place of that of the token that follows."""
    DROPPED = "dropped"
    """The last token of a round is not sent."""
    TIES = "ties"
    """At a tie the draft's token is kept."""
    GRAMMAR = "grammar"
    """Plain decoding obeys a grammar, verifying does not."""
    SHORTCUT = "shortcut"
    """Above temperature 0: the target's best token stands in for the one that was drawn from its distribution."""
    REPETITION = "repetition"
    """Passes of several tokens repeat the last token: the engine is right, its kernel harms."""


ROLLBACKS = {Kind.UNVERIFIED, Kind.SHIFTED, Kind.STALE}
"""Defects that need a rejected token: where a round has none, they wait for the next one that has."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect at one rate."""

    kind: Kind
    rate: float
    """Share of rounds; of tokens for the grammar and the shortcut, of answers for repetition; unused for ties."""
    seed: int = 0

    def in_round(self, answers: Hashes, number: int) -> NDArray[np.bool_]:
        """Return in which of *answers* (their hashes) the defect strikes in round *number*."""
        return struck(self.rate, self.seed + 101, answers, number)

    def forbids(self, answers: Hashes, positions: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return where the grammar forbids the target's best token."""
        if self.kind is not Kind.GRAMMAR:
            return np.zeros(np.broadcast_shapes(answers.shape, positions.shape), np.bool_)
        return struck(self.rate, self.seed + 102, answers, positions, tokens)

    def skips_the_draw(self, answers: Hashes, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return at which tokens of *answers* the best one is taken without a draw."""
        return struck(self.rate, self.seed + 105, answers, positions)

    def repeats(self, answers: Hashes, written: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return where a pass of several tokens repeats the token it reads; *written*: tokens of the answer so far."""
        if self.kind is not Kind.REPETITION:
            return np.zeros(np.broadcast_shapes(answers.shape, written.shape), np.bool_)
        begins = (mixed(self.seed + 103, answers) % np.uint64(REPEATED_FROM)).astype(np.int64)
        return struck(self.rate, self.seed + 104, answers) & (written > begins)


def hash_of(prompt: list[int]) -> int:
    """Return the hash by which an answer is known, of the tokens of its prompt."""
    return int(mixed(0, *prompt))
