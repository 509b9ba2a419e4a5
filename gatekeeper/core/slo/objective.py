"""Objectives: a metric, one bound and the reason for it; guards are bounds of the same kind."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gatekeeper.core.metrics import BY_NAME, RUN_TO_RUN, suggest_metric
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.toml_file import InputTable, Quantity
from gatekeeper.core.units import UNITS_OF
from gatekeeper.core.units import parse as parse_quantity

Bound = Literal["at_least", "at_most"]


_SLOWEST_SHARE = 0.5
"""A bound on a speed ratio below it, in per cent, was meant as a gain."""


class MetricBound(InputTable):
    """One bound on a metric, for some workloads or for all: an objective, or a guard."""

    METRICS: ClassVar[Mapping[str, Metric]] = BY_NAME
    UNKNOWN: ClassVar[str] = "unknown metric"

    metric: str
    at_least: Quantity | None = None
    at_most: Quantity | None = None
    workloads: tuple[str, ...] = ()

    @field_validator("metric")
    @classmethod
    def _check_metric(cls, metric: str) -> str:
        if metric not in cls.METRICS:
            raise ValueError(f"{cls.UNKNOWN} '{metric}'\n{suggest_metric(metric, cls.METRICS)}")
        return metric

    @field_validator("at_least", "at_most", mode="before")
    @classmethod
    def _in_its_unit(cls, written: object, validation: ValidationInfo) -> object:
        metric = cls.METRICS.get(validation.data.get("metric", ""))
        if metric is None or not isinstance(written, str | bool):
            return written
        value = parse_quantity(written, UNITS_OF[metric.unit])
        if metric.speed_ratio and "%" in str(written) and value < _SLOWEST_SHARE:
            raise ValueError(
                f"{written} is {value:g} times plain decoding's speed\nwrite {1 + value:g} for so much more"
            )
        return value

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            kind = type(self).__name__.lower()
            problem, hint = "both are set", "remove one; a range takes two of them with one bound each"
            if self.at_least is None:
                bound = "at_least" if self.of.higher_is_better else "at_most"
                problem, hint = (
                    "neither is set",
                    f"add {bound} = …, the {'least' if bound == 'at_least' else 'most'} allowed",
                )
            raise ValueError(f"{kind} on '{self.metric}': set exactly one of at_least, at_most: {problem}\n{hint}")
        return self

    def check_possible(self, owner: str) -> None:
        """Raise ValueError for a bound out of the metric's range, and for workloads on a metric of the *owner*."""
        self.of.reject_impossible(self.bound, self.threshold)
        if self.of.host and self.workloads:
            raise ValueError(f"{self.metric} is measured for the whole {owner}, not per workload\nremove `workloads`")

    @property
    def of(self) -> Metric:
        """Return the metric that is bounded."""
        return self.METRICS[self.metric]

    @property
    def bound(self) -> Bound:
        """Return `at_least` or `at_most`."""
        return "at_least" if self.at_least is not None else "at_most"

    @property
    def threshold(self) -> float:
        """Return the bound in base units."""
        value = self.at_least if self.at_least is not None else self.at_most
        return float(value) if value is not None else 0.0

    def applies_to(self, workload: str) -> bool:
        """Return whether it applies to *workload*; without names it applies to all."""
        return not self.workloads or workload in self.workloads


class Objective(MetricBound):
    """One objective: a metric, one bound, and the reason for it."""

    when: Literal["speculating", "always"] | None = None
    scope: Literal["frozen", "population"] = "frozen"
    source: Literal["ours", "claims"] = Field(
        default="ours",
        alias="from",
        description="whose count of rounds: ours; claims: the server's",
    )
    or_with: Literal["warm-up"] | None = Field(
        default=None,
        description="of ttft_delta: it also passes if a warmed drafting request keeps the bound against plain decoding "
        "after a pause; policy.toml then requires the warm-up",
    )
    against: Literal["certified"] | None = Field(
        default=None,
        description="certified: the bound is on this run over the SLO's certified runs",
    )
    why: str = Field(min_length=1)

    @field_validator("workloads", mode="before")
    @classmethod
    def _some(cls, workloads: object) -> object:
        if workloads == ():
            raise ValueError("must not be empty\nname workloads, or remove it: the objective is then for all")
        return workloads

    @model_validator(mode="after")
    def _possible(self) -> "Objective":
        if self.against is not None:
            self._check_comparable()
            return self
        self.check_possible("run")
        if self.scope == "population" and not self.of.population:
            raise ValueError(f"{self.metric} describes this run, not a population of prompts\nremove `scope`")
        if self.when == "always" and self.of.default_when == "speculating":
            raise ValueError(f"{self.metric} is not defined for plain decoding\nremove `when`")
        if self.or_with is not None and (self.metric, self.bound) != ("ttft_delta", "at_most"):
            raise ValueError(
                "a warm-up is another way to keep at_most on ttft_delta, and of nothing else\nremove `or_with`"
            )
        return self

    def _check_comparable(self) -> None:
        """Raise ValueError for an objective against the certified run that two runs cannot show."""
        if self.metric not in RUN_TO_RUN:
            hint = f"one of {', '.join(RUN_TO_RUN)}; absolute times need both versions in one run: gatekeeper versus"
            raise ValueError(f"{self.metric} cannot be compared with the certified run\n{hint}")
        if self.scope != "frozen" or self.or_with is not None or self.when == "always":
            raise ValueError(
                'against = "certified" compares the canaries of two runs while speculating\n'
                "remove `scope`, `or_with` and `when`"
            )
        if self.of.pass_rate is not None:
            self.check_possible("run")
        elif not self.of.relative and self.threshold <= 0:
            raise ValueError(
                "this bound is a ratio of two runs and must be greater than 0\nfor example at_least = 0.97"
            )

    @property
    def beyond_canaries(self) -> bool:
        """Return whether an estimate must hold for prompts like the canaries: settings compete in no count."""
        return self.scope == "population" and not self.of.counted

    @property
    def applies_when(self) -> str:
        """Return `speculating` or `always`."""
        return self.when or self.of.default_when
