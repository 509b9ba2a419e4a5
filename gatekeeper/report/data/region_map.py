"""The map of a certified region: for each pair of axes, which values are inside, outside and open."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from gatekeeper.analysis.verdict.certified_region import CertifiedRegion, RegionAxis
from gatekeeper.analysis.verdict.policy.region_bounds import route_region
from gatekeeper.core.text import condition_value

MARKS = {"certified": "=", "inside": "+", "outside": "x", "open": "?"}


@dataclass(frozen=True, slots=True)
class RegionGrid:
    """What is known where two axes differ, or one, and all others are as certified."""

    across: str
    columns: tuple[float, ...]
    down: str | None
    """None: there is one axis alone, in one row."""
    rows: tuple[float, ...]
    cells: tuple[tuple[str, ...], ...]
    """certified | inside | outside | open, by row and column."""


def grids(region: CertifiedRegion) -> list[RegionGrid]:
    """Return a grid for each pair of axes; of a single axis its row."""
    if len(region.axes) == 1:
        (axis,) = region.axes
        columns = _values(axis)
        cells = tuple(_cell(region, {axis.name: value}) for value in columns)
        return [RegionGrid(axis.name, columns, None, (0.0,), (cells,))]
    region_grids = []
    for down, across in combinations(region.axes, 2):
        columns, rows = _values(across), _values(down)
        table = tuple(tuple(_cell(region, {down.name: row, across.name: column}) for column in columns) for row in rows)
        region_grids.append(RegionGrid(across.name, columns, down.name, rows, table))
    return region_grids


def _values(axis: RegionAxis) -> tuple[float, ...]:
    """Return the certified value of an axis and those around it; what a limit covers anyway is left out."""
    neighbours = [axis_value.value for axis_value in axis.values if axis_value.outcome != "certified"]
    return tuple(sorted({axis.certified, *neighbours}))


def _cell(region: CertifiedRegion, point: Mapping[str, float]) -> str:
    axes = {axis.name: axis for axis in region.axes}
    differing = {name: value for name, value in point.items() if value != axes[name].certified}
    words = {name: axes[name].word(value) for name, value in differing.items()}
    if not differing:
        return "certified"
    if len(differing) == 1:
        return next(iter(words.values()))
    measured = next((probe.word for probe in region.points if dict(probe.point) == differing), None)
    if measured is not None:
        return measured
    values = {name: axis.certified for name, axis in axes.items()}
    # A context is bounded by the tokens that were counted, which are fewer than the value names.
    values |= {
        name: min(value, axes[name].limits["at_most"]) if words[name] == "inside" else value
        for name, value in differing.items()
    }
    return "inside" if route_region(region).beyond(values) is None else "open"


def conditions(region: CertifiedRegion) -> list[str]:
    """Return the conditions in words: `temperature <= 0.7` for each axis alone, then for all of them together."""
    alone = [_range(axis, "") for axis in region.axes]
    if len(region.axes) < 2:
        return alone
    if not all("together_at_most" in axis.limits for axis in region.axes):
        return [*alone, "each of them alone: two or more together are not proven"]
    return [*alone, f"together: {', '.join(_range(axis, 'together_') for axis in region.axes)}"]


def _range(axis: RegionAxis, which: str) -> str:
    low, high = axis.limits.get(f"{which}at_least"), axis.limits[f"{which}at_most"]
    lower = f"{condition_value(low)} <= " if low else ""
    return f"{lower}{axis.name} <= {condition_value(high)}"
