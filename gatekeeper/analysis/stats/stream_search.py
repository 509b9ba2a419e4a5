"""The search for the most concurrent streams that keep a bound: few probes, and an interval that holds.

What keeps its bounds with some streams is taken to keep them with fewer. Short probes scout, doubling the streams and
then halving what is left: they may prove a bound broken, where the miss is clear, and never prove it kept. Full
probes around the boundary decide it; while they leave two numbers of streams or more, those next to the boundary get
more and more answers, for a limited time. The interval rests on what is proven alone: the most streams that a full
probe proves to keep every bound, and one less than the fewest that are proven to break one.

Its lower end is too high only if a full probe beyond the true boundary passes. Before the first one that does, all full
probes there did not pass, so a probe errs at most with its share after so many that did not: all together err at most
with *error*, whichever they are (Bonferroni; a probe that passed within the boundary spends nothing). The upper end is
too low only if a probe within the boundary is called broken: the full ones share half of *error* in the same way, and
each of at most `MOST_SHORT` short ones has its equal share of the other half.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from gatekeeper.core.verdict import Outcome

MOST_FULL = 6
"""Full probes of one search with as few answers as decide: with more, each would need still more for its share."""
MOST_TIMES = 16
"""Times as many answers, at most, as the first full probe with as many streams needs."""
SHARE = 0.35
"""Of the error that is left, what the next full probe may err with: a later one has more answers, and needs less."""
MOST_NARROWING = 4
"""Short probes between two that the boundary lies between: full ones find the rest."""
MOST_SHORT = 11
"""Short probes of one search: seven that double up to 64 streams, and those that narrow."""
FARTHEST_JUMP = 8
"""Times as many streams, at most, as the last short probe had: a straight line through two says little of more."""
COARSE = 8
"""Between undecided probes the ends are found to one part in so many: each further one costs a full probe."""
SHORT = 8
"""Answers of a short probe, at least: four of eight above a 95 % quantile are a clear miss."""


@dataclass(frozen=True, slots=True)
class StreamProbe:
    """What the search wants to know next."""

    streams: int
    full: bool
    """With answers enough to prove that the bounds are kept."""
    error: float
    """The chance that a full probe may wrongly pass with."""
    error_broken: float
    """The chance that any probe may wrongly fail with."""
    times: int = 1
    """Times as many answers as a full probe needs; those of the probe before with as many streams are among them."""


@dataclass(frozen=True, slots=True)
class StreamReading:
    """What a probe showed."""

    outcome: Outcome
    """Pass: every bound is proven kept. Fail: one is proven broken."""
    share: float | None
    """The part of its bound that the tightest value takes: above 1 it looks broken. None: nothing was measured."""
    seconds: float = 0.0
    """How long its answers took, all streams being busy."""

    @property
    def keeps(self) -> bool:
        """Return whether the bounds look kept."""
        return self.outcome is not Outcome.FAIL and self.share is not None and self.share <= 1


@dataclass(frozen=True, slots=True)
class Reach:
    """How many streams keep the bounds."""

    least: int
    """The most that are proven to; 0 where none are."""
    most: int | None
    """One less than the fewest that are proven to break one; None where none are, up to the limit."""


Search = Generator[StreamProbe, StreamReading, Reach]
"""Yields what it wants to know, takes what it was, and returns the interval."""


def most_streams(limit: int, error: float, start: int = 1, longest: float = 0.0) -> Search:
    """Search from *start* for the most of up to *limit* streams; each end of the interval errs at most with *error*.

    Probes that only narrow the interval are sent as long as all probes take no more than *longest* seconds.
    """
    search = _StreamSearch(limit, error)
    yield from search.scout(start)
    yield from search.narrow()
    yield from search.prove_kept()
    yield from search.prove_broken()
    yield from search.decide(longest)
    return Reach(search.least, search.broken - 1 if search.broken <= limit else None)


class _StreamSearch:
    """One search, with what it knows so far."""

    def __init__(self, limit: int, error: float) -> None:
        self._limit, self._error = limit, error
        self._readings: dict[int, StreamReading] = {}
        self._full: dict[int, Outcome] = {}
        self._outcomes: list[Outcome] = []
        """Of every full probe."""
        self._times: dict[int, int] = {}

    @property
    def broken(self) -> int:
        """Return the fewest streams that are proven to break a bound; one more than the limit where none are."""
        broken = (streams for streams, reading in self._readings.items() if reading.outcome is Outcome.FAIL)
        return min(broken, default=self._limit + 1)

    @property
    def least(self) -> int:
        """Return the most streams below those that are proven to keep every bound."""
        kept = (streams for streams, outcome in self._full.items() if outcome is Outcome.PASS)
        return max((streams for streams in kept if streams < self.broken), default=0)

    def scout(self, start: int) -> Generator[StreamProbe, StreamReading, None]:
        """Raise the streams while the bounds look kept; where they do not at the start, halve them until they do."""
        streams = min(start, self._limit)
        yield from self._probe(streams)
        if self._readings[streams].keeps:
            while streams < self._limit and self._readings[streams].keeps:
                streams = min(self._limit, max(2 * streams, min(FARTHEST_JUMP * streams, self._beyond(streams))))
                yield from self._probe(streams)
        else:
            while streams > 1 and not self._readings[streams].keeps:
                streams //= 2
                yield from self._probe(streams)

    def narrow(self) -> Generator[StreamProbe, StreamReading, None]:
        """Halve the gap between what looks kept and what looks broken."""
        for _ in range(MOST_NARROWING):
            low, high = self._bracket()
            if high - low <= 1 or high > self._limit:
                return
            yield from self._probe((low + high) // 2)

    def prove_kept(self) -> Generator[StreamProbe, StreamReading, None]:
        """Find the most streams that pass: down from where the bounds look kept, then up to what did not pass."""
        streams, down, up = max(1, self._bracket()[0]), 1, 1
        while streams < self.broken and streams not in self._full and len(self._full) < MOST_FULL:
            yield from self._probe(streams, full=True)
            if (least := self.least) == 0:
                down = max(down, streams // COARSE)
                streams, down = max(1, streams - down), 2 * down
                continue
            tried = [tried for tried in self._full if tried > least]
            if tried and min(tried) - least <= least // COARSE:
                return
            farthest = (least + min(*tried, self.broken)) // 2 if tried else self.broken - 1
            streams, up = min(least + up, farthest), 2 * up

    def prove_broken(self) -> Generator[StreamProbe, StreamReading, None]:
        """Find the fewest streams that break a bound, above those that are neither proven to keep nor to break it."""
        step = 1
        while len(self._full) < MOST_FULL:
            undecided = max([self.least, *(streams for streams in self._full if streams < self.broken)])
            if self.broken - undecided <= max(1, undecided // COARSE):
                return
            step = max(step, undecided // COARSE)
            yield from self._probe(min(undecided + step, (undecided + self.broken) // 2), full=True)
            step *= 2

    def decide(self, longest: float) -> Generator[StreamProbe, StreamReading, None]:
        """Double the answers of what is open next to the boundary, the cheaper side first, until one level is left.

        Those sides are the most streams that look as if they kept the bounds, and the fewest that look broken.
        """
        while self.least < self.broken - 1:
            undecided = range(self.least + 1, self.broken)
            kept = [streams for streams in undecided if self._expected_share(streams) <= 1]
            sides = {*kept[-1:], *[streams for streams in undecided if streams not in kept][:1]}
            seconds_by_side = {
                streams: self._seconds_with(streams)
                for streams in sorted(sides)
                if self._times.get(streams, 0) < MOST_TIMES and self._seconds_with(streams) < longest
            }
            if not seconds_by_side:
                return
            streams = min(seconds_by_side, key=lambda side: seconds_by_side[side])
            yield from self._probe(streams, full=True, times=max(1, 2 * self._times.get(streams, 0)))

    def _probe(
        self, streams: int, *, full: bool = False, times: int = 1
    ) -> Generator[StreamProbe, StreamReading, None]:
        errors = {
            outcome: self._error * SHARE * (1 - SHARE) ** sum(each is not outcome for each in self._outcomes)
            for outcome in (Outcome.PASS, Outcome.FAIL)
        }
        broken = errors[Outcome.FAIL] / 2 if full else self._error / 2 / MOST_SHORT
        reading = yield StreamProbe(streams, full, errors[Outcome.PASS] if full else 0.0, broken, times)
        self._readings[streams] = reading
        if full:
            self._full[streams] = reading.outcome
            self._outcomes.append(reading.outcome)
            self._times[streams] = times

    def _expected_share(self, streams: int) -> float:
        """Return the share that was measured with so many streams, or a straight line through those around it shows."""
        shares = {level: reading.share for level, reading in self._readings.items() if reading.share is not None}
        levels = sorted(shares)
        return float(np.interp(streams, levels, [shares[level] for level in levels])) if levels else math.inf

    def _seconds_with(self, streams: int) -> float:
        """Return how long all probes take, with the next one of so many streams."""
        spent = sum(reading.seconds for reading in self._readings.values())
        nearest = min(self._times, key=lambda level: abs(level - streams), default=None)
        if nearest is None:
            return spent
        once = self._readings[nearest].seconds / self._times[nearest]
        return spent + once * max(1, self._times.get(streams, 0))

    def _bracket(self) -> tuple[int, int]:
        """Return the fewest streams whose bounds look broken, and the most below them whose bounds look kept."""
        high = min((streams for streams, reading in self._readings.items() if not reading.keeps), default=0)
        high = high or self._limit + 1
        return max((streams for streams in self._readings if streams < high), default=0), high

    def _beyond(self, streams: int) -> int:
        """Return the streams at which a straight line through the last two readings would reach its bound."""
        before = max((fewer for fewer in self._readings if fewer < streams), default=None)
        below, share = (self._readings[before].share if before else None), self._readings[streams].share
        if before is None or below is None or share is None or share <= below:
            return 0
        return streams + math.ceil((1 - share) / (share - below) * (streams - before))
