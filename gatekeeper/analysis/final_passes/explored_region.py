"""The explored region of a workload: which points hold its objectives, which break them, and what may be routed.

The run calls `explore` to learn which point to measure next, `judge` to derive the region again: both follow the same
records in the same order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from gatekeeper.analysis.final_passes import point_probe
from gatekeeper.analysis.metrics.words.near_tie_rule import Divergence
from gatekeeper.analysis.plan.objectives import all_objectives
from gatekeeper.analysis.plan.region_points import (
    BOX_TRIES,
    REGION,
    Direction,
    Point,
    PointPlan,
    box_corners,
    certified_point,
    directions,
    point_plan,
    smaller_box,
)
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.certified_region import AxisValue, CertifiedRegion, PointProbe, RegionAxis
from gatekeeper.core.records import Setting
from gatekeeper.core.verdict import Outcome, rounded


@dataclass(frozen=True, slots=True)
class PointNeed:
    """What the exploration must measure before it can go on: a look at a point, or near-ties of its answers."""

    plan: PointPlan
    look: int
    """From 0."""
    ties: tuple[Divergence, ...] = ()


@dataclass(frozen=True, slots=True)
class Exploration:
    """The region of one workload, as far as the records go."""

    certified: Mapping[str, float]
    directions: tuple[Direction, ...]
    extents: Mapping[Direction, int]
    """How many values of each direction are inside."""
    probes: tuple[PointProbe, ...]
    box: Mapping[Direction, int]
    """The same for all axes together; empty where no corner was proven."""
    need: PointNeed | None = None
    """What is missing; None: it is complete."""


class LookKey(NamedTuple):
    """One look at a point: the answers that it is judged by."""

    workload: str
    point: Point
    answers: int


ProbeCache = dict[LookKey, PointProbe]
"""What was judged, so that a run judges each look once."""


def explore(case: Case, workload: str, route: Setting, longest_prompt: int | None, cache: ProbeCache) -> Exploration:
    """Follow the records of one promoted workload through its region; name what must be measured next."""
    return _Explorer(case, workload, route, longest_prompt, cache).explored()


class _Explorer:
    """One walk through a region: it ends at the first point that the records do not decide yet.

    Along an axis declared monotone it bisects, else it takes value after value until one is not proven inside. Then it
    measures the corners of the box that these values span, and tries smaller ones while a corner is not inside.
    """

    def __init__(
        self, case: Case, workload: str, route: Setting, longest_prompt: int | None, cache: ProbeCache
    ) -> None:
        self._case, self._workload, self._route, self._cache = case, workload, route, cache
        self._certified = certified_point(case.slo, route, case.canaries[workload], longest_prompt)
        self._directions = directions(case.slo, self._certified)
        shares = len(self._directions) + (len({way.axis for way in self._directions}) > 1)
        self._error = (1 - case.slo.confidence) / max(1, shares)
        self._probes: dict[Point, PointProbe] = {}
        self._need: PointNeed | None = None

    def explored(self) -> Exploration:
        """Return the region, as far as the records go."""
        extents = dict.fromkeys(self._directions, 0)
        for way in self._directions:
            if self._need is None:
                extents[way] = self._extent(way)
        box = self._box(extents)
        return Exploration(self._certified, self._directions, extents, tuple(self._probes.values()), box, self._need)

    def _extent(self, way: Direction) -> int:
        """Return how many values of a direction, the nearest first, are inside."""
        points = [((way.axis, value),) for value in way.values]
        if not way.monotone:
            # Value after value, nothing is split: the first one that is wrongly inside decides (a fixed sequence).
            inside = (self._inside(point, chances=1, tests=way.most_probes) for point in points)
            return self._when_known(sum(1 for _ in takewhile(bool, inside)))
        low, high = 0, len(points)
        while low < high and self._need is None:
            middle = (low + high) // 2
            is_inside = self._inside(points[middle], chances=way.most_probes, tests=way.most_probes)
            low, high = (middle + 1, high) if is_inside else (low, middle)
        return self._when_known(low)

    def _box(self, extents: Mapping[Direction, int]) -> dict[Direction, int]:
        """Return the extents of the largest box tried whose corners are all inside; empty if there is none."""
        tried = {way: extent for way, extent in extents.items() if extent}
        for _ in range(BOX_TRIES):
            corners = box_corners(tried)
            if self._need is not None or not corners:
                break
            tests = BOX_TRIES * len(corners)
            if all(self._inside(corner, chances=BOX_TRIES, tests=tests) for corner in corners):
                return tried
            tried = {way: extent for way, extent in smaller_box(tried).items() if extent}
        return {}

    def _when_known(self, extent: int) -> int:
        return extent if self._need is None else 0

    def _inside(self, point: Point, *, chances: int, tests: int) -> bool:
        """Probe *point*, one of *chances* to be wrongly inside and one of *tests* to be wrongly outside.

        Where the records do not decide it, that is noted as the need, and the walk ends.
        """
        if point not in self._probes:
            case, workload = self._case, self._workload
            canaries, seed, shares = case.canaries[workload], case.plan.seed, case.plan.shares_process
            plan = point_plan(case.slo, workload, self._route, canaries, point, seed=seed, shares=shares)
            probe = self._probe(plan, self._error / chances, self._error / tests)
            if isinstance(probe, PointNeed):
                self._need = probe
                return False
            self._probes[point] = probe
        return self._probes[point].outcome is Outcome.PASS

    def _probe(self, plan: PointPlan, error: float, error_out: float) -> PointProbe | PointNeed:
        """Judge a point look after look until it is decided; return what is missing where its records end before."""
        case = self._case
        if (reason := point_probe.not_provable(case, plan)) is not None:
            return PointProbe(plan.point, Outcome.UNPROVEN, reason, 0)
        answers = point_probe.answers_at(case, plan)
        recorded = {answer.key for answer in answers}
        errors, errors_out = (
            sequential.nominal_errors(plan.looks, plan.looks[-1], probability) for probability in (error, error_out)
        )
        probe = PointProbe(plan.point, Outcome.UNPROVEN, "it was not measured to the end", len(answers))
        keys = set[str]()
        for look in range(len(plan.looks)):
            keys |= {request.key for block in plan.blocks(look, case.plan.seed) for request in block}
            if not keys <= recorded:
                return PointNeed(plan, look) if case.live else probe
            looked_at = [answer for answer in answers if answer.key in keys]
            key = LookKey(plan.workload, plan.point, len(looked_at))
            if key not in self._cache:
                evidence = point_probe.point_evidence(case, plan, looked_at)
                if (ties := point_probe.unread_ties(case, plan, evidence)) and case.live:
                    return PointNeed(plan, look, ties)
                levels = 1 - errors[look], 1 - errors_out[look]
                self._cache[key] = point_probe.judge_point(case, plan, self._certified, evidence, *levels)
            probe = self._cache[key]
            if probe.outcome is not Outcome.UNPROVEN or probe.hopeless:
                break
        return probe


def certified_region(case: Case, workload: str, route: Setting, longest_prompt: int | None) -> CertifiedRegion:
    """Return the region of a promoted workload, of an SLO that has one."""
    exploration = explore(case, workload, route, longest_prompt, {})
    every = all_objectives(case.slo, workload, speculating=True, terms=case.plan.terms)
    metrics = dict.fromkeys(objective.metric for objective in (*every, *case.slo.host_objectives))
    return CertifiedRegion(
        tuple(
            RegionAxis(
                axis,
                certified,
                axis in case.slo.region.monotone,
                _limits(exploration, axis),
                tuple(_value(exploration, axis, value) for value in case.slo.region.values(axis)),
                rounded(_density(case, workload, exploration)) if axis == "context" else None,
            )
            for axis, certified in exploration.certified.items()
        ),
        exploration.probes,
        tuple(metric for metric in metrics if metric in point_probe.OF_TIME or metric in point_probe.OWN_PASS),
        case.recorded_at_end(REGION).trouble,
    )


def _limits(exploration: Exploration, axis: str) -> dict[str, float]:
    """Return the ends of an axis: alone, and together with all others where a box was proven."""
    reach = {probe.point: probe.reach for probe in exploration.probes if probe.outcome is Outcome.PASS}
    certified = exploration.certified[axis]

    def end(extents: Mapping[Direction, int], points: Sequence[Point], *, up: bool) -> float:
        for way, extent in extents.items():
            if way.axis == axis and extent and (way.values[0] > certified) == up:
                last = (axis, way.values[extent - 1])
                reached = [reach[point][axis] for point in points if last in point]
                return min(reached) if up else max(reached)
        return certified

    alone = [point for point in reach if len(point) == 1]
    limits = {"at_most": end(exploration.extents, alone, up=True)}
    if axis == "temperature":
        limits = {"at_least": end(exploration.extents, alone, up=False), **limits}
    if exploration.box:
        corners = box_corners(exploration.box)
        inner = {name: end(exploration.box, corners, up=name == "at_most") for name in limits}
        # The prompts of a corner may be longer than those of the point on the axis, which stopped at other canaries.
        inner["at_most"] = min(inner["at_most"], limits["at_most"])
        limits |= {f"together_{name}": value for name, value in inner.items()}
    return limits


def _value(exploration: Exploration, axis: str, value: float) -> AxisValue:
    """Return what is known of one value of an axis, all others as certified."""
    way = next((way for way in exploration.directions if way.axis == axis and value in way.values), None)
    if way is None:
        return AxisValue(value, "certified")
    probed = {probe.point: probe for probe in exploration.probes}
    if (probe := probed.get(((axis, value),))) is not None:
        return AxisValue(value, probe.word, probed=True)
    position = way.values.index(value)
    nearer = (probed.get(((axis, near),)) for near in way.values[:position])
    if position < exploration.extents[way]:
        return AxisValue(value, "inside")
    outside = way.monotone and any(probe is not None and probe.outcome is Outcome.FAIL for probe in nearer)
    return AxisValue(value, "outside" if outside else "open")


def _density(case: Case, workload: str, exploration: Exploration) -> float:
    """Return the most tokens a byte of a prompt had: of the longest prompts that are inside, else of the sweep's."""
    inside = [
        probe.tokens_per_byte for probe in exploration.probes if probe.outcome is Outcome.PASS and probe.tokens_per_byte
    ]
    if inside:
        return max(inside)
    sizes = {canary.id: point_probe.prompt_bytes(canary) for canary in case.canaries[workload]}
    swept = (
        answer for generations in case.sweep_records.values() for answer in generations if answer.workload == workload
    )
    densities = ((generation.answer.prompt_tokens or 0) / sizes[generation.canary] for generation in swept)
    return max(densities, default=0.0) or 1.0
