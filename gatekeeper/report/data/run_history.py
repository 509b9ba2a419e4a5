"""Stored runs over time: what each one showed, what changed since the one before, and the trend of the newest ones."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from gatekeeper.core.records import Knobs
from gatekeeper.report.data.compared_runs import ComparedFigure, Contrast, figure_document


@dataclass(frozen=True, slots=True)
class StandingCheck:
    """A check that failed or is open."""

    about: str
    metric: str
    because: str


@dataclass(frozen=True, slots=True)
class HistoryWorkload:
    """What one run showed of a workload."""

    outcome: str
    setting: Knobs
    figures: Mapping[str, ComparedFigure | None]
    """Of the metrics whose trend is shown."""
    speed: ComparedFigure | None
    """Against plain decoding, of the fastest setting that was soaked with a draft."""
    bound: float | None
    """What the SLO requires of it."""

    def document(self) -> dict[str, object]:
        """Return it as `history --json` prints it."""
        return {
            "outcome": self.outcome,
            "setting": dict(self.setting),
            **{metric: figure_document(figure) for metric, figure in self.figures.items()},
            "speed": figure_document(self.speed),
            "bound": self.bound,
        }


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """One stored run."""

    run: str
    at: str
    outcome: str
    grade: str | None
    trouble: str | None
    """Why its verdict is not trusted, if it is not."""
    footprint_peak: float | None
    host: str
    failed: tuple[StandingCheck, ...]
    workloads: Mapping[str, HistoryWorkload]
    changed: tuple[str, ...] = ()
    """What differs from the run before it on the same host."""

    def document(self) -> dict[str, object]:
        """Return it as `history --json` prints it."""
        return {
            "run": self.run,
            "at": self.at,
            "outcome": self.outcome,
            "grade": self.grade,
            "trouble": self.trouble,
            "footprint_peak": self.footprint_peak,
            "host": self.host,
            "changed": list(self.changed),
            "failed": [asdict(check) for check in self.failed],
            "workloads": {name: workload.document() for name, workload in self.workloads.items()},
        }


@dataclass(frozen=True, slots=True)
class Trend:
    """The newest run against the newest comparable one before it."""

    before: str
    after: str
    differences: tuple[str, ...]
    workloads: Mapping[str, tuple[Contrast, ...]]
    footprint_peak: Contrast

    def document(self) -> dict[str, object]:
        """Return it as `history --json` prints it."""
        return {
            "a": self.before,
            "b": self.after,
            "differences": list(self.differences),
            "workloads": {name: [row.document() for row in rows] for name, rows in self.workloads.items()},
            "footprint_peak": self.footprint_peak.document(),
        }


@dataclass(frozen=True, slots=True)
class NoTrend:
    """No earlier run can be compared with the newest one."""

    after: str
    because: str

    def document(self) -> dict[str, object]:
        """Return it as `history --json` prints it."""
        return {"a": None, "b": self.after, "because": self.because}


@dataclass(frozen=True, slots=True)
class SloHistory:
    """The runs of one SLO, oldest first."""

    slo: str
    runs: tuple[HistoryRun, ...]
    trend: Trend | NoTrend | None
    """None with fewer than two complete runs."""

    def document(self) -> dict[str, object]:
        """Return it as `history --json` prints it."""
        trend = self.trend.document() if self.trend is not None else None
        return {"slo": self.slo, "runs": [run.document() for run in self.runs], "trend": trend}


@dataclass(frozen=True, slots=True)
class UnreadableRun:
    """A folder that cannot be read as a run."""

    run: str
    because: str


@dataclass(frozen=True, slots=True)
class RunHistory:
    """All runs of a folder, by SLO."""

    slos: tuple[SloHistory, ...]
    unreadable: tuple[UnreadableRun, ...] = field(default=())

    def document(self) -> dict[str, object]:
        """Return it as `history --json` prints it."""
        slos = [slo.document() for slo in self.slos]
        return {"schema": 1, "slos": slos, "unreadable": [asdict(run) for run in self.unreadable]}
