"""The word for each version of a bisection: which one is tested next, and how it is compared, canary by canary.

A version is compared with both ends, and the two on both sides of the change with each other. The spread between
canaries is the same in all versions and cancels, so only the noise of answers is left. A version is bad where it is
proven worse than the good end, and good where the bad end is proven worse than it. Where neither is proven, its
canaries are answered again.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from gatekeeper.analysis.stats import run_to_run, sequential
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.analysis.stats.run_to_run import Values
from gatekeeper.core.metrics import BY_NAME, DECODE_RATIO
from gatekeeper.core.verdict import Estimate, Missing

Word = Literal["good", "bad", "unclear"]
"""What a version is; the search passes over one that is neither good nor bad."""
ROUNDS = (1, 2, 4, 6)
"""How often each canary was answered when the values are looked at. With six, 24 canaries prove a loss of 10 % at 10 %
noise of an answer in 99 of 100 searches (bench/bisection.py)."""
ERROR = 0.01
"""Allowed chance that one comparison errs, over all its looks. A search makes three to six; the last one decides."""
CLEAR = 2.0
"""The ends are answered until their difference is so many times the distance that proves it: each other version then
shows on which side it is."""

Measure = Callable[[int, int], Values | Missing]
"""Return the values of a version, given its position, after so many rounds or more."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known of an ordered list of versions, of which the first is good and the last is bad."""

    last_good: int
    first_bad: int

    @property
    def is_closed(self) -> bool:
        """Return whether nothing lies between the two: the first bad version is known."""
        return self.first_bad == self.last_good + 1


def interval(words: Mapping[int, Word]) -> Interval:
    """Return the last good version before the first bad one, by what was tested so far; raise ValueError without."""
    first_bad = min(position for position, word in words.items() if word == "bad")
    last_good = max(position for position, word in words.items() if word == "good" and position < first_bad)
    return Interval(last_good, first_bad)


def next_version(words: Mapping[int, Word]) -> int | None:
    """Return the untested version nearest to the middle between good and bad, or None where none is left.

    As `git bisect skip` does: an unclear version is passed over for its nearest neighbour.
    """
    bounds = interval(words)
    middle = (bounds.last_good + bounds.first_bad) / 2
    untested = [position for position in range(bounds.last_good + 1, bounds.first_bad) if position not in words]
    return min(untested, key=lambda position: abs(position - middle), default=None)


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """How versions of one search are compared."""

    measure: Measure
    canaries: int
    logs: bool
    """The values are logs."""
    higher_is_better: bool
    rounds: tuple[int, ...] = ROUNDS

    def compare_ends(self, last: int) -> Estimate | Missing:
        """Answer both ends until their difference is clear or the rounds are over; return the last one over the first.

        Missing where the last is not proven worse.
        """
        ratio: Estimate | Missing = Missing("nothing was measured")
        for rounds in self.rounds:
            ratio = self.ratio(last, 0, rounds)
            if isinstance(ratio, Missing) or self._is_worse(ratio, CLEAR):
                return ratio
        if isinstance(ratio, Missing) or self._is_worse(ratio):
            return ratio
        measured = BY_NAME[DECODE_RATIO].show_interval(ratio.center, ratio.lo, ratio.hi)
        if ratio.lo <= 1 <= ratio.hi:
            return Missing(f"no difference is proven, the bad version has {measured} of the good one")
        return Missing(f"the bad version is better: {measured} of the good one")

    def search(self, last: int) -> tuple[dict[int, Word], Interval]:
        """Test versions between the ends, which differ; return each one's word, and what is left of the list."""
        words: dict[int, Word] = {0: "good", last: "bad"}
        while (position := next_version(words)) is not None:
            words[position] = self.word(position, last)
        return words, interval(words)

    def word(self, position: int, last: int) -> Word:
        """Say whether a version is as the good or as the bad end; unclear where six rounds do not prove it."""
        for rounds in self.rounds:
            loss, left = self.ratio(position, 0, rounds), self.ratio(last, position, rounds)
            if isinstance(loss, Missing) or isinstance(left, Missing):
                return "unclear"
            is_worse, is_better = self._is_worse(loss), self._is_worse(left)
            if is_worse and is_better:  # part of the loss: the nearer end
                return "bad" if self._loss(loss) > self._loss(left) else "good"
            if is_worse or is_better:
                return "bad" if is_worse else "good"
        return "unclear"

    def is_change(self, bounds: Interval) -> bool:
        """Return whether the first bad version is proven worse than the last good one, answered again where needed."""
        for rounds in self.rounds:
            ratio = self.ratio(bounds.first_bad, bounds.last_good, rounds)
            if isinstance(ratio, Missing):
                return False
            if self._is_worse(ratio):
                return True
        return False

    def ratio(self, position: int, base: int, rounds: int) -> Estimate | Missing:
        """Bound one version over another after so many rounds."""
        then, now = self.measure(base, rounds), self.measure(position, rounds)
        if isinstance(then, Missing):
            return then
        if isinstance(now, Missing):
            return now
        most = self.rounds[-1]
        error = sequential.nominal_errors(self.rounds, most, ERROR)[self.rounds.index(rounds)]
        return self.change(now, then, error)

    def change(self, now: Values, then: Values, error: float = ERROR) -> Estimate | Missing:
        """Bound one version over another, by default as in one look alone.

        The wider of two intervals: repeats show noise that lasts, and canaries that a version changed unequally show
        how much of the change is their luck, such as that of a draft.
        """
        bounds = [
            run_to_run.ratio(after, before, 1 - error, self.canaries, logs=self.logs)
            for after, before in ((now, then), (_means(now), _means(then)))
        ]
        narrow, wide = bounds
        if isinstance(narrow, Missing) or isinstance(wide, Missing):
            return wide
        return replace(wide, lo=min(narrow.lo, wide.lo), hi=max(narrow.hi, wide.hi))

    def _is_worse(self, ratio: Estimate, times: float = 1.0) -> bool:
        """Return whether the loss is more than so many *times* the distance between the estimate and its bound."""
        if ratio.center <= 0:
            return self.higher_is_better
        far = ratio.hi / ratio.center if self.higher_is_better else ratio.center / ratio.lo
        return self._loss(ratio) > times * math.log(far)

    def _loss(self, ratio: Estimate) -> float:
        """Return how much worse one version is, as a log."""
        if ratio.center <= 0:
            return math.inf if self.higher_is_better else -math.inf
        return -math.log(ratio.center) if self.higher_is_better else math.log(ratio.center)


def _means(values: Values) -> Values:
    return [(canary, fmean(of_canary)) for canary, of_canary in by_canary(values).items()]
