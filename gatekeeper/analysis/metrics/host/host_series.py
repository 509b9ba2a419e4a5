"""Series of one sampled host value: its readings by segment, and the share of the soak they cover."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gatekeeper.core.judgement import Estimate, Missing, fact
from gatekeeper.core.records import HostSample
from gatekeeper.core.records.host_columns import HostColumns, Slot
from gatekeeper.core.units import percent

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

COVERAGE = 0.95
"""Share of the expected samples below which nothing is concluded: what was not measured may have been bad."""
Spans = Mapping[int, tuple[int, int]]
"""Monotonic nanoseconds in which each segment of the soak began and ended."""
MINUTE = 60.0
"""Seconds of readings within which a sensor that works shows more than one value."""
MOST_WATTS = 5000.0
"""More than any computer on one plug draws: such a power is an error of the unit, or of the sensor."""
CHUNK = 4096
"""Windows whose medians are computed together, in a few megabytes."""
STRETCHES = 5
"""A soak whose arms cannot share a process has at most so many stretches, with a plain block before, between and after
them: a busy host changes from minute to minute, and what one block missed the others show."""


def host_segment(segment: int, stretch: int) -> int:
    """Return the number of an uninterrupted part; a plain block interrupts a soak as a restart does."""
    return STRETCHES * segment + stretch


def run_segment(host_segment: int) -> int:
    """Return the segment of the run that an uninterrupted part belongs to: in all of it one process serves."""
    return host_segment // STRETCHES


@dataclass(frozen=True, slots=True)
class Part:
    """The readings of one segment, at least one: columns of shape (n,)."""

    at: Floats
    """Seconds on the segment's clock."""
    values: Floats
    lasts: Floats
    """The seconds that each reading stands for."""
    number: int = 0
    """Which uninterrupted part it is (`host_segment`)."""

    def last(self, count: int) -> "Part":
        """Return the last *count* readings."""
        return Part(self.at[-count:], self.values[-count:], self.lasts[-count:], self.number)


@dataclass(frozen=True, slots=True)
class Series:
    """The readings of one source; readings of different segments are never compared."""

    name: str
    segments: tuple[Part, ...]
    count: int
    expected: int
    cause: str
    """Why readings are missing."""
    source: str

    @property
    def values(self) -> Floats:
        """Return the values of all segments, one after the other."""
        return np.concatenate([np.empty(0), *(part.values for part in self.segments)])

    @property
    def lasts(self) -> Floats:
        """Return the seconds that each of `values` stands for."""
        return np.concatenate([np.empty(0), *(part.lasts for part in self.segments)])

    def join_stretches(self) -> Part:
        """Return all readings under load of the process that was last, as if its stretches followed at once.

        While a plain block is sent it waits, so that this time would only make what grows seem to grow more slowly.
        """
        last = self.segments[-1]
        parts = [part for part in self.segments if run_segment(part.number) == run_segment(last.number)]
        begins = [parts[0].at[0]]
        for part in parts:
            begins.append(begins[-1] + part.at[-1] - part.at[0] + part.lasts[-1])
        at = np.concatenate([begin + part.at - part.at[0] for begin, part in zip(begins, parts, strict=False)])
        values, lasts = (np.concatenate(columns) for columns in zip(*((p.values, p.lasts) for p in parts), strict=True))
        return Part(at, values, lasts, last.number)

    def check_coverage(self) -> Missing | None:
        """Return why too little of the soak was measured; None where enough was."""
        if self.count and self.count >= COVERAGE * self.expected:
            return None
        share = f"{self.count} of {self.expected} expected samples, {percent(COVERAGE)} needed"
        return Missing(f"{self.name}: {share}{f'; {self.cause}' if self.cause else ''}", self.count)


@dataclass(frozen=True, slots=True)
class Readings:
    """The readings of one name, in the order of the samples."""

    numbers: Floats
    """NaN where a reading is missing, not ok or not a finite number."""
    slots: Sequence[Slot | None]
    """What each layout says of it."""
    layout: NDArray[np.int64]
    """The layout of each sample."""
    ages: Floats
    """The age in seconds of the reading that a sample holds; NaN where it is unknown."""

    def of_source(self, source: str) -> Floats:
        """Return the numbers, NaN where they come from another source."""
        from_it = np.array([slot is not None and slot.source == source for slot in self.slots], dtype=bool)
        return np.where(from_it[self.layout], self.numbers, np.nan) if len(from_it) else self.numbers

    def count_by_label(self, label: Callable[[Any], str], *, finite: bool) -> Counter[str]:
        """Count the samples with a finite number, or those without, by the *label* of their slot, first seen first."""
        chosen = self.layout[np.isfinite(self.numbers) == finite]
        layouts, first, sizes = np.unique(chosen, return_index=True, return_counts=True)
        counts: Counter[str] = Counter()
        for at in np.argsort(first):
            counts[label(self.slots[layouts[at]])] += int(sizes[at])
        return counts


def readings(columns: HostColumns, name: str) -> Readings:
    """Collect the readings of *name*."""
    layout, start = np.array(columns.layout, dtype=np.int64), np.array(columns.start, dtype=np.int64)
    every = np.frombuffer(columns.numbers, dtype=np.float64) if columns.numbers else np.empty(0)
    slots = [layout_slots.get(name) for layout_slots in columns.layouts]
    numbers, ages = np.full(len(layout), np.nan), np.full(len(layout), np.nan)
    for place, slot in enumerate(slots):
        if slot is not None and slot.number is not None and slot.status == "ok":
            in_layout = layout == place
            numbers[in_layout] = every[start[in_layout] + slot.number]
            if slot.age is not None:
                ages[in_layout] = every[start[in_layout] + slot.age]
    numbers[~np.isfinite(numbers)] = np.nan
    return Readings(numbers, slots, layout, ages)


def host_numbers(columns: HostColumns, name: str) -> list[float]:
    """Return the finite readings of *name* from every source."""
    numbers = readings(columns, name).numbers
    finite: list[float] = numbers[np.isfinite(numbers)].tolist()
    return finite


@dataclass(frozen=True, slots=True)
class HostSamples:
    """The host's samples of one time span, and what is needed to read them."""

    samples: Sequence[HostSample]
    interval: float
    """Seconds between two samples."""
    spans: Spans | None = None
    """When each segment began and ended, so that a sampler that died early leaves a gap; None: the samples' extent."""
    earlier: Sequence[HostSample] = ()
    """Samples of the same run, from before this time span."""
    outside: Sequence[HostSample] = ()
    """Samples of every segment of the same run, from outside this time span: their times are not comparable."""
    baseline_held: bool | None = None
    """Whether plain decoding kept its speed throughout; None if unknown."""
    fanless: bool = False
    """A Mac without a fan, whose thermal level 1 costs speed."""
    cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What was computed of the samples: several metrics and findings read the same series."""

    @property
    def columns(self) -> HostColumns:
        """Return the samples in columns."""
        if "columns" not in self.cache:
            self.cache["columns"] = HostColumns.of(self.samples)
        return self.cache["columns"]  # type: ignore[no-any-return]

    def segments(self) -> dict[int, Places]:
        """Return the places of each segment's samples, in the order they were taken."""
        if "segments" not in self.cache:
            segment = np.array(self.columns.segment, dtype=np.int64)
            order = np.lexsort((np.array(self.columns.at_ns, dtype=np.int64), segment))
            numbers, first = np.unique(segment[order], return_index=True)
            places = np.split(order, first[1:]) if len(order) else []
            self.cache["segments"] = dict(zip(numbers.tolist(), places, strict=True))
        return self.cache["segments"]  # type: ignore[no-any-return]

    def _moments(self, segment: int) -> tuple[Floats, Floats]:
        """Return the seconds of a segment's samples, and the seconds that each stands for; most series share them."""
        key = "moments", segment
        if key not in self.cache:
            at = np.array(self.columns.at_ns, dtype=np.int64)[self.segments()[segment]] / 1e9
            self.cache[key] = at, np.append(np.diff(at), self.interval)
        return self.cache[key]  # type: ignore[no-any-return]

    def new_readings(self, name: str, source: str) -> list[Floats]:
        """Return the readings of *source*, by segment, without those that grew older since the sample before.

        On a run's virtual clock many samples hold one reading.
        """
        every = readings(self.columns, name)
        numbers, parts = every.of_source(source), []
        for taken in self.segments().values():
            places = taken[np.isfinite(numbers[taken])]
            older = np.diff(every.ages[places], prepend=np.nan) > 0
            parts.append(numbers[places[~older]])
        return parts

    def numbers(self, name: str) -> list[float]:
        """Return the finite readings of *name* from every source."""
        return host_numbers(self.columns, name)

    def series(self, name: str) -> Series:
        """Collect the readings of *name* from the source with the most: two sources may measure different things."""
        key = name, self.spans is None
        if key not in self.cache:
            self.cache[key] = self._series(name)
        return self.cache[key]  # type: ignore[no-any-return]

    def _series(self, name: str) -> Series:
        all_readings = readings(self.columns, name)
        sources = all_readings.count_by_label(lambda slot: slot.source, finite=True)
        source = sources.most_common(1)[0][0] if sources else ""
        numbers = all_readings.of_source(source)
        at_ns = np.array(self.columns.at_ns, dtype=np.int64)
        due_ns = at_ns - np.array(self.columns.late_ns, dtype=np.int64)
        step = self.interval * 1e9
        groups = self.segments()
        segments: list[Part] = []
        covered = expected = 0
        for segment in sorted(groups.keys() | (self.spans or {}).keys()):
            taken = groups.get(segment, np.empty(0, dtype=np.intp))
            since_first = (due_ns[taken] - due_ns[taken[:1]]) / step
            span = self.spans.get(segment) if self.spans is not None else None
            if span is not None:
                due = math.floor((span[1] - span[0]) / step + 1e-6)
            else:
                due = round(float(since_first[-1])) + 1
            good = np.isfinite(numbers[taken])
            # A burst of readings after a gap fills one place, not the gap.
            places = len(np.unique(np.round(since_first[good])))
            expected += due
            covered += min(places, due)
            if good.any():
                moments = self._moments(segment)
                at, lasts = moments if good.all() else (column[good] for column in moments)
                segments.append(Part(at, numbers[taken][good], lasts, segment))
        return Series(name, tuple(segments), covered, expected, _cause(all_readings, sources), source)


def _cause(all_readings: Readings, sources: Counter[str]) -> str:
    statuses = all_readings.count_by_label(missing_status, finite=False)
    parts = [f"{status} in {count}" for status, count in statuses.most_common()]
    if len(sources) > 1:
        parts.append("the source changed: " + ", ".join(sorted(sources)))
    return ", ".join(parts)


def missing_status(slot: Slot | None) -> str:
    """Say why a reading is not a finite number."""
    return "not sampled" if slot is None else slot.status if slot.status != "ok" else "not a number"


def increase(counter: Series) -> Estimate | Missing:
    """Return how far a cumulative counter rose within the segments of the soak."""
    if missing := counter.check_coverage():
        return missing
    if fell := decrease(counter):
        return Missing(f"{counter.name} {fell}", counter.count)
    return fact(sum_changes(counter), counter.count)


def sum_changes(counter: Series) -> float:
    """Return the sum, over the segments, of the last minus the first reading."""
    return sum(float(part.values[-1] - part.values[0]) for part in counter.segments)


def decrease(counter: Series) -> str:
    """Describe where a cumulative counter fell within a segment; empty where it never did."""
    for part in counter.segments:
        fell = np.flatnonzero(np.diff(part.values) < 0)
        if len(fell):
            before, after = part.values[fell[0]], part.values[fell[0] + 1]
            return f"fell from {before:.0f} to {after:.0f}: a restart, or the counter overflowed"
    return ""


def stuck(values: Floats, interval: float) -> int:
    """Count the readings in minutes of which more than half are equal: a sensor that works does not repeat itself so.

    One other value now and then does not make a sensor work. Fewer than ten seconds of readings show nothing, and half
    a minute at the end belongs to the minute before.
    """
    size = max(2, round(MINUTE / interval))
    minutes = np.split(values, range(size, len(values) - size // 2 + 1, size))
    whole = [minute for minute in minutes if 6 * len(minute) >= size]
    return sum(len(minute) for minute in whole if 2 * np.unique(minute, return_counts=True)[1].max() > len(minute))


def longest(part: Part, *, at_least: float) -> float:
    """Return the longest continuous time at or above a value; missing readings do not end it."""
    best = 0.0
    begin: float | None = None
    reached_at = part.values >= at_least
    if not reached_at.any():
        return best
    for at, lasts, reached in zip(part.at.tolist(), part.lasts.tolist(), reached_at.tolist(), strict=True):
        if reached and begin is None:
            begin = at
        if begin is not None:
            best = max(best, at + (lasts if reached else 0.0) - begin)
        if not reached:
            begin = None
    return best


def medians(part: Part, window: float, *, least: int = 1) -> list[float]:
    """Return the median of each *window* seconds from every reading on; of a shorter series its one median."""
    beyond = part.at + window > part.at[-1] + part.lasts[-1] + 1e-6
    beyond[0] = False
    count = int(np.argmax(beyond)) if beyond.any() else len(beyond)
    first = np.arange(count)
    # A window never ends before one that began earlier, nor before itself.
    sizes = np.searchsorted(part.at, part.at[:count] + window - 1e-6, side="left") - first
    window_medians = np.full(count, np.nan)
    for size in np.unique(sizes[sizes >= max(1, least)]):
        of_size = first[sizes == size]
        windows = sliding_window_view(part.values, size)
        for chunk in np.split(of_size, range(CHUNK, len(of_size), CHUNK)):
            window_medians[chunk] = np.median(windows[chunk], axis=1)
    chosen: list[float] = window_medians[sizes >= max(1, least)].tolist()
    return chosen
