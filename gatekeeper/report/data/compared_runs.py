"""Runs compared with each other: their figures side by side, and what is proven better or worse."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, model_serializer

from gatekeeper.analysis.verdict.run_verdict import Measured
from gatekeeper.core.document import IF_ANY, WriteFields, document_of
from gatekeeper.core.judgement import Estimate
from gatekeeper.core.records import Knobs


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A measured figure of a verdict: its centre, both ends of its interval and the number of samples."""

    center: float
    lo: float
    hi: float
    n: Annotated[int | None, IF_ANY] = None
    scope: Annotated[str | None, IF_ANY] = None
    source: Annotated[str | None, IF_ANY, Field(alias="from")] = None
    """`claims` where the server counted; None where we did."""

    def estimate(self, confidence: float | None = None) -> Estimate:
        """Return it as an estimate whose bounds have this confidence."""
        return Estimate(self.center, self.lo, self.hi, 1 if self.n is None else self.n, confidence=confidence)


def figure_of(measured: Measured, metric: str) -> ComparedFigure | None:
    """Return what a soak showed of a metric; None where it was not measured."""
    figure = measured.figures.get(metric)
    if figure is None:
        return None
    source = "claims" if measured.claims(metric) else None
    return ComparedFigure(figure.center, figure.lo, figure.hi, figure.n, figure.scope, source)


@dataclass(frozen=True, slots=True)
class Contrast:
    """One metric of two runs, A and B."""

    metric: str
    a: ComparedFigure | None
    b: ComparedFigure | None
    change: float | None = None
    """How far B is from A: a share, or a difference where the metric is relative already."""
    proven: bool = False
    says: str = field(kw_only=True)
    because: Annotated[str | None, IF_ANY] = None
    """Why the two figures are not compared."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of the runs."""

    run: str
    slo: str
    at: str
    outcome: str
    grade: str
    incomplete: str | None
    backend: str


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """What became of a workload in one run."""

    outcome: str
    setting: Knobs


@dataclass(frozen=True, slots=True)
class ComparedWorkload:
    """One workload of two runs; a run without it has no result."""

    name: str
    not_comparable: tuple[str, ...]
    """What forbids the comparison."""
    a: WorkloadResult | None
    b: WorkloadResult | None
    metrics: tuple[Contrast, ...]


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs compared, workload by workload."""

    a: ComparedRun
    b: ComparedRun
    not_comparable: tuple[str, ...]
    differences: tuple[str, ...]
    """What differs and may be the cause of a change."""
    notes: tuple[str, ...]
    workloads: tuple[ComparedWorkload, ...]

    @property
    def comparable(self) -> bool:
        """Return whether any workload can be compared."""
        return any(not workload.not_comparable for workload in self.workloads)

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        return {"schema": 1, "a": None, "b": None, "comparable": self.comparable} | write(self)


def comparisons_document(comparisons: Sequence[RunComparison]) -> dict[str, object]:
    """Return what `compare --json` prints: one comparison, or a list of one for each run after the first."""
    documents = [document_of(comparison) for comparison in comparisons]
    return documents[0] if len(documents) == 1 else {"schema": 1, "comparisons": documents}
