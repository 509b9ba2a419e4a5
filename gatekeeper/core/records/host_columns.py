"""Host samples in columns: those of a day take some twenty megabytes, and are read in a second."""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from sys import intern
from typing import Any, overload

from gatekeeper.core.records import HostSample, Reading

WHOLE = 6
MOST_FORMS = 16
"""Forms of lines that are remembered; a run has two or three, before and after the system under test has started."""
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_VARIABLE = re.compile(rb"(?<=:)" + _NUMBER + rb'(?=[,}])|(?<="at":")[^"]*(?=")|(?<="phase":")[^"]*(?=")')
"""What differs between lines of one form: the numbers, the time of day and the phase."""
_TEXT_GROUP = rb'([^"\\\x00-\x1f]*+)'
_NUMBER_GROUP = rb"(-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+)"
"""_NUMBER, which gives nothing back: what follows one cannot be part of it."""


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


class _Form:
    """How lines of one layout are written: texts that are always the same, and between them what differs."""

    def __init__(self, texts: Sequence[bytes], kinds: Sequence[bytes]) -> None:
        # It skips the texts, which comparing the whole line at once tells four times as fast.
        parts = (b".{%d}" % len(text) + kind for text, kind in zip(texts, kinds, strict=True))
        self._pattern = re.compile(b"".join(parts), re.DOTALL)
        self._parts = [part for text in texts for part in (text, b"")][:-1]

    def groups(self, line: bytes) -> tuple[bytes, ...] | None:
        """Return what differs in a *line* of this form, in its order; None for another line."""
        if (match := self._pattern.fullmatch(line)) is None:
            return None
        groups: tuple[bytes, ...] = match.groups()
        self._parts[1::2] = groups
        return groups if b"".join(self._parts) == line else None


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
        self.numbers = array("d")
        self._known: dict[tuple[Any, ...], int] = {}
        self._forms: list[tuple[_Form, int]] = []
        """Those of known layouts, the latest first."""

    @classmethod
    def of(cls, samples: Iterable[HostSample]) -> "HostColumns":
        """Return *samples* in columns; these themselves, where they are."""
        if isinstance(samples, HostColumns):
            return samples
        columns = cls()
        for sample in samples:
            columns.append(sample)
        return columns

    def append(self, sample: HostSample) -> None:
        """Append a sample; ValueError for numbers of more than 64 bits."""
        rows = [
            (reading.value, reading.unit, reading.source, reading.status, reading.age)
            for reading in sample.values.values()
        ]
        rows = [(float(row[0]) if type(row[0]) is int else row[0], *row[1:]) for row in rows]
        constants = [float if type(row[0]) is float else row[0] for row in rows]
        known_ages = [row[-1] is not None for row in rows]
        key = (*sample.values, *constants, *known_ages, *(text for row in rows for text in row[1:4]))
        layout = self._known.get(key)
        if layout is None:
            layout = self._known[key] = len(self.layouts)
            self.layouts.append(_layout(sample.values, rows))
        numbers = [number for row in rows for number in (row[0], row[-1]) if isinstance(number, float | int)]
        self._append(layout, numbers, *_moment(sample))

    def append_line(self, line: bytes) -> bool:
        """Append the sample of a JSON *line*, if it has a form that was learned; return whether it was appended."""
        for turn, (form, layout) in enumerate(self._forms):
            if (parts := form.groups(line)) is not None:
                if turn:
                    self._forms.insert(0, self._forms.pop(turn))
                try:
                    self._append(layout, map(float, parts[2:-4]), *_moment_in(parts))
                except (ValueError, OverflowError):
                    return False
                return True
        return False

    def learn_line(self, line: bytes) -> None:
        """Learn the form of the *line* from which the latest sample was read."""
        texts = _VARIABLE.split(line)
        kinds = [_TEXT_GROUP, *[_NUMBER_GROUP] * (len(texts) - 6), _TEXT_GROUP, *[_NUMBER_GROUP] * 3, b""]
        if len(texts) < 7 or len(self._forms) >= MOST_FORMS:
            return
        form = _Form(texts, kinds)
        # A line that is written in another order, or holds more, is not what the form would take it for.
        if (parts := form.groups(line)) is None or _moment_in(parts) != _moment(self[-1]):
            return
        layout, start = self._whole[-2:]
        if array("d", map(float, parts[2:-4])) == self.numbers[start:]:
            self._forms.insert(0, (form, layout))

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
        return columns

    def readings(self, name: str) -> Iterator[Reading | None]:
        """Yield the reading of *name* of each sample; None for a sample without it."""
        slots = [layout.get(name) for layout in self.layouts]
        for place, start in zip(self.layout, self.start, strict=True):
            slot = slots[place]
            yield None if slot is None else self._reading(slot, start)

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


def _moment(sample: HostSample) -> tuple[str, str, int, int, int, int]:
    return sample.at, sample.phase, sample.at_ns, sample.segment, sample.took_ns, sample.late_ns


def _moment_in(parts: Sequence[bytes]) -> tuple[str, str, int, int, int, int]:
    """Return the moment in the groups of a form: they begin with `at` and `at_ns`, and end with the other fields."""
    at, at_ns, *_, phase, segment, took_ns, late_ns = parts
    return at.decode(), phase.decode(), int(at_ns), int(segment), int(took_ns), int(late_ns)


def _layout(names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> Layout:
    """Give each reading its places: one for a value that is a number, then one for an age that is known."""
    slots, place = {}, 0
    for name, (value, unit, source, status, age) in zip(names, rows, strict=True):
        number = place if type(value) is float else None
        place += number is not None
        slots[name] = Slot(
            unit, source, status, value if number is None else None, number, place if age is not None else None
        )
        place += age is not None
    return slots
