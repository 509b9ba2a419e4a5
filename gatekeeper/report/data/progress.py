"""The progress of a run, from its events alone: the stage, the speed, the host, and the remaining time.

Times are those of the events, so a remote run, or one whose events arrive late, looks the same as a local one. The
events that a remote run has in its file leave out answers and samples.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.core.clock import wall_seconds
from gatekeeper.core.records import Detail, Event, EventKind, Generation, Reading, Role
from gatekeeper.core.text import describe_setting
from gatekeeper.core.units import show_bytes
from gatekeeper.report.data.workload_progress import WorkloadProgress, WorkloadRow

DONE = "done"
PHASES = ("freeze", "sweep", "soak", "judge")
"""The stages that a person is shown; follow-ups belong to the soak."""
FEW = 3
"""With fewer answers than this no remaining time is estimated: the first ones are the slowest."""
FORECAST_PARTS = {
    "sweep": ("sweep",),
    "soak": ("plain_blocks", "closing"),
    **{follow_up.name: (follow_up.name,) for follow_up in FOLLOW_UPS},
}
"""The stages in their order, each with the parts of its forecast that scale with the measured speed."""
_FOLLOW_UPS = frozenset(follow_up.name for follow_up in FOLLOW_UPS)
SHOWN = ("memory_headroom", "memory_pressure_level", "swap_used", "subject_footprint", "thermal_level")
"""The readings of the host that are shown."""
PRESSURE = {1: "normal", 2: "warning", 4: "critical"}


@dataclass(frozen=True, slots=True)
class Gauge:
    """One value of the host, in a word or two; `alarming` where it needs attention."""

    text: str
    alarming: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What to show at one instant. Times in seconds; None is unknown."""

    slo: str
    stage: str
    part: str
    answered: int
    of: int | None
    share: float | None
    """The share of this part of the stage that is done."""
    left: float | None
    """Time until this part ends."""
    run_left: float | None
    """Time until the run ends, if no step down the ladder is needed."""
    over: float | None
    """The longest duration of the soak, once it is past its shortest one."""
    faults: int
    rows: tuple[WorkloadRow, ...]
    host: tuple[Gauge, ...]
    elapsed: float = 0.0
    """Time since the command started, or continued the run."""
    before: tuple[str, ...] = ()
    """The stages that are over."""
    after: tuple[str, ...] = ()
    """The stages that follow, if no step down the ladder is needed."""

    @property
    def done(self) -> float | None:
        """Return the share of the run that is done, or of its part; None where nothing says how much is left."""
        if self.stage == DONE:
            return 1.0
        if self.over is not None:
            return None
        if self.run_left is not None and self.elapsed > 0:
            return self.elapsed / (self.elapsed + self.run_left)
        return self.share


@dataclass(slots=True)
class _Part:
    """A part of a stage, which ends by its clock or by a count; all instants are those of the events."""

    name: str
    begun: float
    seconds: float | None = None
    most: float | None = None
    answered: int = 0
    before: int | None = None
    """Answers of an earlier segment."""
    of: int | None = None

    def share(self, now: float) -> float | None:
        if self.seconds:
            return min(1.0, (now - self.begun) / self.seconds)
        return min(1.0, self.answered / self.of) if self.of else None

    def seconds_each(self, now: float) -> float | None:
        """Return the seconds per answer in this part."""
        done = self.answered - (self.before or 0)
        return (now - self.begun) / done if done >= FEW else None

    def left(self, now: float) -> float | None:
        if self.seconds is not None:
            return max(0.0, self.seconds - (now - self.begun)) or None
        seconds_each = self.seconds_each(now)
        if seconds_each is None or not self.of:
            return None
        return max(0.0, seconds_each * (self.of - self.answered)) or None


class Progress:
    """Takes events, from any thread, and returns snapshots."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._event_at, self._arrived_at, self._ticking = 0.0, clock(), True
        self._slo = ""
        self._created_at, self._begun, self._before_begin = clock(), 0.0, 0.0
        self._forecast_stages: frozenset[str] = frozenset()
        """The stages of the whole run, as its begin forecast them."""
        self._expected: Mapping[str, float] = {}
        self._pace: float | None = None
        """The measured time per answer over the forecast one."""
        self._planned: int | None = None
        """Answers of the sweep, if none of its trials stops early."""
        self._shown_stage, self._stage, self._stage_begun, self._soaked_s = "freeze", "freeze", 0.0, 0.0
        self._part = _Part("hashing the models, checking what the backend reports", 0.0)
        self._last_answer_at = 0.0
        """When the last answer came."""
        self._workloads: dict[str, WorkloadProgress] = {}
        self._measured: tuple[WorkloadRow, ...] = ()
        """Rows of the last stage with answers: a follow-up shows them until it has its own."""
        self._host: Mapping[str, Reading] | None = None
        """The newest readings that are shown: samples come more often than anyone looks."""
        self._faults = 0

    def update(self, event: Event) -> None:
        """Take an event; one that shows no progress only advances the clock."""
        detail = event.detail
        with self._lock:
            instant = wall_seconds(event.at)
            # A host sample may arrive after a later answer, and a remote clock may be set back: time only advances.
            self._event_at = max(self._event_at, self._now() if instant is None else instant)
            self._arrived_at = self._clock()
            match event.kind:
                case EventKind.BEGIN:
                    self._begin(detail)
                case EventKind.STAGE:
                    self._enter(detail)
                case EventKind.SOAKING:
                    self._begin_part(self._soak_part(float(detail["seconds"]), _figure(detail, "most")))
                case EventKind.BLOCK if "soak" in detail:
                    name = f"plain block {detail['block']}"
                    self._begin_part(_Part(name, self._event_at, of=_count(detail, "answers")))
                case EventKind.CLOSING:
                    self._begin_part(_Part("closing pass", self._event_at, of=_count(detail, "answers")))
                case EventKind.ANSWER:
                    self._answer(detail)
                case EventKind.READING:
                    self._count(detail)
                case EventKind.SAMPLE:
                    self._host = _shown_readings(detail["values"])
                case EventKind.VERDICT:
                    self._enter({"stage": DONE})

    def snapshot(self) -> Snapshot:
        """Return what to show now."""
        with self._lock:
            now, part = self._now(), self._part
            part_left = part.left(now)
            over = part.most if part.seconds is not None and part_left is None else None
            elapsed = self._clock() - self._created_at
            if self._begun:
                elapsed = self._before_begin + max(0.0, now - self._begun)
            # Without a number to reach, it is that of the rows: those of the whole stage.
            stage_answers = sum(workload.answered for workload in self._workloads.values())
            return Snapshot(
                slo=self._slo,
                stage=self._shown_stage,
                part=part.name,
                answered=part.answered if part.of else max(part.answered, stage_answers),
                of=None if part.seconds else part.of,
                share=part.share(now),
                left=part_left,
                run_left=self._run_left(now, part_left) if over is None else None,
                over=over,
                faults=self._faults,
                rows=self._rows(),
                host=tuple(_gauges(self._host)) if self._host is not None else (),
                elapsed=elapsed,
                before=self._phases()[0],
                after=self._phases()[1],
            )

    def _rows(self) -> tuple[WorkloadRow, ...]:
        rows = tuple(workload.row(name) for name, workload in self._workloads.items())
        if any(row.answered for row in rows):
            self._measured = rows
        return self._measured if self._stage in _FOLLOW_UPS and rows else rows

    def _phases(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the stages that are over and those that follow; a stage that is run alone has neither."""
        full_run = {"sweep", "soak"} <= self._forecast_stages
        if not full_run or self._stage == "done":
            return (), ()
        current = PHASES.index(self._stage) if self._stage in PHASES else PHASES.index("soak")
        return PHASES[:current], PHASES[current + 1 :]

    def _now(self) -> float:
        return self._event_at + (self._clock() - self._arrived_at if self._ticking else 0.0)

    def _begin(self, detail: Detail) -> None:
        self._slo = str(detail.get("slo", ""))
        if not self._begun:
            self._begun, self._before_begin = self._event_at, self._clock() - self._created_at
        self._expected = _forecast(detail.get("expected", {}))
        self._forecast_stages = frozenset(self._expected)
        self._ticking = bool(detail.get("realtime", True))  # a virtual clock does not tick between its events
        self._workloads = {str(name): WorkloadProgress() for name in detail.get("workloads", ())}
        self._part = _Part("starting the system under test", self._event_at)

    def _enter(self, detail: Detail) -> None:
        stage, settings = str(detail["stage"]), detail.get("settings")
        if isinstance(detail.get("expected"), Mapping):  # a soak's, with the answer times that the sweep measured
            self._expected, self._pace = _forecast(detail["expected"]), 1.0
        chosen = settings if isinstance(settings, Mapping) else {}
        workloads = self._workloads if stage in FORECAST_PARTS else {}
        named = {name: "" if chosen else workload.setting for name, workload in workloads.items()}
        named |= {name: describe_setting(knobs) for name, knobs in chosen.items() if name in workloads}
        self._workloads = {name: WorkloadProgress(setting) for name, setting in named.items()}
        self._shown_stage = str(detail.get("soak", "")) if stage == "soak" else stage.replace("_", " ")
        self._stage, self._stage_begun, self._soaked_s = stage, self._event_at, 0.0
        self._part = _Part("", self._event_at, _figure(detail, "seconds"))

    def _soak_part(self, seconds: float, most: float | None) -> _Part:
        """Return a part of the soak: past its shortest duration it continues until it has enough answers."""
        counts = most is not None and most > seconds
        expected = self._expected.get("soak", 0.0) - self._soaked_s
        return _Part("", self._event_at, min(most, max(seconds, expected)) if counts and most else seconds, most)

    def _begin_part(self, part: _Part) -> None:
        before = self._part
        if before.seconds is not None:
            self._soaked_s += min(self._event_at - before.begun, before.seconds)
        self._part = part

    def _answer(self, detail: Detail) -> None:
        generation: Generation = detail["generation"]
        self._workloads.setdefault(generation.workload, WorkloadProgress()).take(generation)
        self._faults += generation.answer.fault is not None
        self._count(detail, warmup=generation.role is Role.WARMUP)

    def _count(self, detail: Detail, *, warmup: bool = False) -> None:
        if int(detail.get("answered", self._part.answered)) < self._part.answered:  # a pass counts each arm anew
            self._begin_part(_Part(self._part.name, self._last_answer_at, before=0))
        part, self._last_answer_at = self._part, self._event_at
        part.answered = int(detail.get("answered", part.answered + (not warmup)))
        part.of = _count(detail, "of") or part.of
        if part.before is None:
            part.before = max(0, part.answered - 1)
        if self._stage == "sweep" and part.of:
            self._planned = max(part.of, self._planned or 0)
            seconds_each, expected = part.seconds_each(self._event_at), self._expected.get("sweep")
            self._pace = seconds_each * self._planned / expected if seconds_each is not None and expected else None

    def _run_left(self, now: float, part_left: float | None) -> float | None:
        """Return the time left of this stage, plus the forecast of the later ones at the pace of the sweep."""
        stages = list(FORECAST_PARTS)
        if self._pace is None or self._stage not in stages:
            return None
        after = stages[stages.index(self._stage) + 1 :]
        soak = self._expected.get("soak", 0.0)
        rest = self._pace * sum(self._expected.get(name, 0.0) for stage in after for name in FORECAST_PARTS[stage])
        if self._stage == "sweep":
            return None if part_left is None else part_left + rest + soak
        stage_forecast = self._pace * sum(self._expected.get(name, 0.0) for name in FORECAST_PARTS[self._stage])
        timed = self._soaked_s
        if self._part.seconds is not None:
            timed += min(now - self._part.begun, self._part.seconds)
        untimed = now - self._stage_begun - timed
        clocked = max(0.0, soak - timed) if self._stage == "soak" else 0.0
        counted_left = part_left if part_left is not None and self._part.seconds is None else 0.0
        return rest + clocked + max(counted_left, stage_forecast - untimed)


def _forecast(expected: Detail) -> dict[str, float]:
    return {str(name): float(seconds) for name, seconds in expected.items()}


def _figure(detail: Detail, key: str) -> float | None:
    """Return a number of an event: None where there is none, as in an event that a remote host made up."""
    value = detail.get(key)
    return float(value) if isinstance(value, int | float) else None


def _count(detail: Detail, key: str) -> int | None:
    value = _figure(detail, key)
    return int(value) if value is not None else None


def _shown_readings(values: Detail) -> dict[str, Reading]:
    return {name: values[name] for name in SHOWN if name in values}


def _gauges(readings: Mapping[str, Reading]) -> Iterable[Gauge]:
    """Describe a sample of the host; headroom and pressure are shown even where they are unknown."""
    room, pressure = _number(readings, "memory_headroom"), _number(readings, "memory_pressure_level")
    free = f"memory {_status(readings, 'memory_headroom')}" if room is None else f"{show_bytes(room)} free"
    yield Gauge(free)
    if pressure is None:
        yield Gauge(f"pressure {_status(readings, 'memory_pressure_level')}")
    else:
        yield Gauge(f"pressure {PRESSURE.get(int(pressure), f'level {pressure:g}')}", alarming=pressure > 1)
    if (footprint := _number(readings, "subject_footprint")) is not None:
        yield Gauge(f"footprint {show_bytes(footprint)}")
    if (swap := _number(readings, "swap_used")) is not None:
        yield Gauge(f"swap {show_bytes(swap)}")
    if (thermal := _number(readings, "thermal_level")) is not None:
        yield Gauge(f"thermal level {thermal:g}", alarming=thermal > 0)


def _number(readings: Mapping[str, Reading], name: str) -> float | None:
    reading = readings.get(name)
    measured = reading is not None and reading.status == "ok" and isinstance(reading.value, int | float)
    return float(reading.value) if measured and reading is not None and reading.value is not None else None


def _status(readings: Mapping[str, Reading], name: str) -> str:
    return readings[name].status.replace("_", " ") if name in readings else "absent"
