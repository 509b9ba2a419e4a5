"""What a comparison of two systems shows: each metric of B over A, and what differs between them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.core.records import Setting
from gatekeeper.core.verdict import Estimate, Missing, figures, known
from gatekeeper.versus.answer_comparison import WordComparison


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of B over A."""

    metric: str
    value: Estimate | Missing
    says: str
    """better, worse, no difference shown, not measured; nothing for a share of equal answers."""

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        level = {} if isinstance(self.value, Missing) else known(confidence=self.value.confidence)
        return {"metric": self.metric, **figures("center", self.value), **level, "says": self.says}


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One of the two systems."""

    label: str
    name: str
    """As the command line has it."""
    versions: Mapping[str, str]
    model: str | None
    """As its answers name it."""
    setting: Setting
    measured: Mapping[str, Estimate | Missing]
    memory_peak: int | None

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "side": self.label,
            "name": self.name,
            "versions": dict(self.versions),
            "model": self.model,
            "setting": setting_document(self.setting),
            "measured": {metric: figures("center", value) for metric, value in self.measured.items()},
            "memory_peak": self.memory_peak,
        }


@dataclass(frozen=True, slots=True)
class VersusResult:
    """What `gatekeeper versus` found out."""

    slo: str
    workload: str
    confidence: float
    a: ComparedSide
    b: ComparedSide
    differences: tuple[str, ...]
    """Parts of the two manifests."""
    metrics: tuple[MetricComparison, ...]
    words: WordComparison | None
    """None above temperature 0."""
    warnings: tuple[str, ...]
    """What makes the two unlike beside the systems themselves."""
    seconds: float
    rounds: int
    run: str | None
    """None: its answers are not kept."""

    @property
    def is_worse(self) -> bool:
        """Return whether a metric of B is proven worse."""
        return any(comparison.says == "worse" for comparison in self.metrics)

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        metrics = [comparison.document() for comparison in self.metrics]
        words = self.words.document() if self.words is not None else None
        sides = {"a": self.a.document(), "b": self.b.document()}
        return {"schema": 1} | asdict(self) | sides | {"metrics": metrics, "words": words}
