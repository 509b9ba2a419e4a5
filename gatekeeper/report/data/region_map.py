"""The map of a certified region: for each pair of axes, which values are inside, outside and open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from gatekeeper.core.policy import AxisBounds, RouteRegion

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


def bounds_of(region: Mapping[str, Any]) -> RouteRegion:
    """Return the conditions of a region of verdict.json, as the policy has them."""
    bounds = {
        axis["axis"]: {key: axis[key] for key in AxisBounds.model_fields if key in axis} for axis in region["axes"]
    }
    return RouteRegion.model_validate(bounds)


def grids(region: Mapping[str, Any]) -> list[RegionGrid]:
    """Return a grid for each pair of axes; of a single axis its row."""
    axes = region["axes"]
    if len(axes) == 1:
        (axis,) = axes
        columns = _values(axis)
        return [
            RegionGrid(
                axis["axis"], columns, None, (0.0,), (tuple(_cell(region, {axis["axis"]: at}) for at in columns),)
            )
        ]
    region_grids = []
    for down, across in combinations(axes, 2):
        columns, rows = _values(across), _values(down)
        cells = tuple(
            tuple(_cell(region, {down["axis"]: row, across["axis"]: column}) for column in columns) for row in rows
        )
        region_grids.append(RegionGrid(across["axis"], columns, down["axis"], rows, cells))
    return region_grids


def _values(axis: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the certified value of an axis and those around it; what a limit covers anyway is left out."""
    neighbours = [point["value"] for point in axis["values"] if point["outcome"] != "certified"]
    return tuple(sorted({axis["certified"], *neighbours}))


def _cell(region: Mapping[str, Any], at: Mapping[str, float]) -> str:
    axes: dict[str, Any] = {axis["axis"]: axis for axis in region["axes"]}
    differing = {axis: value for axis, value in at.items() if value != axes[axis]["certified"]}
    words = {
        axis: next(point["outcome"] for point in axes[axis]["values"] if point["value"] == value)
        for axis, value in differing.items()
    }
    if not differing:
        return "certified"
    if len(differing) == 1:
        return str(next(iter(words.values())))
    measured = next((point["outcome"] for point in region["points"] if point["point"] == differing), None)
    if measured is not None:
        return str(measured)
    values = {name: axis["certified"] for name, axis in axes.items()}
    # A context is bounded by the tokens that were counted, which are fewer than the value names.
    values |= {
        axis: min(value, axes[axis]["at_most"]) if words[axis] == "inside" else value
        for axis, value in differing.items()
    }
    return "inside" if bounds_of(region).beyond(values) is None else "open"


def conditions(region: Mapping[str, Any]) -> list[str]:
    """Return the conditions in words: `temperature <= 0.7` for each axis alone, then for all of them together."""
    axes: Sequence[Mapping[str, Any]] = region["axes"]
    alone = [_range(axis, "") for axis in axes]
    if len(axes) < 2:
        return alone
    if not all("together_at_most" in axis for axis in axes):
        return [*alone, "one axis at a time: no corner of several is proven"]
    return [*alone, f"together: {', '.join(_range(axis, 'together_') for axis in axes)}"]


def _range(axis: Mapping[str, Any], which: str) -> str:
    low, high = axis.get(f"{which}at_least"), axis[f"{which}at_most"]
    lower = f"{low:g} <= " if low else ""
    return f"{lower}{axis['axis']} <= {high:g}"
