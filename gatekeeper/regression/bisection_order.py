"""The order of a bisection: which version to test next, and what is known once nothing is left to test."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Word = Literal["good", "bad", "unclear"]


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
