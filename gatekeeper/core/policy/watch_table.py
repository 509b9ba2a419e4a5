"""The tables `[watch]` and `[[guard]]` of a policy: what is watched while a route speculates, and how."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from gatekeeper.core.metrics import WATCHED
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.slo import MetricBound
from gatekeeper.core.toml_file import InputTable, Seconds


class Guard(MetricBound):
    """One bound to watch while a route speculates; violated for longer than `for`, the route goes one step down."""

    METRICS: ClassVar[Mapping[str, Metric]] = WATCHED
    UNKNOWN: ClassVar[str] = "guards cannot watch the metric"

    for_: Seconds = Field(alias="for", ge=0, description="how long the bound must be violated")
    over: Seconds | None = Field(default=None, gt=0, description="the time span that is judged; default [watch] window")
    missing_for: Seconds | None = Field(
        default=None, gt=0, description="how long data may be missing; default [watch] missing_for"
    )
    why: str = ""

    @model_validator(mode="after")
    def _possible(self) -> "Guard":
        if self.bound != ("at_least" if self.of.higher_is_better else "at_most"):
            wrong, right = self.bound, "at_most" if self.bound == "at_least" else "at_least"
            better = "higher" if self.of.higher_is_better else "lower"
            raise ValueError(f"{self.metric} is better when {better}, so {wrong} is no guard\nwrite {right}")
        self.check_possible("host")
        return self

    @property
    def name(self) -> str:
        """Return a name that is unique among the guards of a workload."""
        return f"{self.metric} {self.bound} {self.threshold:g}"


class Watch(InputTable):
    """How often `gatekeeper watch` measures, and how slowly it turns speculation on again."""

    interval: Seconds = Field(default=60.0, ge=0.001, description="time between two measurements")
    duty: float = Field(default=0.02, gt=0, le=0.5, description="largest share of the time spent on canaries")
    canaries: int = Field(default=4, ge=1, description="canaries sent per measurement and workload, at most")
    window: Seconds = Field(default=86400.0, gt=0, description="older answers are not judged")
    missing_for: Seconds = Field(default=3600.0, gt=0, description="without data for longer, speculation is turned off")
    quiet_for: Seconds = Field(
        default=3600.0, gt=0, description="time without violations before one step up; doubled after each relapse"
    )
    quiet_most: Seconds = Field(default=86400.0, gt=0, description="longest quiet_for after doubling")
    false_alarms: float = Field(
        default=0.05, ge=1e-6, lt=0.5, description="chance of a wrong step down per route over the policy's life"
    )
    slack: float = Field(
        default=0.15, ge=0, lt=1, description="a slowdown up to this share is ignored where there is no plain decoding"
    )
    on_change: tuple[tuple[str, ...], ...] = Field(default=(), description="commands to run when a route changes")

    @field_validator("on_change")
    @classmethod
    def _not_empty(cls, commands: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        if any(not command or not command[0] for command in commands):
            raise ValueError(
                'each command must be a list that starts with a program\nwrite [["/path/to/program", "word"]]'
            )
        return commands

    @model_validator(mode="after")
    def _ordered(self) -> "Watch":
        if self.quiet_most < self.quiet_for:
            raise ValueError("quiet_most is shorter than quiet_for")
        if self.missing_for < self.interval:
            raise ValueError("missing_for is shorter than interval: every measurement would find its data missing")
        return self
