"""Host samples as lines of a record file: one in full each minute, between them only what differs from such a line.

A full line has some three thousand characters, a short one a tenth of it; a day has 86,400.
"""

import json
from collections.abc import Callable, Hashable
from math import isfinite

from pydantic_core import from_json

from gatekeeper.core.records import HostSample
from gatekeeper.core.records.host_columns import HostColumns, shape

FULL_EVERY = 60
"""Samples of one layout from a full line to the next: damage to a full line costs those, and no others."""


_compact = json.JSONEncoder(separators=(",", ":")).encode


class ShortLines:
    """Writes a short line for each sample that a full line of the same writer has the layout of."""

    def __init__(self) -> None:
        self._full: dict[Hashable, tuple[int, int]] = {}
        """By what the samples of a layout share: the `at_ns` of its last full line, and how many may refer to it."""

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


MOMENT = ("at", "phase", "at_ns", "segment", "took_ns", "late_ns")
"""The fields of a sample that a short line has, too."""


class LineReader:
    """Reads lines of both kinds into columns, full ones by *read_full*."""

    def __init__(self, columns: HostColumns, read_full: Callable[[bytes], HostSample]) -> None:
        self._columns, self._read_full = columns, read_full
        self._layouts: dict[int, int] = {}
        """By the `at_ns` of full lines."""

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
