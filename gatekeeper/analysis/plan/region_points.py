"""The points of a certified region: where the axes lead from the certified one, and the requests of each point."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from gatekeeper.analysis.plan.settings import plain_of, sampling_for
from gatekeeper.analysis.plan.shuffled_rounds import shuffled
from gatekeeper.analysis.plan.sweep_plan import Unit, halves
from gatekeeper.analysis.stats import sequential
from gatekeeper.core.canary import Canary
from gatekeeper.core.canary.filler import with_context
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import Slo

REGION = "region.jsonl"
"""The answers at all points of all workloads."""
REGION_TIES = "region-ties.jsonl"
"""The near-ties of greedy answers at these points."""
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
class PointRequest:
    """One request of a point."""

    arm: str
    """`plain` or `candidate`."""
    unit: Unit
    pair: str
    """The same for both answers that are compared; it names the point."""

    @property
    def prefix(self) -> str:
        """Return the first part of its key."""
        return f"{self.arm}:{self.pair}"

    @property
    def key(self) -> str:
        """Name the request uniquely in its record file."""
        return f"{self.prefix}:{self.unit.workload}/{self.unit.canary.id}"


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

    def blocks(self, look: int, seed: int) -> list[list[PointRequest]]:
        """Return the requests between two looks, in blocks that one process answers; *look* counts from 0."""
        part = self.units[self.looks[look - 1] if look else 0 : self.looks[look]]
        shuffle = random.Random(f"{seed}/{self.phase}/{look}")
        if self.interleaved:
            return [[self._request(arm, unit) for unit in part for arm in shuffled(("plain", "candidate"), shuffle)]]
        one, two = halves(self.units, part)
        sides = (("plain", one), ("candidate", one), ("candidate", two), ("plain", two))
        return [[self._request(arm, unit) for unit in some] for arm, some in sides if some]

    def _request(self, arm: str, unit: Unit) -> PointRequest:
        return PointRequest(arm, unit, f"{self.name}.{unit.repeat}")


def point_name(point: Point) -> str:
    """Return the name of a point: `context-8192_temperature-0.7`."""
    return "_".join(f"{axis}-{value:g}" for axis, value in point)


def certified_point(
    slo: Slo, knobs: Setting, canaries: Sequence[Canary], longest_prompt: int | None
) -> dict[str, float]:
    """Return where the soak was on each axis of the region, for one workload at its setting.

    Where the tokens of a prompt are not counted, no context is certified: one token stands for none.
    """
    limits = [sampling_for(slo, one, knobs, slo.soak.concurrency) for one in canaries]
    known: dict[str, float] = {
        "temperature": limits[0].temperature,
        "context": longest_prompt or 1,
        "concurrency": slo.soak.concurrency,
        "max_tokens": max(one.max_tokens for one in limits),
    }
    return {axis: known[axis] for axis in slo.region.axes}


def directions(slo: Slo, certified: Mapping[str, float]) -> tuple[Direction, ...]:
    """Return the ways away from the certified point; a limit has none to lower values, which it covers."""
    found = []
    for axis in slo.region.axes:
        values, here, declared = slo.region.values(axis), certified[axis], axis in slo.region.monotone
        above = tuple(value for value in values if value > here)
        below = tuple(reversed([value for value in values if value < here])) if axis == "temperature" else ()
        found += [Direction(axis, side, declared) for side in (above, below) if side]
    return tuple(found)


def box_corners(extents: Mapping[Direction, int]) -> list[Point]:
    """Return the points that prove a box with these extents: each combination of extremes with two axes or more.

    On an axis declared monotone its extreme alone counts, as nothing nearer is worse; on another one the certified
    value takes part as well, so that every side of the box is measured.
    """
    axes = dict.fromkeys(one.axis for one, extent in extents.items() if extent)
    options: list[list[float | None]] = []
    for axis in axes:
        mine = {one: extent for one, extent in extents.items() if one.axis == axis and extent}
        extremes: list[float | None] = [one.values[extent - 1] for one, extent in mine.items()]
        options.append(extremes if all(one.monotone for one in mine) else [None, *extremes])
    found = []
    for values in product(*options):
        moved = tuple(sorted((axis, value) for axis, value in zip(axes, values, strict=True) if value is not None))
        found += [moved] if len(moved) > 1 else []
    return sorted(found, key=lambda point: -len(point))


def smaller_box(extents: Mapping[Direction, int]) -> dict[Direction, int]:
    """Return the extents of the next smaller box: the longest of them is a value shorter, of two the later one."""
    longest = max(reversed([*extents]), key=lambda one: extents[one])
    return {one: extent - (one is longest) for one, extent in extents.items()}


def slo_at(slo: Slo, point: Point) -> Slo:
    """Return the SLO as it reads at *point*; implicit objectives follow from it."""
    moved = dict(point)
    drawn = {"temperature": moved["temperature"]} if "temperature" in moved else {}
    limit = {"max_tokens": int(moved["max_tokens"])} if "max_tokens" in moved else {}
    streams = {"concurrency": int(moved["concurrency"])} if "concurrency" in moved else {}
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
    here, moved = slo_at(slo, point), dict(point)
    turned = {axis: value for axis, value in point if axis != "context"}
    whole = {axis: int(value) for axis, value in turned.items() if axis != "temperature"}
    some = shuffled(canaries, random.Random(f"{seed}/region/{workload}"))[: slo.region.canaries]
    context = int(moved["context"]) if "context" in moved else None
    some = list(with_context(some, context))
    shuffle = random.Random(f"{seed}/{workload}/{point_name(point)}")
    units = [Unit(workload, one, repeat) for repeat in range(slo.region.repeats) for one in shuffled(some, shuffle)]
    interleaved = shares and here.soak.concurrency == 1
    growth = sequential.GROWTH if shares else sequential.RESTARTED
    return PointPlan(
        workload,
        point,
        setting(**{**dict(route), **turned, **whole}),
        here,
        {one.id: one for one in some},
        sequential.looks(len(units), growth, len(some)),
        tuple(units),
        interleaved,
    )
