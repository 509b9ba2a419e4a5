"""What a comparison of two systems shows: each metric of B over A, and what differs between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, model_serializer

from gatekeeper.analysis.plan.settings import setting_document
from gatekeeper.core.document import WriteFields
from gatekeeper.core.judgement import Estimate, Missing, figures, omit_none
from gatekeeper.core.records import Setting
from gatekeeper.versus.answer_comparison import WordComparison


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of B over A."""

    metric: str
    value: Estimate | Missing
    says: str
    """better, worse, no difference shown, not measured; nothing for a share of equal answers."""

    @model_serializer
    def _write(self) -> dict[str, Any]:
        level = {} if isinstance(self.value, Missing) else omit_none(confidence=self.value.confidence)
        return {"metric": self.metric, **figures("center", self.value), **level, "says": self.says}


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One of the two systems."""

    label: Annotated[str, Field(alias="side")]
    name: str
    """As the command line has it."""
    versions: Mapping[str, str]
    model: str | None
    """As its answers name it."""
    setting: Annotated[Setting, PlainSerializer(setting_document)]
    measured: Mapping[str, Annotated[Estimate | Missing, PlainSerializer(partial(figures, "center"))]]
    memory_peak: int | None


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

    @model_serializer(mode="wrap")
    def _write(self, write: WriteFields) -> dict[str, Any]:
        return {"schema": 1} | write(self)
