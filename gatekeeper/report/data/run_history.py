"""Stored runs over time: what each one showed, what changed since the one before, and the trend of the newest ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import model_serializer

from gatekeeper.core.document import WriteFields
from gatekeeper.core.records import Knobs
from gatekeeper.report.data.compared_runs import ComparedFigure, Contrast


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
    """The figures of the metrics whose trend is shown."""
    speed: ComparedFigure | None
    """Against plain decoding, of the fastest setting that was soaked with a draft."""
    bound: float | None
    """What the SLO requires of it."""

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        written = write(self)
        figures: dict[str, Any] = written.pop("figures")
        return {"outcome": self.outcome, "setting": self.setting} | figures | written


@dataclass(frozen=True, slots=True, kw_only=True)
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
    changed: tuple[str, ...] = ()
    """What differs from the run before it on the same host."""
    failed: tuple[StandingCheck, ...]
    workloads: Mapping[str, HistoryWorkload]


@dataclass(frozen=True, slots=True)
class Trend:
    """The newest run against the newest comparable one before it."""

    a: str
    """The run before."""
    b: str
    differences: tuple[str, ...]
    workloads: Mapping[str, tuple[Contrast, ...]]
    footprint_peak: Contrast


@dataclass(frozen=True, slots=True)
class NoTrend:
    """No earlier run can be compared with the newest one."""

    after: str
    because: str

    @model_serializer
    def _write(self) -> dict[str, Any]:
        return {"a": None, "b": self.after, "because": self.because}


@dataclass(frozen=True, slots=True)
class SloHistory:
    """The runs of one SLO, oldest first."""

    slo: str
    runs: tuple[HistoryRun, ...]
    trend: Trend | NoTrend | None
    """None with fewer than two complete runs."""


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

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        return {"schema": 1} | write(self)
