"""Host samples in columns, and as lines of a record file.

In columns, those of a day take some twenty megabytes, and are read in a second. Of the lines one is written in full
each minute, between them only what differs from such a line: a full line has some three thousand characters, a short
one a tenth of it; a day has 86,400.
"""

import json
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from math import isfinite
from sys import intern
from typing import Any, TypeGuard, overload

from pydantic_core import from_json

from gatekeeper.core.records import HostSample, Reading

WHOLE = 6
FULL_EVERY = 60
"""Samples of one layout from a full line to the next: damage to a full line costs those, and no others."""
MOMENT = ("at", "phase", "at_ns", "segment", "took_ns", "late_ns")
"""The fields of a sample that a short line has, too."""
_compact = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Slot:
    """One reading of a layout; `number` and `age` are places among the numbers of a sample, None where it has none."""

    unit: str
    source: str
    status: str
    constant: Any
    """Its value where that is not a number."""
    number: int | None
    age: int | None


Layout = Mapping[str, Slot]
"""Everything of a sample but its moment and its numbers, by the names of its readings."""


class HostColumns(Sequence[HostSample]):
    """Host samples as numbers, and as the few layouts that tell what these are. A sample is made when it is read.

    Entries of one place in the columns are of one sample. Nothing is lost; whole numbers become floats.
    """

    def __init__(self) -> None:
        self.at: list[str] = []
        self.phase: list[str] = []
        self._whole = array("q")
        """WHOLE numbers a sample: four of its moment, and the places of its layout and of its first number."""
        self.layouts: list[Layout] = []
        self._sizes: list[int] = []
        """How many numbers the samples of each layout have."""
        self.numbers = array("d")
        self._known: dict[tuple[Hashable, ...], int] = {}

    @classmethod
    def of(cls, samples: Iterable[HostSample]) -> "HostColumns":
        """Return *samples* in columns; these themselves, where they are."""
        if isinstance(samples, HostColumns):
            return samples
        columns = cls()
        for sample in samples:
            columns.append(sample)
        return columns

    def append(self, sample: HostSample) -> int:
        """Append a sample, return the place of its layout; ValueError for numbers of more than 64 bits."""
        key, numbers = shape(sample)
        layout = self._known.get(key)
        if layout is None:
            layout = self._known[key] = len(self.layouts)
            self.layouts.append(_layout(sample.values))
            self._sizes.append(len(numbers))
        self._append(
            layout, numbers, sample.at, sample.phase, sample.at_ns, sample.segment, sample.took_ns, sample.late_ns
        )
        return layout

    def append_numbers(self, layout: int, numbers: Sequence[float], at: str, phase: str, *moment: int) -> None:
        """Append a sample of a known *layout*; *moment*: `at_ns`, `segment`, `took_ns`, `late_ns`.

        Raise ValueError where something is of another type or too large, or the layout has more or fewer numbers.
        """
        counted = len(numbers) == self._sizes[layout] and all(map(isfinite, numbers))
        if not isinstance(at, str) or not isinstance(phase, str) or not counted:
            raise ValueError(f"not a sample with {self._sizes[layout]} numbers")
        self._append(layout, numbers, at, phase, *moment)

    def _append(self, layout: int, numbers: Iterable[float], at: str, phase: str, *moment: int) -> None:
        try:
            integers = array("q", (*moment, layout, len(self.numbers)))
            floats = array("d", numbers)
        except (OverflowError, TypeError) as error:
            raise ValueError(f"not a sample: {error}") from error
        self.at.append(at)
        self.phase.append(intern(phase))
        self._whole += integers
        self.numbers += floats

    @property
    def at_ns(self) -> "array[int]":
        """Return when each sample was taken, in monotonic nanoseconds."""
        return self._whole[0::WHOLE]

    @property
    def segment(self) -> "array[int]":
        """Return the segment of each sample."""
        return self._whole[1::WHOLE]

    @property
    def late_ns(self) -> "array[int]":
        """Return how long after its deadline each sample was taken."""
        return self._whole[3::WHOLE]

    @property
    def layout(self) -> "array[int]":
        """Return the place of each sample's layout in `layouts`."""
        return self._whole[4::WHOLE]

    @property
    def start(self) -> "array[int]":
        """Return the place of each sample's first number in `numbers`."""
        return self._whole[5::WHOLE]

    def select(self, keep: Sequence[object]) -> "HostColumns":
        """Return the samples whose place in *keep* is true."""
        columns = HostColumns()
        columns.at, columns.phase = list(compress(self.at, keep)), list(compress(self.phase, keep))
        chosen = (self._whole[at * WHOLE : (at + 1) * WHOLE] for at in compress(range(len(self)), keep))
        for integers in chosen:
            columns._whole += integers
        columns.layouts, columns.numbers, columns._known = self.layouts, self.numbers, self._known
        columns._sizes = self._sizes
        return columns

    def _reading(self, slot: Slot, start: int) -> Reading:
        value = slot.constant if slot.number is None else self.numbers[start + slot.number]
        age = None if slot.age is None else self.numbers[start + slot.age]
        return Reading(value, slot.unit, slot.source, slot.status, age)

    def __len__(self) -> int:
        return len(self.at)

    @overload
    def __getitem__(self, at: int) -> HostSample: ...
    @overload
    def __getitem__(self, at: slice) -> "HostColumns": ...
    def __getitem__(self, at: int | slice) -> "HostSample | HostColumns":
        if isinstance(at, slice):
            places = range(*at.indices(len(self)))
            return self.select([place in places for place in range(len(self))])
        place = range(len(self))[at] * WHOLE
        at_ns, segment, took_ns, late_ns, layout, start = self._whole[place : place + WHOLE]
        values = {name: self._reading(slot, start) for name, slot in self.layouts[layout].items()}
        return HostSample(
            self.at[at], at_ns, values=values, phase=self.phase[at], segment=segment, took_ns=took_ns, late_ns=late_ns
        )


def shape(sample: HostSample) -> tuple[tuple[Hashable, ...], list[float]]:
    """Return what samples of one layout share, and the numbers in which they differ: values, then known ages."""
    key: list[Hashable] = [*sample.values]
    numbers: list[float] = []
    for reading in sample.values.values():
        value, age = reading.value, reading.age
        constant: object = value
        if value is not None and is_number(value):
            constant = float
            numbers.append(float(value))
        if age is not None and is_number(age):
            numbers.append(float(age))
        key += (reading.unit, reading.source, reading.status, constant, age is not None)
    return tuple(key), numbers


def is_number(value: object) -> TypeGuard[float]:
    """Return whether *value* is a number, as True and False are not."""
    return isinstance(value, float | int) and not isinstance(value, bool)


def _layout(values: Mapping[str, Reading]) -> Layout:
    """Give each reading its places: one for a value that is a number, then one for an age that is known."""
    slots, place = {}, 0
    for name, reading in values.items():
        number = place if is_number(reading.value) else None
        place += number is not None
        age = place if reading.age is not None else None
        place += age is not None
        constant = reading.value if number is None else None
        slots[name] = Slot(reading.unit, reading.source, reading.status, constant, number, age)
    return slots


class ShortLines:
    """Writes a short line for each sample that a full line of the same writer has the layout of."""

    def __init__(self) -> None:
        self._full: dict[Hashable, tuple[int, int]] = {}
        """The `at_ns` of the last full line, and how many may refer to it, by what the samples of a layout share."""

    def line(self, sample: HostSample) -> bytes | None:
        """Return the short line of *sample*; None where it must be written in full."""
        key, numbers = shape(sample)
        like, left = self._full.get(key, (0, 0))
        if not all(map(isfinite, numbers)):
            return None
        if not left:
            # A name for one full line only.
            self._full = {other: line for other, line in self._full.items() if line[0] != sample.at_ns}
            self._full[key] = (sample.at_ns, FULL_EVERY - 1)
            return None
        self._full[key] = (like, left - 1)
        document = {"like": like, "numbers": numbers} | {name: getattr(sample, name) for name in MOMENT}
        return _compact(document).encode()


class LineReader:
    """Reads lines of both kinds into columns, full ones by *read_full*."""

    def __init__(self, columns: HostColumns, read_full: Callable[[bytes], HostSample]) -> None:
        self._columns, self._read_full = columns, read_full
        self._layouts: dict[int, int] = {}
        """The layouts by the `at_ns` of their full lines."""

    def __call__(self, line: bytes) -> None:
        """Append the sample of *line*; raise ValueError for a damaged one, or one whose full line is missing."""
        if not line.startswith(b'{"like":'):
            sample = self._read_full(line)
            self._layouts[sample.at_ns] = self._columns.append(sample)
            return
        # Not by `json_object`, which takes twice the time to find the large numbers that columns refuse anyway.
        document = from_json(line, allow_inf_nan=False)
        try:
            layout, numbers = self._layouts[document["like"]], document["numbers"]
            self._columns.append_numbers(layout, numbers, *map(document.__getitem__, MOMENT))
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not a host sample: {error}") from error
