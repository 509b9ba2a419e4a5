"""Series of one sampled host value: its readings by segment, and the share of the soak they cover."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from gatekeeper.core.records import HostSample, Reading
from gatekeeper.core.units import percent
from gatekeeper.core.verdict import Estimate, Missing, fact

COVERAGE = 0.95
"""Share of the expected samples below which nothing is concluded: what was not measured may have been bad."""

Spans = Mapping[int, tuple[int, int]]
"""Monotonic nanoseconds in which each segment of the soak began and ended."""


@dataclass(frozen=True, slots=True)
class Point:
    """One reading: seconds on the segment's clock, the value, and the seconds it stands for."""

    at: float
    value: float
    lasts: float


@dataclass(frozen=True, slots=True)
class Series:
    """The readings of one source; readings of different segments are never compared."""

    name: str
    segments: tuple[tuple[Point, ...], ...]
    seen: int
    expected: int
    why: str
    """Why readings are missing."""
    source: str

    @property
    def points(self) -> list[Point]:
        """Return all readings, segment after segment."""
        return [point for segment in self.segments for point in segment]

    def uncovered(self) -> Missing | None:
        """Return why too little of the soak was measured; None where enough was."""
        if self.seen and self.seen >= COVERAGE * self.expected:
            return None
        share = f"{self.seen} of {self.expected} expected samples, {percent(COVERAGE)} needed"
        return Missing(f"{self.name}: {share}{f'; {self.why}' if self.why else ''}", self.seen)


def finite(reading: Reading | None) -> float | None:
    """Return the reading's number if it is one and its status is ok."""
    if reading is None or reading.status != "ok" or isinstance(reading.value, bool | str) or reading.value is None:
        return None
    return float(reading.value) if math.isfinite(reading.value) else None


def by_segment(samples: Sequence[HostSample]) -> dict[int, list[HostSample]]:
    """Return the samples of each segment in the order they were taken."""
    found: dict[int, list[HostSample]] = {}
    for sample in sorted(samples, key=lambda one: (one.segment, one.at_ns)):
        found.setdefault(sample.segment, []).append(sample)
    return found


@dataclass(frozen=True, slots=True)
class HostSamples:
    """The host's samples of one time span, and what is needed to read them."""

    samples: Sequence[HostSample]
    interval: float
    """Seconds between two samples."""
    spans: Spans | None = None
    """When each segment began and ended, so that a sampler that died early leaves a gap; None: the samples' extent."""
    earlier: Sequence[HostSample] = ()
    """Of the same run, from before this time span."""
    baseline_held: bool | None = None
    """Whether plain decoding kept its speed throughout; None if unknown."""

    def numbers(self, name: str) -> list[float]:
        """Return the finite readings of *name* from every source."""
        return [value for sample in self.samples if (value := finite(sample.values.get(name))) is not None]

    def series(self, name: str) -> Series:
        """Collect the readings of *name* from the source with the most: two sources may measure different things."""
        readings = [sample.values.get(name) for sample in self.samples]
        sources = Counter(one.source for one in readings if one is not None and finite(one) is not None)
        source = sources.most_common(1)[0][0] if sources else ""
        step = self.interval * 1e9
        groups = by_segment(self.samples)
        segments: list[tuple[Point, ...]] = []
        seen = expected = 0
        for segment in sorted(groups.keys() | (self.spans or {}).keys()):
            taken = groups.get(segment, [])
            dues = [sample.at_ns - sample.late_ns for sample in taken]
            span = self.spans.get(segment) if self.spans is not None else None
            if span is not None:
                due = math.floor((span[1] - span[0]) / step + 1e-6)
            else:
                due = round((dues[-1] - dues[0]) / step) + 1
            good = [(sample, value) for sample in taken if (value := _value(sample, name, source)) is not None]
            # A burst of readings after a gap fills one place, not the gap.
            places = {round((sample.at_ns - sample.late_ns - dues[0]) / step) for sample, _ in good}
            expected += due
            seen += min(len(places), due)
            if good:
                segments.append(_points(good, taken, self.interval))
        return Series(name, tuple(segments), seen, expected, _why(readings, sources), source)


def _value(sample: HostSample, name: str, source: str) -> float | None:
    reading = sample.values.get(name)
    return finite(reading) if reading is not None and reading.source == source else None


def _points(
    good: Sequence[tuple[HostSample, float]], taken: Sequence[HostSample], interval: float
) -> tuple[Point, ...]:
    lasts = {taken[-1].at_ns: interval}
    lasts |= {before.at_ns: after.at_ns / 1e9 - before.at_ns / 1e9 for before, after in pairwise(taken)}
    return tuple(Point(sample.at_ns / 1e9, value, lasts[sample.at_ns]) for sample, value in good)


def _why(readings: Sequence[Reading | None], sources: Counter[str]) -> str:
    statuses = Counter(
        "not sampled" if reading is None else reading.status if reading.status != "ok" else "not a number"
        for reading in readings
        if reading is None or finite(reading) is None
    )
    parts = [f"{status} in {count}" for status, count in statuses.most_common()]
    if len(sources) > 1:
        parts.append("the source changed: " + ", ".join(sorted(sources)))
    return ", ".join(parts)


def increase(counter: Series) -> Estimate | Missing:
    """Return how far a cumulative counter rose within the segments of the soak."""
    if missing := counter.uncovered():
        return missing
    if fell := decrease(counter):
        return Missing(f"{counter.name} {fell}", counter.seen)
    return fact(moved(counter), counter.seen)


def moved(counter: Series) -> float:
    """Return the sum, over the segments, of the last minus the first reading."""
    return sum(part[-1].value - part[0].value for part in counter.segments)


def decrease(counter: Series) -> str:
    """Describe where a cumulative counter fell within a segment; empty where it never did."""
    for part in counter.segments:
        for before, after in pairwise(part):
            if after.value < before.value:
                return f"fell from {before.value:.0f} to {after.value:.0f}: a restart, or the counter overflowed"
    return ""


def longest(points: Sequence[Point], *, at_least: float) -> float:
    """Return the longest continuous time at or above a value; missing readings do not end it."""
    best = 0.0
    begin: float | None = None
    for point in points:
        reached = point.value >= at_least
        if reached and begin is None:
            begin = point.at
        if begin is not None:
            best = max(best, point.at + (point.lasts if reached else 0.0) - begin)
        if not reached:
            begin = None
    return best


def medians(points: Sequence[Point], window: float, *, least: int = 1) -> list[float]:
    """Return the median of each *window* seconds from every reading on; of a shorter series its one median."""
    if not points:
        return []
    end = points[-1].at + points[-1].lasts
    found, last = [], 0
    for first, point in enumerate(points):
        if first and point.at + window > end + 1e-6:
            break
        while last < len(points) and points[last].at < point.at + window - 1e-6:
            last += 1
        if last - first >= least:
            found.append(median([one.value for one in points[first:last]]))
    return found
