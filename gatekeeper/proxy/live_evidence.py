"""Evidence from live requests: what speculation gains over the holdout, bounded at every moment."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from gatekeeper.analysis.stats import anytime
from gatekeeper.analysis.stats.anytime import Moments
from gatekeeper.core.clock import Instant
from gatekeeper.core.metrics import DECODE_RATIO
from gatekeeper.core.policy import Guard, Policy
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import Check, Estimate, Missing, Outcome
from gatekeeper.deploy.watch.guards import GuardResult

ARMS = ("speculative", "holdout")
SHOWN_ERROR = 0.05
"""The interval that is shown holds the truth on 95 % of the days."""
PARTS = (1, 24)
"""A loss is looked for in the whole window and in its parts, so that good hours before do not hide it."""
TESTS = 2
"""Speed and errors, which share the allowed error."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One answered request whose arm was drawn."""

    workload: str
    arm: str
    epoch: int
    """The setting's number when its arm was drawn: later settings are not judged by it."""
    prompt_chars: int
    answer_chars: int
    streamed: bool
    speed: float | None
    """Characters per second."""
    ttft: float | None
    failed: bool


class Arm:
    """What the answers of one arm add up to."""

    def __init__(self) -> None:
        self.speed, self.ttft = Moments(4), Moments(3)
        self.n = self.failed = 0

    def add(self, observation: Observation) -> None:
        """Count one answer."""
        self.n += 1
        self.failed += observation.failed
        prompt, answer = math.log1p(observation.prompt_chars), math.log1p(observation.answer_chars)
        streamed = float(observation.streamed)
        if observation.failed:
            return
        if observation.speed:
            self.speed.add((prompt, answer, streamed, math.log(observation.speed)))
        if observation.ttft:
            self.ttft.add((prompt, streamed, math.log(observation.ttft)))


@dataclass(slots=True)
class Span:
    """The evidence of one stretch of time, which begins anew when it is over."""

    seconds: float
    begun_ns: int
    arms: dict[str, Arm] = field(default_factory=lambda: {name: Arm() for name in ARMS})

    def add(self, observation: Observation, now_ns: int) -> None:
        """Count one answer, in a new stretch where this one is over."""
        if now_ns - self.begun_ns >= self.seconds * 1e9:
            self.begun_ns, self.arms = now_ns, {name: Arm() for name in ARMS}
        self.arms[observation.arm].add(observation)

    def ratio(self, name: str, error: float) -> Estimate | Missing:
        """Bound the ratio of `speed` or `ttft`, speculative over holdout."""
        speculative, holdout = (getattr(self.arms[arm], name) for arm in ARMS)
        return anytime.ratio(speculative, holdout, error)

    def failures(self, error: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Bound the share of failed answers in each arm, all bounds together with *error*."""
        first, second = (anytime.share(self.arms[arm].failed, self.arms[arm].n, error / 2) for arm in ARMS)
        return first, second


@dataclass(frozen=True, slots=True)
class Benefit:
    """What one workload's live requests show since its setting is in force, or since the window began."""

    workload: str
    answers: dict[str, int]
    speed: Estimate | Missing
    ttft: Estimate | Missing
    error_share: dict[str, tuple[float, float]]
    error_ratio: tuple[float, float | None]


class LiveGuard(Guard):
    """A bound on live requests; its name differs from that of a guard on canaries."""

    @property
    def name(self) -> str:
        """Return a name that is unique among the guards of a workload."""
        return f"live {self.metric} {self.bound} {self.threshold:g}"


class LiveEvidence:
    """Observations of every workload; the proxy adds them, the watch judges them in its own thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[str, tuple[Span, ...]] = {}
        self._epochs: dict[str, int] = {}

    def restart(self, workload: str, window: float, now_ns: int) -> None:
        """Drop the evidence of a workload: another setting is in force."""
        with self._lock:
            self._epochs[workload] = self._epochs.get(workload, 0) + 1
            self._spans[workload] = tuple(Span(window / part, now_ns) for part in PARTS)

    def epoch(self, workload: str) -> int:
        """Return the number of the setting in force."""
        return self._epochs.get(workload, 0)

    def add(self, observation: Observation, now_ns: int) -> None:
        """Count one answer, unless another setting has come into force since its arm was drawn."""
        with self._lock:
            if observation.epoch == self._epochs.get(observation.workload):
                for span in self._spans[observation.workload]:
                    span.add(observation, now_ns)

    def benefit(self, workload: str) -> Benefit | None:
        """Return what is shown of a workload; None where nothing was drawn yet."""
        with self._lock:
            if workload not in self._spans:
                return None
            window = self._spans[workload][0]
            counts = {name: arm.n for name, arm in window.arms.items()}
            speculative, holdout = window.failures(SHOWN_ERROR)
            ratio = speculative[0] / holdout[1], speculative[1] / holdout[0] if holdout[0] > 0 else None
            shares = dict(zip(ARMS, (speculative, holdout), strict=True))
            speed, ttft = window.ratio("speed", SHOWN_ERROR), window.ratio("ttft", SHOWN_ERROR)
        return Benefit(workload, counts, speed, ttft, shares, ratio)

    def judge(self, workload: str, policy: Policy, now: Instant) -> Sequence[GuardResult]:
        """Return a crossed guard where the benefit is proven gone; nothing otherwise, as the canaries decide then."""
        with self._lock:
            for span in self._spans.get(workload, ()):
                error = policy.watch.false_alarms * span.seconds / max(policy.lifetime, span.seconds)
                if crossed := _loss(workload, span, policy.proxy.speedup_at_least, error / len(PARTS) / TESTS, now):
                    return (crossed,)
        return ()


def _loss(workload: str, span: Span, least: float, error: float, now: Instant) -> GuardResult | None:
    """Return what a span proves against speculation."""
    about = f"live requests of the last {show_seconds((now.now_ns - span.begun_ns) / 1e9)}"
    counts = f"{span.arms['speculative'].n} speculative and {span.arms['holdout'].n} plain answers"
    speed = span.ratio("speed", error)
    if isinstance(speed, Estimate) and speed.hi < least:
        reason = f"{about}: decode speed {speed.lo:.2f}x to {speed.hi:.2f}x of plain decoding's by {counts}"
        return _crossed(workload, DECODE_RATIO, speed, reason, now, at_least=least)
    (lo, hi), (_, plain) = span.failures(error)
    if lo > plain:
        reason = f"{about}: {lo:.1%} to {hi:.1%} of the speculative answers fail, at most {plain:.1%} of the plain ones"
        arm = span.arms["speculative"]
        share = Estimate(arm.failed / arm.n, lo, hi, arm.n)
        return _crossed(workload, "error_rate", share, reason, now, at_most=max(plain, 0.0))
    return None


def _crossed(workload: str, metric: str, estimate: Estimate, reason: str, now: Instant, **bound: float) -> GuardResult:
    guard = LiveGuard.model_validate(
        {"metric": metric, **bound, "for": 0.0, "workloads": (workload,), "why": "proven on live requests"}
    )
    check = Check(
        guard.metric,
        guard.bound,
        guard.threshold,
        Outcome.FAIL,
        unit=guard.of.unit,
        because=reason,
        why=guard.why,
        center=estimate.center,
        lo=estimate.lo,
        hi=estimate.hi,
        n=estimate.n,
    )
    return GuardResult(guard, workload, check, now.now_ns)
