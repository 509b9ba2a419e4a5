"""The explored region of a workload: which points hold its objectives, which break them, and what may be routed.

The run calls `explore` to learn which point to measure next, `judge` to derive the region again: both follow the same
records in the same order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gatekeeper.analysis.metrics.exactness import Divergence
from gatekeeper.analysis.passes.region import REGION
from gatekeeper.analysis.plan.objectives import all_objectives
from gatekeeper.analysis.plan.region_points import (
    BOX_TRIES,
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
from gatekeeper.analysis.verdict.region.certified_region import AxisValue, CertifiedRegion, PointProbe, RegionAxis
from gatekeeper.analysis.verdict.region.point_probe import (
    OF_TIME,
    OWN_PASS,
    judge_point,
    not_provable,
    point_evidence,
    prompt_bytes,
    unread_ties,
)
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


class _Lacking(Exception):  # noqa: N818  no error: it ends the replay of the records where they end
    def __init__(self, need: PointNeed) -> None:
        self.need = need


Known = dict[tuple[str, Point, int], PointProbe]
"""Probes by workload, point and number of answers, so that a run judges each look once."""


def explore(
    case: Case, workload: str, route: Setting, longest_prompt: int | None, probes_by_look: Known
) -> Exploration:
    """Follow the records of one promoted workload through its region; name what must be measured next.

    Along an axis declared monotone it bisects, else it takes value after value until one is not proven inside. Then it
    measures the corners of the box that these values span, and tries smaller ones while a corner is not inside.
    """
    slo, canaries = case.slo, case.canaries[workload]
    certified = certified_point(slo, route, canaries, longest_prompt)
    ways = directions(slo, certified)
    shares = len(ways) + (len({way.axis for way in ways}) > 1)
    error = (1 - slo.confidence) / max(1, shares)
    probes: dict[Point, PointProbe] = {}
    extents, box = dict.fromkeys(ways, 0), dict[Direction, int]()

    def inside(point: Point, *, chances: int, tests: int) -> bool:
        """Probe *point*, one of *chances* to be wrongly inside and one of *tests* to be wrongly outside."""
        if point not in probes:
            shares_process = case.plan.shares_process
            plan = point_plan(slo, workload, route, canaries, point, seed=case.plan.seed, shares=shares_process)
            probes[point] = _probe(case, plan, certified, error / chances, error / tests, probes_by_look)
        return probes[point].outcome is Outcome.PASS

    try:
        for way in ways:
            # Value after value, nothing is split: the first one that is wrongly inside decides (a fixed sequence).
            chances = way.most_probes if way.monotone else 1
            probe = partial(inside, chances=chances, tests=way.most_probes)
            extents[way] = _extent(way, probe)
        extents_of_box = {way: extent for way, extent in extents.items() if extent}
        for _ in range(BOX_TRIES):
            corners = box_corners(extents_of_box)
            if not corners:
                break
            tests = BOX_TRIES * len(corners)
            if all(inside(corner, chances=BOX_TRIES, tests=tests) for corner in corners):
                box = dict(extents_of_box)
                break
            extents_of_box = {way: extent for way, extent in smaller_box(extents_of_box).items() if extent}
    except _Lacking as lacking:
        return Exploration(certified, ways, extents, tuple(probes.values()), box, lacking.need)
    return Exploration(certified, ways, extents, tuple(probes.values()), box)


def _extent(way: Direction, inside: Callable[[Point], bool]) -> int:
    """Return how many values of a direction, the nearest first, are inside."""
    points = [((way.axis, value),) for value in way.values]
    if not way.monotone:
        return next((at for at, point in enumerate(points) if not inside(point)), len(points))
    low, high = 0, len(points)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if inside(points[middle]) else (low, middle)
    return low


def _probe(
    case: Case, plan: PointPlan, certified: Mapping[str, float], error: float, error_out: float, probes_by_look: Known
) -> PointProbe:
    """Judge a point look after look until it is decided; raise _Lacking where its records end before that."""
    if (why := not_provable(case, plan)) is not None:
        return PointProbe(plan.point, Outcome.UNPROVEN, why, 0)
    generations = [
        answer for answer in case.region.records if answer.workload == plan.workload and answer.trial == plan.name
    ]
    recorded = {answer.key for answer in generations}
    errors, errors_out = (
        sequential.nominal_errors(plan.looks, plan.looks[-1], probability) for probability in (error, error_out)
    )
    probe: PointProbe | None = None
    keys = set[str]()
    for look in range(len(plan.looks)):
        keys |= {request.key for block in plan.blocks(look, case.plan.seed) for request in block}
        if not keys <= recorded:
            if not case.region_ended:
                raise _Lacking(PointNeed(plan, look))
            return probe or PointProbe(plan.point, Outcome.UNPROVEN, "it was not measured to the end", len(generations))
        looked_at = [answer for answer in generations if answer.key in keys]
        where = plan.workload, plan.point, len(looked_at)
        if where not in probes_by_look:
            evidence = point_evidence(case, plan, looked_at)
            if (ties := unread_ties(case, plan, evidence)) and not case.region_ended:
                raise _Lacking(PointNeed(plan, look, ties))
            probes_by_look[where] = judge_point(case, plan, certified, evidence, 1 - errors[look], 1 - errors_out[look])
        probe = probes_by_look[where]
        if probe.outcome is not Outcome.UNPROVEN or probe.hopeless:
            break
    assert probe is not None
    return probe


def certified_region(case: Case, workload: str, route: Setting, longest_prompt: int | None) -> CertifiedRegion | None:
    """Return the region of a promoted workload; None where the SLO has none."""
    if not case.slo.region.axes:
        return None
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
        tuple(metric for metric in metrics if metric in OF_TIME or metric in OWN_PASS),
        f"{REGION}: {case.region.trouble}" if case.region.trouble is not None else None,
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
    sizes = {canary.id: prompt_bytes(canary) for canary in case.canaries[workload]}
    swept = (
        answer for generations in case.sweep_records.values() for answer in generations if answer.workload == workload
    )
    return (
        max(((generation.answer.prompt_tokens or 0) / sizes[generation.canary] for generation in swept), default=0.0)
        or 1.0
    )
