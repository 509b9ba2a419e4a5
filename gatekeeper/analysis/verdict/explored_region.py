"""The explored region of a workload: which points hold its objectives, which break them, and what may be routed.

The run calls `explore` to learn which point to measure next, `judge` to derive the region again: both follow the same
records in the same order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gatekeeper.analysis.metrics.comparability import voided_metrics
from gatekeeper.analysis.metrics.exactness import Divergence, divergences
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
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
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.checks import check
from gatekeeper.analysis.verdict.findings import examine
from gatekeeper.analysis.verdict.host_checks import host_checks
from gatekeeper.analysis.verdict.workload import measurable, objective_estimate, unseen
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Objective
from gatekeeper.core.text import counted
from gatekeeper.core.verdict import Check, Outcome, rounded, worst

OF_TIME = frozenset(
    {
        "acceptance_window_min",
        "footprint_growth",
        "swap_growth",
        "swapin_bytes",
        "swapout_bytes",
        "throttle_time",
        "fan_variation",
        "power_mean",
        "energy_per_token",
    }
)
"""What only a soak shows; at a point, which takes a minute, it is not checked."""
OWN_PASS = {"first_tokens_p_value": "temperature", "warm_cache_agreement": "context"}
"""Metrics that a pass after the soak measures, and the axis on which its result says nothing of another value."""
WORDS = {Outcome.PASS: "inside", Outcome.FAIL: "outside", Outcome.UNPROVEN: "open"}


@dataclass(frozen=True, slots=True)
class PointProbe:
    """A point, judged."""

    point: Point
    outcome: Outcome
    because: str
    answers: int
    """Of both arms."""
    checks: tuple[Check, ...] = ()
    reach: Mapping[str, float] = field(default_factory=dict)
    """Up to where it proves each axis it moves: a context as the tokens that its prompts had."""
    tokens_per_byte: float | None = None
    """Of its prompts; where it lengthened them."""
    hopeless: bool = False
    """Open, whatever further answers show."""

    def document(self) -> dict[str, Any]:
        """Return it as verdict.json writes it."""
        return {
            "point": dict(self.point),
            "outcome": WORDS[self.outcome],
            "because": self.because,
            "answers": self.answers,
            "checks": [one.document() for one in self.checks],
        }


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


def explore(case: Case, workload: str, route: Setting, longest_prompt: int | None, known: Known) -> Exploration:
    """Follow the records of one promoted workload through its region; name what must be measured next.

    Along an axis declared monotone it bisects, else it takes value after value until one is not proven inside. Then it
    measures the corners of the box that these values span, and tries smaller ones while a corner is not inside.
    """
    slo, canaries = case.slo, case.canaries[workload]
    certified = certified_point(slo, route, canaries, longest_prompt)
    ways = directions(slo, certified)
    shares = len(ways) + (len({one.axis for one in ways}) > 1)
    error = (1 - slo.confidence) / max(1, shares)
    probes: dict[Point, PointProbe] = {}
    extents, box = dict.fromkeys(ways, 0), dict[Direction, int]()

    def inside(point: Point, *, chances: int, tests: int) -> bool:
        """Probe *point*, one of *chances* to be wrongly inside and one of *tests* to be wrongly outside."""
        if point not in probes:
            shares_process = case.plan.shares_process
            plan = point_plan(slo, workload, route, canaries, point, seed=case.plan.seed, shares=shares_process)
            probes[point] = _probe(case, plan, certified, error / chances, error / tests, known)
        return probes[point].outcome is Outcome.PASS

    try:
        for way in ways:
            # Value after value, nothing is split: the first one that is wrongly inside decides (a fixed sequence).
            chances = way.most_probes if way.monotone else 1
            probe = partial(inside, chances=chances, tests=way.most_probes)
            extents[way] = _extent(way, probe)
        wanted = {one: extent for one, extent in extents.items() if extent}
        for _ in range(BOX_TRIES):
            corners = box_corners(wanted)
            if not corners:
                break
            tests = BOX_TRIES * len(corners)
            if all(inside(corner, chances=BOX_TRIES, tests=tests) for corner in corners):
                box = dict(wanted)
                break
            wanted = {one: extent for one, extent in smaller_box(wanted).items() if extent}
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
    case: Case, plan: PointPlan, certified: Mapping[str, float], error: float, error_out: float, known: Known
) -> PointProbe:
    """Judge a point look after look until it is decided; raise _Lacking where its records end before that."""
    if (why := _not_provable(case, plan)) is not None:
        return PointProbe(plan.point, Outcome.UNPROVEN, why, 0)
    mine = [one for one in case.region.records if one.workload == plan.workload and one.trial == plan.name]
    recorded = {one.key for one in mine}
    errors, errors_out = (sequential.nominal_errors(plan.looks, plan.looks[-1], one) for one in (error, error_out))
    probe: PointProbe | None = None
    keys = set[str]()
    for look in range(len(plan.looks)):
        keys |= {one.key for block in plan.blocks(look, case.plan.seed) for one in block}
        if not keys <= recorded:
            if not case.region_ended:
                raise _Lacking(PointNeed(plan, look))
            return probe or PointProbe(plan.point, Outcome.UNPROVEN, "it was not measured to the end", len(mine))
        seen = [one for one in mine if one.key in keys]
        where = plan.workload, plan.point, len(seen)
        if where not in known:
            evidence = _evidence(case, plan, seen)
            if (ties := _unread(case, plan, evidence)) and not case.region_ended:
                raise _Lacking(PointNeed(plan, look, ties))
            known[where] = _judged(case, plan, certified, evidence, 1 - errors[look], 1 - errors_out[look])
        probe = known[where]
        if probe.outcome is not Outcome.UNPROVEN or probe.hopeless:
            break
    assert probe is not None
    return probe


def _evidence(case: Case, plan: PointPlan, seen: Sequence[Generation]) -> PairedAnswers:
    slo = plan.slo
    return pair_answers(
        PairedAnswers(
            plan.workload,
            plan.canaries,
            tuple(one for one in seen if one.arm == "candidate"),
            tuple(one for one in seen if one.arm == "plain"),
            slo.confidence,
            case.plan.seed,
            greedy=dict(plan.knobs).get("temperature", slo.sampling.temperature) == 0,
            window_s=slo.soak.window_s,
            drift_limit=slo.soak.sentinel_drift,
            rules=case.plan.terms.rules,
            interleaved=plan.interleaved,
            ties=tuple(one for one in case.region_ties.records if one.workload == plan.workload),
        )
    )


def _objectives(case: Case, plan: PointPlan) -> list[Objective]:
    every = all_objectives(plan.slo, plan.workload, speculating=True, terms=case.plan.terms)
    return [one for one in every if one.metric not in OF_TIME and _asked_of(one, plan.point)]


def _asked_of(objective: Objective, point: Point) -> bool:
    """Return whether an objective counts at *point*: one of an own pass does on the axis that may change its result."""
    own = OWN_PASS.get(objective.metric)
    return own is None or own in dict(point)


def _not_provable(case: Case, plan: PointPlan) -> str | None:
    """Return why no answer can prove a point: an objective is measured at the certified one alone; None otherwise."""
    greedy = dict(plan.knobs).get("temperature", plan.slo.sampling.temperature) == 0
    for one in _objectives(case, plan):
        if one.metric == "token_agreement" and not greedy:
            return "token_agreement: tokens can only be compared at temperature 0"
        if one.metric in OWN_PASS:
            return f"{one.metric}: it is measured at the certified {OWN_PASS[one.metric]} alone"
    return None


def _unread(case: Case, plan: PointPlan, evidence: PairedAnswers) -> tuple[Divergence, ...]:
    """Return the divergences of greedy answers whose logits must be read before an objective on them is checked."""
    if not evidence.greedy or Sight.LOGITS not in case.plan.terms.sight:
        return ()
    if not any(one.metric == "token_agreement" for one in _objectives(case, plan)):
        return ()
    found = divergences(evidence.answers, evidence.plain)
    return tuple(one for one in found if not any(one.matches(tie) for tie in evidence.ties))


def _judged(
    case: Case, plan: PointPlan, certified: Mapping[str, float], evidence: PairedAnswers, level: float, stricter: float
) -> PointProbe:
    """Judge one look: inside where every objective is proven, outside where one is proven broken.

    Any of the objectives could be broken by chance, so for that each takes its share of the error, too.
    """
    lost = voided_metrics(examine(evidence, plan.knobs, plan.phase))
    objectives = [measurable(one, evidence) for one in _objectives(case, plan)]
    logits = Sight.LOGITS in case.plan.terms.sight
    apart = 1 - (1 - stricter) / max(1, len(objectives))

    def judged(objective: Objective, at: float) -> Check:
        mine = replace(unseen(case, evidence) if objective.beyond_canaries else evidence, level=at)
        return check(objective, objective_estimate(objective, mine, lost, logits=logits))

    checks = [judged(one, level) for one in objectives]
    for at, (objective, first) in enumerate(zip(objectives, checks, strict=True)):
        if first.outcome is Outcome.FAIL and objective.metric == "truncation_rate" and not evidence.greedy:
            because = f"{first.because}; above temperature 0 answers end elsewhere by chance: not decided"
            checks[at] = replace(first, outcome=Outcome.UNPROVEN, because=because)
        elif first.outcome is Outcome.FAIL:
            again = judged(objective, apart)
            checks[at] = again if again.outcome is Outcome.FAIL else replace(first, outcome=Outcome.UNPROVEN)
    checks += _host(case, plan)
    outcome = worst(one.outcome for one in checks)
    because = "; ".join(f"{one.metric}: {one.because}" for one in checks if one.outcome is outcome)
    reach, why, density = _reach(plan, certified, evidence)
    if outcome is Outcome.PASS or (why and outcome is Outcome.UNPROVEN):
        outcome, because = (Outcome.UNPROVEN, why) if why else (outcome, "every objective is proven")
    answers = len(evidence.answers) + len(evidence.plain)
    return PointProbe(plan.point, outcome, because, answers, tuple(checks), reach, density, bool(why))


def _host(case: Case, plan: PointPlan) -> list[Check]:
    """Judge what the host showed while the point was measured."""
    wanted = tuple(one for one in case.slo.objective if one.of.host and one.metric not in OF_TIME)
    if not wanted:
        return []
    mine = [one for one in case.region.records if one.workload == plan.workload and one.trial == plan.name]
    here = replace(
        case,
        slo=plan.slo.model_copy(update={"objective": wanted}),
        soaks={plan.phase: replace(case.region, records=[one for one in mine if one.role is not Role.WARMUP])},
    )
    return host_checks(here, SoakPlan(plan.phase, {plan.workload: plan.plain}, plan.knobs))[0]


def _reach(
    plan: PointPlan, certified: Mapping[str, float], evidence: PairedAnswers
) -> tuple[dict[str, float], str, float | None]:
    """Return up to where the point proves each axis, why it proves one no further, and the tokens of a prompt's byte.

    A limit proves nothing that no prompt and no answer came near.
    """
    reach, density = dict(plan.point), None
    if "context" in reach:
        sizes = [(one.answer.prompt_tokens, prompt_bytes(plan.canaries[one.canary])) for one in evidence.answers]
        known = [(tokens, size) for tokens, size in sizes if tokens]
        if len(known) < len(sizes) or not known:
            return reach, "the tokens of its prompts are not counted", None
        shortest = min(tokens for tokens, _ in known)
        if shortest <= certified["context"]:
            return reach, f"its shortest prompt has {counted(shortest, 'token')}, no more than the certified ones", None
        reach["context"], density = min(reach["context"], shortest), max(tokens / size for tokens, size in known)
    if "max_tokens" in reach:
        inner = [value for value in plan.slo.region.max_tokens if value < reach["max_tokens"]]
        before = max([certified["max_tokens"], *inner])
        longest = max(one.answer.output_tokens or 0 for one in evidence.answers)
        if longest <= before:
            return reach, f"no answer was longer than {counted(longest, 'token')}, so the limit was not tried", density
    return reach, "", density


def prompt_bytes(canary: Canary) -> int:
    """Return the bytes of a prompt's texts and tools."""
    texts = (str(message.get("content") or "") for message in canary.messages)
    return sum(len(text.encode()) for text in (*texts, str(canary.tools or "")))


def region_document(case: Case, workload: str, route: Setting, longest_prompt: int | None) -> dict[str, Any]:
    """Return the region of a promoted workload as verdict.json writes it; nothing where the SLO has none."""
    if not case.slo.region.axes:
        return {}
    found = explore(case, workload, route, longest_prompt, {})
    ends = {axis: _ends(found, axis) for axis in found.certified}
    axes = [
        {
            "axis": axis,
            "certified": here,
            "monotone": axis in case.slo.region.monotone,
            **ends[axis],
            "values": [_value(found, axis, value) for value in case.slo.region.values(axis)],
        }
        for axis, here in found.certified.items()
    ]
    if "context" in found.certified:
        next(one for one in axes if one["axis"] == "context")["tokens_per_byte"] = rounded(
            _density(case, workload, found)
        )
    trouble = {"because": f"{REGION}: {case.region.trouble}"} if case.region.trouble is not None else {}
    every = all_objectives(case.slo, workload, speculating=True, terms=case.plan.terms)
    metrics = dict.fromkeys(one.metric for one in (*every, *case.slo.host_objectives))
    return {
        "axes": axes,
        "points": [one.document() for one in found.probes],
        "soak_alone": [one for one in metrics if one in OF_TIME or one in OWN_PASS],
        "answers": sum(one.answers for one in found.probes),
        **trouble,
    }


def _ends(found: Exploration, axis: str) -> dict[str, Any]:
    """Return the ends of an axis: alone, and together with all others where a box was proven."""
    reach = {one.point: one.reach for one in found.probes if one.outcome is Outcome.PASS}
    here = found.certified[axis]

    def end(extents: Mapping[Direction, int], points: Sequence[Point], *, up: bool) -> float:
        for way, extent in extents.items():
            if way.axis == axis and extent and (way.values[0] > here) == up:
                last = (axis, way.values[extent - 1])
                reached = [reach[point][axis] for point in points if last in point]
                return min(reached) if up else max(reached)
        return here

    alone = [point for point in reach if len(point) == 1]
    both = {"at_most": end(found.extents, alone, up=True)}
    if axis == "temperature":
        both = {"at_least": end(found.extents, alone, up=False), **both}
    if found.box:
        corners = box_corners(found.box)
        inner = {name: end(found.box, corners, up=name == "at_most") for name in both}
        # The prompts of a corner may be longer than those of the point on the axis, which stopped at other canaries.
        inner["at_most"] = min(inner["at_most"], both["at_most"])
        both |= {f"together_{name}": value for name, value in inner.items()}
    return both


def _value(found: Exploration, axis: str, value: float) -> dict[str, Any]:
    """Return what is known of one value of an axis, all others as certified."""
    way = next((one for one in found.directions if one.axis == axis and value in one.values), None)
    if way is None:
        return {"value": value, "outcome": "certified", "probed": False}
    probed = {one.point: one for one in found.probes}
    if (mine := probed.get(((axis, value),))) is not None:
        return {"value": value, "outcome": WORDS[mine.outcome], "probed": True}
    nearer = way.values[: way.values.index(value)]
    beyond = any(one in probed and probed[one].outcome is Outcome.FAIL for one in (((axis, near),) for near in nearer))
    word = (
        "inside" if way.values.index(value) < found.extents[way] else "outside" if way.monotone and beyond else "open"
    )
    return {"value": value, "outcome": word, "probed": False}


def _density(case: Case, workload: str, found: Exploration) -> float:
    """Return the most tokens a byte of a prompt had: of the longest prompts that are inside, else of the sweep's."""
    inside = [one.tokens_per_byte for one in found.probes if one.outcome is Outcome.PASS and one.tokens_per_byte]
    if inside:
        return max(inside)
    sizes = {one.id: prompt_bytes(one) for one in case.canaries[workload]}
    swept = (one for many in case.sweep_records.values() for one in many if one.workload == workload)
    return max(((one.answer.prompt_tokens or 0) / sizes[one.canary] for one in swept), default=0.0) or 1.0
