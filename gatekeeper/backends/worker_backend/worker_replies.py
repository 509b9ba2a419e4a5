"""The lines of a worker that read tokens again, checked: a line that is invalid or contradicts itself shows nothing."""

import math
from collections.abc import Mapping
from typing import Any

from gatekeeper.core.interfaces import ForcedPass, ReplayedRounds, TwoWidths
from gatekeeper.core.parse import COUNTS
from gatekeeper.core.records import Parting


def gap_from(message: Mapping[str, Any]) -> float | None:
    """Return the gap on a worker's line; None where it is missing or invalid."""
    gap = _number(message.get("gap"))
    return gap if gap is not None and gap >= 0 else None


def forced_from(message: Mapping[str, Any], tokens: tuple[int, ...]) -> ForcedPass | None:
    """Return what a forced pass over *tokens* showed; None where the line is invalid or contradicts itself."""
    parted, ended = _partings(message.get("parted"), tokens), message.get("ended")
    return ForcedPass(parted, ended) if parted is not None and type(ended) is bool else None


def replayed_from(message: Mapping[str, Any], tokens: tuple[int, ...], *, greedy: bool) -> ReplayedRounds | None:
    """Return what reading *tokens* round by round showed; None where the line is invalid or contradicts itself."""
    parted, nll = _partings(message.get("parted"), tokens), _number(message.get("nll"))
    steady, scores = message.get("steady"), message.get("scores") or []
    if parted is None or nll is None or (steady is not None and type(steady) is not bool):
        return None
    if greedy:
        return ReplayedRounds(parted, steady, nll)
    if not isinstance(scores, list) or len(scores) != len(tokens):
        return None
    rows = [_score(row) for row in scores]
    complete = tuple(row for row in rows if row is not None)
    return ReplayedRounds(parted, steady, nll, complete) if len(complete) == len(rows) else None


def widths_from(message: Mapping[str, Any], tokens: tuple[int, ...]) -> TwoWidths | None:
    """Return what reading *tokens* at two widths showed; None where the line is invalid or contradicts itself."""
    nll, unit = _number(message.get("nll")), _number(message.get("unit"))
    columns = [message.get(key) for key in ("gaps", "wide_gaps")]
    if nll is None or unit is None or unit < 0:
        return None
    if not all(isinstance(column, list) and len(column) == len(tokens) for column in columns):
        return None
    gaps, wide_gaps = ([_number(value) for value in column or ()] for column in columns)
    leads = tuple(gap for gap in gaps if gap is not None and gap >= 0)
    unread = sum(gap is None for gap in wide_gaps)
    if len(leads) < len(tokens) or unread > (columns[1] or []).count(None):
        return None
    return TwoWidths(leads, tuple(wide_gaps), unit, nll)


def _partings(value: object, tokens: tuple[int, ...]) -> tuple[Parting, ...] | None:
    """Return where the target parts from *tokens*, in order; None where that is invalid."""
    if not isinstance(value, list):
        return None
    partings = []
    for place in value:
        if not isinstance(place, list) or len(place) != 3:
            return None
        position, token, gap = place
        if not all(type(number) is int and number in COUNTS for number in (position, token)) or position >= len(tokens):
            return None
        if token == tokens[position]:
            return None
        partings.append(Parting(position, token, gap_from({"gap": gap})))
    if len({parting.position for parting in partings}) < len(partings):
        return None
    return tuple(sorted(partings))


def _score(row: object) -> tuple[float, ...] | None:
    """Return a row of scores: four logarithms, the first minus infinity for a token that cannot be sampled."""
    if not isinstance(row, list) or len(row) != 4:
        return None
    first, *rest = (_number(value) for value in row)
    if None in rest or (first is None and row[0] is not None):
        return None
    return (-math.inf if first is None else first, *(value for value in rest if value is not None))


def _number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) else None
