"""What is planted: the noise of another kernel, and defects of an engine, which strike by a hash of what is read.

A real kernel for several rows sums in another order, or rounds elsewhere. What it changes looks like noise, but it is a
function: the same rows give the same bits. So this noise is read from one fixed stream, at an offset that a hash of the
row picks. A pass of one row has none: that kernel is the reference.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LENGTH = 1 << 20
"""Values of the stream: a thousand rows of the little vocabulary, at a million offsets."""
FREEDOM = 4
"""Degrees of freedom of Student's t: one value in 4,000 lies beyond eight times the scale, of a normal one none."""

Numbers = NDArray[np.int64]
Column = NDArray[np.integer] | np.integer | int
Floats = NDArray[np.float32]


def mixed(seed: int, *columns: Column) -> NDArray[np.uint64]:
    """Return a hash of each row of the integer *columns* (shapes broadcast), after the finaliser of splitmix64."""
    value: NDArray[np.uint64] = np.asarray(seed, np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            value = value * np.uint64(0x9E3779B97F4A7C15) + np.asarray(column).astype(np.uint64)
            value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            value = value ^ (value >> np.uint64(31))
    return value


def struck(rate: float, seed: int, *columns: Column) -> NDArray[np.bool_]:
    """Return which rows of *columns* are among the share *rate* that a seed picks."""
    return mixed(seed, *columns) < np.uint64(min(max(rate, 0.0), 1.0) * (2**64 - 2**11))


@lru_cache(maxsize=1)
def _stream() -> Floats:
    return np.random.default_rng(30).standard_t(FREEDOM, LENGTH).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Noise:
    """What the kernel of several rows adds to each row of its output."""

    scale: float
    """Of Student's t, in logits; inside the network, in units of the row's own root mean square."""
    seed: int = 0
    windows: dict[int, NDArray[np.float32]] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[type["Noise"], tuple[float, int]]:
        """Leave out the windows, which are gigabytes where they are written out."""
        return Noise, (self.scale, self.seed)

    def rows(self, width: Numbers | int, positions: Numbers, tokens: Numbers, answers: Column, size: int) -> Floats:
        """Return what a pass of *width* rows adds to *size* values at each place; *positions* and *tokens* as read.

        *answers* are hashes of the prompts, which stand for what was read before. The shape is that of *positions* with
        *size* behind it; zeros where the pass has one row.
        """
        if not self.scale or np.all(np.asarray(width) < 2):
            return np.zeros((*positions.shape, size), np.float32)
        if size not in self.windows:
            self.windows[size] = np.lib.stride_tricks.sliding_window_view(_stream(), size)
        offsets = mixed(self.seed + 1, width, positions, tokens, answers) % np.uint64(LENGTH - size)
        return self.windows[size][offsets.astype(np.int64)] * np.float32(self.scale)


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
