"""The latest answers of a workload: its speeds, its acceptance and its ratio to plain decoding so far."""

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import fmean

from gatekeeper.core.records import Generation, Role
from gatekeeper.core.text import describe_setting
from gatekeeper.core.verdict import Estimate

RECENT = 20
"""Answers over which the current speed and acceptance are averaged."""
LEAST_CANARIES = 5
"""With fewer canaries than this in both arms no ratio is shown."""
LIVE_LEVEL = 0.95
"""Confidence of each bound of the ratio."""


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload now: its setting and its latest figures."""

    workload: str
    setting: str
    plain: float | None
    """Tokens per second of one stream after its first burst, as the verdict counts them."""
    drafting: float | None
    acceptance: float | None
    answered: int
    ratio: tuple[float, float, float] | None = None
    """Drafting over plain decoding in this stage, a pair of mean speeds a canary: centre and 95 % bounds."""


@dataclass(slots=True)
class _Logs:
    """The log speeds of one trial, as sums by canary, so that a soak of a day takes no memory."""

    sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, canary: str, speed: float) -> None:
        total, count = self.sums.get(canary, (0.0, 0))
        self.sums[canary] = total + math.log(speed), count + 1

    def ratios(self, plain: "_Logs") -> dict[str, list[float]]:
        """Return the ratio to plain decoding of each canary that both have answered."""
        return {
            canary: [math.exp(total / count - plain.sums[canary][0] / plain.sums[canary][1])]
            for canary, (total, count) in self.sums.items()
            if canary in plain.sums
        }


@dataclass(slots=True)
class WorkloadProgress:
    """The latest answers of one workload in this stage."""

    setting: str = ""
    answered: int = 0
    drafting: str | None = None
    """The trial that drafted last."""
    speeds: dict[str | None, deque[float]] = field(default_factory=dict)
    """By trial; plain decoding's under None."""
    rates: dict[str | None, deque[float]] = field(default_factory=dict)
    logs: dict[str | None, _Logs] = field(default_factory=dict)
    ratio: tuple[float, float, float] | None = None
    stale: bool = False
    """More answers came since the ratio was computed."""

    def take(self, generation: Generation) -> None:
        """Take one answer; a warm-up changes the setting alone."""
        trial = None if generation.arm == "plain" else generation.trial
        answer = generation.answer
        if trial is not None:
            self.drafting, self.setting = trial, describe_setting(dict(generation.setting))
        if generation.role is Role.WARMUP:
            return
        self.answered += 1
        from gatekeeper.analysis.metrics.timing import decode_or_answer_rate  # noqa: PLC0415 (numpy, once it measures)

        if (speed := decode_or_answer_rate(answer)) is not None:
            self.speeds.setdefault(trial, deque(maxlen=RECENT)).append(speed)
            self.logs.setdefault(trial, _Logs()).add(generation.canary, speed)
            self.stale = True
        counts = answer.rounds or answer.claims
        if counts.drafted and counts.accepted is not None:
            self.rates.setdefault(trial, deque(maxlen=RECENT)).append(counts.accepted / counts.drafted)

    def row(self, name: str) -> WorkloadRow:
        """Return the latest figures of the workload *name*."""
        trial = self.drafting or ""
        recent = (self.speeds.get(None), self.speeds.get(trial), self.rates.get(trial))
        plain, drafting, acceptance = (fmean(values) if values else None for values in recent)
        if self.stale:
            self.ratio, self.stale = self._ratio(trial), False
        return WorkloadRow(name, self.setting, plain, drafting, acceptance, self.answered, ratio=self.ratio)

    def _ratio(self, trial: str) -> tuple[float, float, float] | None:
        arms = self.logs.get(trial), self.logs.get(None)
        pairs = arms[0].ratios(arms[1]) if arms[0] is not None and arms[1] is not None else {}
        if len(pairs) < LEAST_CANARIES:
            return None
        from gatekeeper.analysis.stats.intervals import geometric_mean_ratio  # noqa: PLC0415 (numpy, for a live ratio)

        estimate = geometric_mean_ratio(pairs, LIVE_LEVEL)
        return (estimate.center, estimate.lo, estimate.hi) if isinstance(estimate, Estimate) else None
