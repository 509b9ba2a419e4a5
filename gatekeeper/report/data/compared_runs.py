"""Runs compared with each other: their figures side by side, and what is proven better or worse."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gatekeeper.core.records import Knobs
from gatekeeper.core.verdict import Estimate


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A measured figure of a verdict: its centre, both ends of its interval and the number of samples."""

    center: float
    lo: float
    hi: float
    n: int | None = None
    scope: str | None = None
    source: str | None = None
    """`claims` where the server counted; None where we did."""

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> "ComparedFigure | None":
        """Return a figure of a stored verdict; None where there is none."""
        if not document:
            return None
        ends = document["center"], document["lo"], document["hi"]
        return cls(*ends, document.get("n"), document.get("scope"), document.get("from"))

    def estimate(self, confidence: float | None = None) -> Estimate:
        """Return it as an estimate whose bounds have this confidence."""
        return Estimate(self.center, self.lo, self.hi, 1 if self.n is None else self.n, confidence=confidence)

    def document(self) -> dict[str, object]:
        """Return it as a verdict writes it."""
        optional = {"n": self.n, "scope": self.scope, "from": self.source}
        written = {key: value for key, value in optional.items() if value is not None}
        return {"center": self.center, "lo": self.lo, "hi": self.hi, **written}


def figure_document(figure: ComparedFigure | None) -> dict[str, object] | None:
    """Return a figure's document; None where it was not measured."""
    return figure.document() if figure is not None else None


@dataclass(frozen=True, slots=True)
class Contrast:
    """One metric of two runs, A and B."""

    metric: str
    a: ComparedFigure | None
    b: ComparedFigure | None
    says: str
    change: float | None = None
    """Of B against A: a share, or a difference where the metric is relative already."""
    proven: bool = False
    because: str | None = None
    """Why the two figures are not compared."""

    def document(self) -> dict[str, object]:
        """Return it as `compare --json` prints it."""
        return {
            "metric": self.metric,
            "a": figure_document(self.a),
            "b": figure_document(self.b),
            "change": self.change,
            "proven": self.proven,
            "says": self.says,
            **({"because": self.because} if self.because is not None else {}),
        }


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

    def document(self) -> dict[str, object]:
        """Return it as `compare --json` prints it."""
        return {"outcome": self.outcome, "setting": dict(self.setting)}


@dataclass(frozen=True, slots=True)
class ComparedWorkload:
    """One workload of two runs; a run without it has no result."""

    name: str
    not_comparable: tuple[str, ...]
    """What forbids the comparison."""
    a: WorkloadResult | None
    b: WorkloadResult | None
    metrics: tuple[Contrast, ...]

    def document(self) -> dict[str, object]:
        """Return it as `compare --json` prints it."""
        return {
            "name": self.name,
            "not_comparable": list(self.not_comparable),
            "a": self.a.document() if self.a is not None else None,
            "b": self.b.document() if self.b is not None else None,
            "metrics": [contrast.document() for contrast in self.metrics],
        }


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

    def document(self) -> dict[str, object]:
        """Return it as `compare --json` prints it."""
        return {
            "schema": 1,
            "a": asdict(self.a),
            "b": asdict(self.b),
            "comparable": self.comparable,
            "not_comparable": list(self.not_comparable),
            "differences": list(self.differences),
            "notes": list(self.notes),
            "workloads": [workload.document() for workload in self.workloads],
        }


def comparisons_document(comparisons: Sequence[RunComparison]) -> dict[str, object]:
    """Return what `compare --json` prints: one comparison, or a list of one for each run after the first."""
    documents = [comparison.document() for comparison in comparisons]
    return documents[0] if len(documents) == 1 else {"schema": 1, "comparisons": documents}
