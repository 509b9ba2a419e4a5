"""The points of a certified region: where the axes lead from the certified one, and the requests of each point."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of, sampling_for
from gatekeeper.analysis.plan.shuffled_rounds import shuffled
from gatekeeper.analysis.plan.sweep_plan import Unit, halves
from gatekeeper.analysis.stats import sequential
from gatekeeper.core.canary import Canary
from gatekeeper.core.canary.filler import with_context
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import Slo

REGION = "region.jsonl"
"""The record file of the answers at all points of all workloads."""
REGION_TIES = "region-ties.jsonl"
"""That of the near-ties of greedy answers at these points."""
BOX_TRIES = 3
"""Boxes that are tried, each smaller than the one before; the error of the box is split over them."""
WARMUPS = 1
"""Unmeasured answers of each arm where a point begins, or begins again."""

Point = tuple[tuple[str, float], ...]
"""What differs from the certified point: sorted (axis, value) pairs."""


@dataclass(frozen=True, slots=True)
class Direction:
    """One way along an axis, away from the certified value."""

    axis: str
    values: tuple[float, ...]
    """The nearest first."""
    monotone: bool

    @property
    def most_probes(self) -> int:
        """Return how many points along it one exploration can visit: a bisection's steps, or each value."""
        return math.ceil(math.log2(len(self.values) + 1)) if self.monotone else len(self.values)


@dataclass(frozen=True, slots=True)
class PointPlan:
    """Everything that is sent at one point."""

    workload: str
    point: Point
    knobs: Setting
    """Of the speculating arm."""
    slo: Slo
    """As it reads at this point: its temperature, its limit of tokens, its concurrency."""
    canaries: Mapping[str, Canary]
    """By id, lengthened where the point says so."""
    looks: tuple[int, ...]
    """Answers per arm after each look."""
    units: tuple[Unit, ...] = field(repr=False)
    interleaved: bool
    """Both arms answer a canary right after one another; else they take turns in ABBA blocks."""

    @property
    def name(self) -> str:
        """Return its name, as the trial of its records."""
        return point_name(self.point)

    @property
    def phase(self) -> str:
        """Name its host samples."""
        return f"region-{self.workload}-{self.name}"

    @property
    def streams(self) -> int:
        """Return how many requests are in flight at once."""
        return self.slo.soak.concurrency

    @property
    def plain(self) -> Setting:
        """Return plain decoding at this point."""
        return plain_of(self.knobs)

    def blocks(self, look: int, seed: int) -> list[list[PlannedRequest]]:
        """Return the requests between two looks, in blocks that one process answers; *look* counts from 0."""
        part = self.units[self.looks[look - 1] if look else 0 : self.looks[look]]
        shuffle = random.Random(f"{seed}/{self.phase}/{look}")
        if self.interleaved:
            return [[self._request(arm, unit) for unit in part for arm in shuffled(("plain", "candidate"), shuffle)]]
        first, second = halves(self.units, part)
        sides = (("plain", first), ("candidate", first), ("candidate", second), ("plain", second))
        return [[self._request(arm, unit) for unit in half] for arm, half in sides if half]

    def _request(self, arm: str, unit: Unit) -> PlannedRequest:
        pair = f"{self.name}.{unit.repeat}"  # it names the point
        return PlannedRequest(
            self.workload,
            unit.canary,
            arm,
            self.knobs if arm == "candidate" else self.plain,
            trial=self.name,
            prefix=f"{arm}:{pair}",
            pair=pair,
            concurrency=self.streams,
        )


def point_name(point: Point) -> str:
    """Return the name of a point: `context-8192_temperature-0.7`."""
    return "_".join(f"{axis}-{value:g}" for axis, value in point)


def certified_point(
    slo: Slo, knobs: Setting, canaries: Sequence[Canary], longest_prompt: int | None
) -> dict[str, float]:
    """Return where the soak was on each axis of the region, for one workload at its setting.

    Where the tokens of a prompt are not counted, no context is certified: one token stands for none.
    """
    limits = [sampling_for(slo, canary, knobs, slo.soak.concurrency) for canary in canaries]
    certified: dict[str, float] = {
        "temperature": limits[0].temperature,
        "context": longest_prompt or 1,
        "concurrency": slo.soak.concurrency,
        "max_tokens": max(limit.max_tokens for limit in limits),
    }
    return {axis: certified[axis] for axis in slo.region.axes}


def directions(slo: Slo, certified: Mapping[str, float]) -> tuple[Direction, ...]:
    """Return the ways away from the certified point; a limit has none to lower values, which it covers."""
    ways = []
    for axis in slo.region.axes:
        values, certified_value, declared = slo.region.values(axis), certified[axis], axis in slo.region.monotone
        above = tuple(value for value in values if value > certified_value)
        below = tuple(reversed([value for value in values if value < certified_value])) if axis == "temperature" else ()
        ways += [Direction(axis, side, declared) for side in (above, below) if side]
    return tuple(ways)


def box_corners(extents: Mapping[Direction, int]) -> list[Point]:
    """Return the points that prove a box with these extents: each combination of extremes with two axes or more.

    On an axis declared monotone its extreme alone counts, as nothing nearer is worse; on another one the certified
    value takes part as well, so that every side of the box is measured.
    """
    axes = dict.fromkeys(direction.axis for direction, extent in extents.items() if extent)
    options: list[list[float | None]] = []
    for axis in axes:
        axis_extents = {direction: extent for direction, extent in extents.items() if direction.axis == axis and extent}
        extremes: list[float | None] = [direction.values[extent - 1] for direction, extent in axis_extents.items()]
        options.append(extremes if all(direction.monotone for direction in axis_extents) else [None, *extremes])
    corners = []
    for values in product(*options):
        corner = tuple(sorted((axis, value) for axis, value in zip(axes, values, strict=True) if value is not None))
        corners += [corner] if len(corner) > 1 else []
    return sorted(corners, key=lambda point: -len(point))


def smaller_box(extents: Mapping[Direction, int]) -> dict[Direction, int]:
    """Return the extents of the next smaller box: the longest of them is a value shorter, of two the later one."""
    longest = max(reversed([*extents]), key=lambda direction: extents[direction])
    return {direction: extent - (direction is longest) for direction, extent in extents.items()}


def slo_at(slo: Slo, point: Point) -> Slo:
    """Return the SLO as it reads at *point*; implicit objectives follow from it."""
    values = dict(point)
    drawn = {"temperature": values["temperature"]} if "temperature" in values else {}
    limit = {"max_tokens": int(values["max_tokens"])} if "max_tokens" in values else {}
    streams = {"concurrency": int(values["concurrency"])} if "concurrency" in values else {}
    default = slo.sweep.default.model_copy(update=drawn | limit)
    return slo.model_copy(
        update={
            "sampling": slo.sampling.model_copy(update=drawn | limit),
            "sweep": slo.sweep.model_copy(update={"default": default}),
            "soak": slo.soak.model_copy(update=streams),
        }
    )


def point_plan(
    slo: Slo, workload: str, route: Setting, canaries: Sequence[Canary], point: Point, *, seed: int, shares: bool
) -> PointPlan:
    """Plan one point of *workload* at the setting of its *route*; the same for the same arguments.

    All points of a workload take the same canaries. *shares*: one process serves both arms.
    """
    point_slo, values = slo_at(slo, point), dict(point)
    knob_values = {axis: value for axis, value in point if axis != "context"}
    integers = {axis: int(value) for axis, value in knob_values.items() if axis != "temperature"}
    region_canaries = shuffled(canaries, random.Random(f"{seed}/region/{workload}"))[: slo.region.canaries]
    context = int(values["context"]) if "context" in values else None
    region_canaries = list(with_context(region_canaries, context))
    shuffle = random.Random(f"{seed}/{workload}/{point_name(point)}")
    units = [
        Unit(workload, canary, repeat)
        for repeat in range(slo.region.repeats)
        for canary in shuffled(region_canaries, shuffle)
    ]
    interleaved = shares and point_slo.soak.concurrency == 1
    growth = sequential.GROWTH if shares else sequential.RESTARTED
    return PointPlan(
        workload,
        point,
        knobs=setting(**{**dict(route), **knob_values, **integers}),
        slo=point_slo,
        canaries={canary.id: canary for canary in region_canaries},
        looks=sequential.looks(len(units), growth, len(region_canaries)),
        units=tuple(units),
        interleaved=interleaved,
    )
