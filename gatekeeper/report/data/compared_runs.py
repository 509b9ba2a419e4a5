"""Runs compared with each other: their figures side by side, and what is proven better or worse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from gatekeeper.core.records import Knobs
from gatekeeper.core.verdict import Estimate, known


def by_field(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass for JSON."""
    return {field.name: for_json(getattr(value, field.name)) for field in fields(value)}


def for_json(value: Any) -> Any:
    """Return a value for JSON, part by part; a dataclass by its own `document` where it has one, else by its fields."""
    if hasattr(value, "document"):
        return value.document()
    if is_dataclass(value):
        return by_field(value)
    if isinstance(value, Mapping):
        return {key: for_json(part) for key, part in value.items()}
    return [for_json(part) for part in value] if isinstance(value, tuple) else value


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
        optional = known(**{"n": self.n, "scope": self.scope, "from": self.source})
        return {"center": self.center, "lo": self.lo, "hi": self.hi, **optional}


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
            "a": for_json(self.a),
            "b": for_json(self.b),
            "change": self.change,
            "proven": self.proven,
            "says": self.says,
            **known(because=self.because),
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

    def document(self) -> dict[str, object]:
        """Return it as `compare --json` prints it."""
        parts = by_field(self)
        return {"schema": 1, "a": parts.pop("a"), "b": parts.pop("b"), "comparable": self.comparable, **parts}


def comparisons_document(comparisons: Sequence[RunComparison]) -> dict[str, object]:
    """Return what `compare --json` prints: one comparison, or a list of one for each run after the first."""
    documents = [comparison.document() for comparison in comparisons]
    return documents[0] if len(documents) == 1 else {"schema": 1, "comparisons": documents}
