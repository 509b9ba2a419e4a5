"""A soak over time: speed, acceptance, the host, and its events."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from gatekeeper.analysis.metrics.answer_table import Read
from gatekeeper.analysis.metrics.host.host_series import missing_status, readings
from gatekeeper.analysis.metrics.over_time import acceptance_windows
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import Case, soak_answers
from gatekeeper.analysis.verdict.run_verdict import Transition
from gatekeeper.core.clock import wall_seconds
from gatekeeper.core.judgement import round_figure
from gatekeeper.core.records import Event, EventKind, Generation, Role
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.report.data.ratio_over_time import RatioStretch, ratio_stretches
from gatekeeper.report.data.sweep_chart import every_nth

Worst = Callable[[Sequence[float]], float]
LANES: tuple[tuple[str, str, Worst], ...] = (
    ("memory_headroom", "B", min),
    ("subject_footprint", "B", max),
    ("swap_used", "B", max),
    ("memory_pressure_level", "1", max),
    ("thermal_level", "1", max),
    ("fan_speed", "rpm", max),
)
"""The host values that are drawn, their unit, and which of several readings is the worst."""
BUCKETS = 240
"""A lane shows the worst reading of each of at most this many time slots."""
MOST_ANSWERS = 1500
"""More dots than this cannot be told apart; then every n-th answer is kept, and every fault."""
PAUSE = 0.03
"""The largest share of the axis for the pause between two unbroken stretches."""
INCIDENTS = {
    EventKind.BEGIN: "resumed",
    EventKind.INTERRUPTED: "interrupted",
    EventKind.SUBJECT_DIED: "the system under test died",
    EventKind.SUBJECT_LOST: "the system under test could not be started",
    EventKind.SAMPLER_DIED: "host sampling stopped",
    EventKind.LOAD_DIED: "the background load died",
    EventKind.ARTIFACT_CHANGED: "a model changed on disk",
    EventKind.BLOCK: "plain block",
    EventKind.CLOSING: "closing pass",
}
"""Events that are marked on the time axis, with their labels."""
UNJUDGED = (EventKind.BLOCK, EventKind.CLOSING)
"""What comes around a soak during which the host is not judged."""
GAP = 0.03
"""The smallest share of the axis without samples that is marked."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One answer: seconds on the axis, decode speed in tok/s, and what it belongs to."""

    at: float
    speed: float | None
    workload: str
    arm: str
    canary: str
    tokens: int | None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Acceptance over one window of the soak."""

    begin: float
    end: float
    workload: str
    rate: float


@dataclass(frozen=True, slots=True)
class HostLane:
    """One value of the host over time, or why it was not measured."""

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Unsampled:
    """A stretch of the axis without host samples of this soak, and why."""

    begin: float
    end: float
    because: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An event on the axis: a transition, an incident, an interruption."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """One soak."""

    name: str
    begun: str
    seconds: float
    """Length of the axis."""
    settings: Mapping[str, Mapping[str, object]]
    """The setting of each workload."""
    dots: tuple[Dot, ...]
    windows: tuple[Window, ...]
    ratios: tuple[RatioStretch, ...]
    lanes: tuple[HostLane, ...]
    marks: tuple[Mark, ...]
    gaps: tuple[Unsampled, ...]
    answers: int
    """The number of answers; larger than the number of dots where those were thinned."""


class _Axis:
    """Maps wall times to one axis, on which the pauses between unbroken stretches are shortened."""

    def __init__(self, stretches: Sequence[tuple[float, float]]) -> None:
        merged: list[tuple[float, float]] = []
        for begin, end in sorted(stretches):
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        busy = sum(end - begin for begin, end in merged)
        self._parts: list[tuple[float, float, float]] = []
        offset = 0.0
        for number, (begin, end) in enumerate(merged):
            if number:
                offset += min(begin - merged[number - 1][1], PAUSE * busy)
            self._parts.append((begin, end, offset))
            offset += end - begin
        self.length = offset
        self.begin, self.end = merged[0][0], merged[-1][1]

    def place(self, instant: float) -> float:
        """Return seconds on the axis; an instant in a pause is placed at the end of the stretch before it."""
        at = 0.0
        for begin, end, offset in self._parts:
            if instant >= begin:
                at = offset + min(instant, end) - begin
        return round_figure(at)


def timelines(case: Case, transitions: Sequence[Transition], happened: Sequence[Event]) -> tuple[Timeline, ...]:
    """Return every soak that has answers, in the order of the run."""
    soaks = []
    for name, recorded in sorted(case.soaks.items()):
        # A damaged record can name a workload that is not in the SLO.
        generations = [generation for generation in recorded.records if generation.workload in case.canaries]
        soaks.append(_timeline(case, name, generations, transitions, happened))
    return tuple(soak for soak in soaks if soak is not None)


def _timeline(
    case: Case, name: str, recorded: Sequence[Generation], transitions: Sequence[Transition], happened: Sequence[Event]
) -> Timeline | None:
    answers = [
        (ended, generation)
        for generation in recorded
        if generation.role is not Role.WARMUP and (ended := wall_seconds(generation.at)) is not None
    ]
    if not answers:
        return None
    spans: dict[int, tuple[float, float]] = {}
    for ended, generation in answers:
        sent = ended - generation.answer.seconds
        begin, end = spans.get(generation.segment, (sent, ended))
        spans[generation.segment] = min(begin, sent), max(end, ended)
    axis = _Axis(list(spans.values()))
    every = HostColumns.of(case.host_samples)
    instants = [wall_seconds(at) if phase == name else None for at, phase in zip(every.at, every.phase, strict=True)]
    samples = every.select([at is not None for at in instants])
    places = [axis.place(at) for at in instants if at is not None]
    settings = {
        generation.workload: generation.setting
        for generation in sorted(recorded, key=lambda generation: generation.arm == "candidate")
    }
    gathered = {
        workload: soak_answers(case, SoakPlan(name, {workload: knobs}, knobs), workload)
        for workload, knobs in settings.items()
    }
    incidents = _incidents(happened, name, axis)
    return Timeline(
        name,
        min(generation.at for _, generation in answers),
        seconds=round_figure(axis.length),
        settings={workload: setting_document(knobs) for workload, knobs in settings.items()},
        dots=_dots(answers, axis, {name: case.table_of(name).read("decode_rate") for name in gathered}),
        windows=_windows(gathered, axis),
        ratios=tuple(ratio_stretches(gathered, axis.place)),
        lanes=tuple(_lane(samples, places, axis.length, *lane) for lane in LANES),
        marks=tuple(sorted((*incidents, *_steps(transitions, axis)), key=lambda mark: mark.at)),
        gaps=tuple(_gaps(places, axis.length, incidents)),
        answers=len(answers),
    )


def _dots(
    answers: Sequence[tuple[float, Generation]], axis: _Axis, decode_rates: Mapping[str, Read]
) -> tuple[Dot, ...]:
    dots = []
    for ended, generation in every_nth(answers, MOST_ANSWERS, lambda pair: pair[1].answer.fault):
        answer, workload = generation.answer, generation.workload
        speed = decode_rates[workload](answer) if answer.fault is None else None
        near, tokens = round_figure(speed) if speed is not None else None, answer.output_tokens
        dots.append(
            Dot(axis.place(ended), near, workload, generation.arm, generation.canary, tokens, fault=answer.fault)
        )
    return tuple(dots)


def _windows(gathered: Mapping[str, PairedAnswers], axis: _Axis) -> tuple[Window, ...]:
    windows = []
    for workload, evidence in gathered.items():
        length = evidence.window_s
        begun: dict[int, float] = {}
        for generation in sorted(successful(evidence.answers), key=lambda generation: generation.answer.sent_ns):
            if (ended := wall_seconds(generation.at)) is not None:
                begun.setdefault(generation.segment, ended - generation.answer.seconds)
        for (segment, number), rate in sorted(acceptance_windows(evidence).items()):
            if segment in begun and rate is not None:
                begin = begun[segment] + number * length
                windows.append(Window(axis.place(begin), axis.place(begin + length), workload, round_figure(rate)))
    return tuple(windows)


def _lane(samples: HostColumns, places: Sequence[float], length: float, name: str, unit: str, worst: Worst) -> HostLane:
    lane_readings = readings(samples, name)
    buckets: dict[int, list[tuple[float, float]]] = {}
    for at, value in zip(places, lane_readings.numbers.tolist(), strict=True):
        if math.isfinite(value):
            buckets.setdefault(math.floor(at / length * BUCKETS) if length else 0, []).append((at, value))
    points = tuple(
        (round_figure(median(at for at, _ in bucket)), round_figure(worst([value for _, value in bucket])))
        for _, bucket in sorted(buckets.items())
    )
    lost = lane_readings.count_by_label(missing_status, finite=False)
    missing = ", ".join(f"{status} in {count} of {len(samples)} samples" for status, count in lost.most_common())
    return HostLane(name, unit, points, missing if samples else "no samples")


def _gaps(places: Sequence[float], length: float, incidents: Sequence[Mark]) -> Iterator[Unsampled]:
    """Return where the host was not sampled for this soak; what begins there or just before is the reason."""
    if not places:
        return
    edges = list(pairwise([0.0, *sorted(places), length]))
    longest = max(GAP * length, 3 * median(end - begin for begin, end in edges))
    for begin, end in edges:
        if end - begin > longest:
            begun = [mark for mark in incidents if mark.kind in UNJUDGED and mark.at <= end]
            because = begun[-1].text if begun and begun[-1].at >= begin - GAP * length else "no samples"
            yield Unsampled(begin, end, because)


def _incidents(happened: Sequence[Event], name: str, axis: _Axis) -> list[Mark]:
    """Return the events of a soak; those of other soaks are left out by name or by time."""
    marks = []
    for event in happened:
        at, detail = wall_seconds(event.at), event.detail
        if at is None or event.kind not in INCIDENTS or not axis.begin - 1 <= at <= axis.end + 1:
            continue
        if (event.kind == EventKind.BEGIN and not detail.get("segment")) or detail.get("soak", name) != name:
            continue
        if event.kind == EventKind.BLOCK and "soak" not in detail:
            continue
        reason = detail.get("because") or detail.get("model") or detail.get("fault")
        text = INCIDENTS[event.kind] + (f": {reason}" if reason else "")
        marks.append(Mark(axis.place(at), event.kind, text))
    return marks


def _steps(transitions: Sequence[Transition], axis: _Axis) -> list[Mark]:
    marks = []
    for step in transitions:
        at = wall_seconds(step.at)
        if at is not None and axis.begin < at <= axis.end + 1:
            marks.append(Mark(axis.place(at), "transition", f"{step.workload}: {step.because}"))
    return marks
