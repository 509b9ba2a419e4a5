"""Evidence from live requests: what one answer shows, and what speculation gains over the holdout, bounded always."""

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

from gatekeeper.core.clock import Instant
from gatekeeper.core.judgement import Check, Estimate, Missing, Outcome, figures
from gatekeeper.core.metrics import ANSWER_RATIO, BY_NAME, DECODE_RATIO, WATCHED
from gatekeeper.core.policy import Guard, Policy
from gatekeeper.core.units import show_ratio, show_seconds
from gatekeeper.live import anytime_bounds
from gatekeeper.live.anytime_bounds import Moments
from gatekeeper.live.guards.guard_judgement import GuardResult
from gatekeeper.live.server_load import IDLE, LoadMet

Row = tuple[float, ...]
KNOTS = (0.0, 1.0, 3.0)
"""Other answers in flight, between which the logarithm of a speed is taken as linear in their number."""
ARMS = ("speculative", "holdout")
SHOWN_ERROR = 0.05
"""The interval that is shown holds the truth on 95 % of the days."""
PARTS = (1, 24)
"""A loss is looked for in the whole window and in its parts, so that good hours before do not hide it."""
TESTS = 2
"""Speed and errors, which share the allowed error; the speed of whole answers is a third one where it counts."""
STREAM = '"stream": true and "stream_options": {"include_usage": true}'
"""What a client sends so that its answers prove the most."""
NOT_STREAMED = "answers that are not streamed show it only where the server states it"
LEAST_CONVERSATIONS = 16
"""Fewer in an arm decide nothing: normal theory needs as many for skewed errors."""
MOST_OPEN = 1024
"""Conversations of an arm that may still grow; an older one keeps its weight, and counts as another if it goes on."""
LEAST_OVERLAP = 0.25
"""Share of the speculative answers that must have met as many in flight as plain ones did, or nothing is proven."""
EQUAL_OVERLAP = 0.8
"""From here on the loads count as equal: a few answers of two equal arms differ as much."""
IDLE_AT = 1.5
"""Answers in flight below which a server is called idle: hardly more than the answer itself."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One answered request whose arm was drawn with its conversation."""

    workload: str
    arm: str
    epoch: int
    """The setting's number when its arm was drawn: later settings are not judged by it."""
    conversation: str
    prompt_chars: int
    streamed: bool
    speed: float | None
    """Characters per second of decoding."""
    ttft: float | None
    failed: bool
    whole_speed: float | None = None
    """Characters per second of the whole answer, the time of its prompt included."""
    waiting: LoadMet = IDLE
    """What was in flight until its first text."""
    decoding: LoadMet = IDLE
    """The same after it."""

    def rows(self) -> "Rows":
        """Return the rows of its speeds and of its time to the first token."""
        prompt, decoding = math.log1p(self.prompt_chars), _in_flight(self.decoding)
        covariates = prompt, float(self.streamed), *decoding
        return Rows(
            self._row(covariates, self.speed),
            self._row(covariates, self.whole_speed),
            self._row((prompt, *_in_flight(self.waiting)), self.ttft),
        )

    def _row(self, covariates: Row, value: float | None) -> Row | None:
        row = (*covariates, math.log(value)) if value and not self.failed else None
        return row if row is not None and all(map(math.isfinite, row)) else None


class Rows(NamedTuple):
    """What a speed or a time depends on, then itself, as logarithms; None where it is not known."""

    speed: Row | None
    whole: Row | None
    """The row of the whole answer."""
    ttft: Row | None


def _in_flight(load: LoadMet) -> Row:
    """Return the columns of piecewise linear functions of what was in flight at its server, and at both together.

    The second is what counts where both servers share the machine, the first where they do not.
    """
    return *_pieces(load.same - 1), *_pieces(load.same - 1 + load.elsewhere)


def _pieces(others: float) -> Row:
    return tuple(min(max(0.0, others - low), high - low) for low, high in pairwise((*KNOTS, math.inf)))


class _Mean:
    """The mean row of one conversation."""

    __slots__ = ("mean", "n", "sums")

    def __init__(self) -> None:
        self.n, self.sums, self.mean = 0, Row(), Row()

    def add(self, row: Row | None, moments: Moments) -> None:
        """Add a row; in *moments* the mean takes the place of the one before."""
        if row is None:
            return
        earlier, self.n = self.mean, self.n + 1
        if self.n == 1:
            self.sums = self.mean = row
            moments.add(row)
            return
        self.sums = tuple(map(add, self.sums, row))
        self.mean = tuple(total / self.n for total in self.sums)
        moments.replace(earlier, self.mean)


@dataclass(slots=True)
class _Conversation:
    """What the answers of one conversation add up to."""

    answers: int = 0
    failed: int = 0
    speed: _Mean = field(default_factory=_Mean)
    whole: _Mean = field(default_factory=_Mean)
    ttft: _Mean = field(default_factory=_Mean)


class Arm:
    """What the answers of one arm add up to; each conversation counts once, by the mean of its answers."""

    def __init__(self) -> None:
        self.speed, self.whole = Moments(3 + 2 * len(KNOTS)), Moments(3 + 2 * len(KNOTS))
        self.ttft = Moments(2 + 2 * len(KNOTS))
        self.answers = self.conversations = self.untimed = 0
        self.failed = 0.0
        """Sum over the conversations of the share of each one's answers that failed."""
        self.in_flight = Counter[int]()
        """Answers by what they met in flight at their server: 1, 2, 4 … as powers of two."""
        self.met = 0.0
        self._open: OrderedDict[str, _Conversation] = OrderedDict()

    def add(self, observation: Observation, rows: Rows) -> None:
        """Count one answer."""
        conversation = self._open.pop(observation.conversation, None)
        if conversation is None:
            conversation = _Conversation()
            self.conversations += 1
        self._open[observation.conversation] = conversation
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        earlier = conversation.failed / max(1, conversation.answers)
        conversation.answers += 1
        conversation.failed += observation.failed
        self.failed = abs(round(self.failed - earlier + conversation.failed / conversation.answers, 9))
        self.answers += 1
        self.in_flight[round(math.log2(max(1.0, observation.decoding.same)))] += 1
        self.met += observation.decoding.same
        self.untimed += observation.speed is None and not observation.failed
        conversation.speed.add(rows.speed, self.speed)
        conversation.whole.add(rows.whole, self.whole)
        conversation.ttft.add(rows.ttft, self.ttft)


@dataclass(slots=True)
class Span:
    """The evidence of one stretch of time, which begins anew when it is over."""

    seconds: float
    begun_ns: int
    arms: dict[str, Arm] = field(default_factory=lambda: {name: Arm() for name in ARMS})

    def add(self, observation: Observation, rows: Rows, now_ns: int) -> None:
        """Count one answer, in a new stretch where this one is over."""
        if now_ns - self.begun_ns >= self.seconds * 1e9:
            self.begun_ns, self.arms = now_ns, {name: Arm() for name in ARMS}
        self.arms[observation.arm].add(observation, rows)

    def ratio(self, name: str, error: float) -> Estimate | Missing:
        """Bound the ratio of `speed`, `whole` or `ttft`, speculative over holdout, for equally many in flight."""
        speculative, holdout = (getattr(self.arms[arm], name) for arm in ARMS)
        estimate = anytime_bounds.ratio(speculative, holdout, error, LEAST_CONVERSATIONS)
        smaller = min(arm.conversations for arm in self.arms.values())
        if name != "whole" and isinstance(estimate, Missing) and smaller >= LEAST_CONVERSATIONS:
            return Missing(f"{estimate.because}; {NOT_STREAMED}", estimate.n)
        if isinstance(estimate, Estimate) and self.overlap < LEAST_OVERLAP:
            return Missing(_unequal(self.in_flight), estimate.n)
        return estimate

    @property
    def overlap(self) -> float:
        """Return how alike the arms are in what they met in flight: 0 not at all, 1 quite."""
        arms = [self.arms[arm] for arm in ARMS]
        return sum(min(arm.in_flight[step] / max(1, arm.answers) for arm in arms) for step in arms[0].in_flight)

    @property
    def in_flight(self) -> dict[str, float]:
        """Return what the answers of each arm met in flight at their server, themselves included, in the mean."""
        return {name: arm.met / arm.answers for name, arm in self.arms.items() if arm.answers}

    def failures(self, error: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Bound the share of failed answers in each arm, all bounds together with *error*."""
        arms = (self.arms[arm] for arm in ARMS)
        first, second = (anytime_bounds.share(arm.failed, arm.conversations, error / 2) for arm in arms)
        return first, second


@dataclass(frozen=True, slots=True)
class Benefit:
    """What one workload's live requests show since its setting is in force, or since the window began."""

    workload: str
    answers: dict[str, int]
    conversations: dict[str, int]
    in_flight: dict[str, float]
    """At the server of an answer, itself included, in the mean over the answers of an arm."""
    overlap: float
    speed: Estimate | Missing
    whole: Estimate | Missing
    """The ratio of whole answers, the time of the prompt too: a prompt cache that is warm in one arm alone moves it."""
    untimed: int
    """Answers that showed no decode speed."""
    ttft: Estimate | Missing
    error_share: dict[str, tuple[float, float]]
    error_ratio: tuple[float, float | None]

    @property
    def loads(self) -> str:
        """Say what the comparison is worth by the loads of both arms; empty where it has not both."""
        if len(self.in_flight) < len(ARMS):
            return ""
        if self.overlap >= EQUAL_OVERLAP:
            return "equal loads"
        worth = "it holds at the load of the plain ones" if self.overlap >= LEAST_OVERLAP else "nothing is proven"
        return f"{_unequal(self.in_flight)}: {worth}"

    def ends(self) -> Iterator[tuple[str, str, float]]:
        """Yield the name, the end and the value of each ratio that is bounded."""
        for name, ratio in (("decode_speed", self.speed), ("answer_speed", self.whole), ("ttft", self.ttft)):
            if isinstance(ratio, Estimate):
                yield from ((name, end, getattr(ratio, end)) for end in ("lo", "center", "hi"))
        for end, bound in zip(("lo", "hi"), self.error_ratio, strict=True):
            if bound is not None:
                yield "error_rate", end, bound

    def document(self) -> dict[str, Any]:
        """Return it as live.jsonl has it."""
        lo, hi = self.error_ratio
        return {
            "workload": self.workload,
            "answers": self.answers,
            "conversations": self.conversations,
            "in_flight": self.in_flight,
            "load_overlap": self.overlap,
            "loads": self.loads,
            "decode_speed": figures("ratio", self.speed),
            "answer_speed": figures("ratio", self.whole),
            "untimed": self.untimed,
            "ttft": figures("ratio", self.ttft),
            "error_rate": {"lo": lo, "hi": hi},
            "error_share": {arm: {"lo": ends[0], "hi": ends[1]} for arm, ends in self.error_share.items()},
        }


def _unequal(in_flight: Mapping[str, float]) -> str:
    speculative, plain = (in_flight[arm] for arm in ARMS)
    is_idle = plain < IDLE_AT <= speculative
    servers = "a loaded server is compared with an idle one" if is_idle else "the servers are not equally loaded"
    return f"{servers} ({speculative:.1f} speculative answers in flight, {plain:.1f} plain ones)"


class LiveGuard(Guard):
    """A bound on live requests; its name differs from that of a guard on canaries."""

    METRICS = WATCHED | {ANSWER_RATIO: BY_NAME[ANSWER_RATIO]}

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
        rows = observation.rows()
        with self._lock:
            if observation.epoch == self._epochs.get(observation.workload):
                for span in self._spans[observation.workload]:
                    span.add(observation, rows, now_ns)

    def benefit(self, workload: str) -> Benefit | None:
        """Return what is shown of a workload; None where nothing was drawn yet."""
        with self._lock:
            if workload not in self._spans:
                return None
            window = self._spans[workload][0]
            answers = {name: arm.answers for name, arm in window.arms.items()}
            conversations = {name: arm.conversations for name, arm in window.arms.items()}
            speculative, holdout = window.failures(SHOWN_ERROR)
            ratio = speculative[0] / holdout[1], speculative[1] / holdout[0] if holdout[0] > 0 else None
            shares = dict(zip(ARMS, (speculative, holdout), strict=True))
            speed, whole, ttft = (window.ratio(name, SHOWN_ERROR) for name in ("speed", "whole", "ttft"))
            return Benefit(
                workload=workload,
                answers=answers,
                conversations=conversations,
                in_flight=window.in_flight,
                overlap=window.overlap,
                speed=speed,
                whole=whole,
                untimed=sum(arm.untimed for arm in window.arms.values()),
                ttft=ttft,
                error_share=shares,
                error_ratio=ratio,
            )

    def judge(self, workload: str, policy: Policy, now: Instant) -> Sequence[GuardResult]:
        """Return a crossed guard where the benefit is proven gone; nothing otherwise, as the canaries decide then."""
        with self._lock:
            for span in self._spans.get(workload, ()):
                error = policy.watch.false_alarms * span.seconds / max(policy.lifetime, span.seconds)
                if crossed := _loss(workload, span, policy, error / len(PARTS), now):
                    return (crossed,)
        return ()


def whole_answers_count(policy: Policy) -> bool:
    """Return whether the time of whole answers is evidence: without a prompt cache, both arms read the same prompt."""
    return policy.conditions.prompt_cache == "off"


def _loss(workload: str, span: Span, policy: Policy, error: float, now: Instant) -> GuardResult | None:
    """Return what a span proves against speculation."""
    least, whole = policy.proxy.speedup_at_least, whole_answers_count(policy)
    error /= TESTS + whole
    about = f"live requests of the last {show_seconds((now.now_ns - span.begun_ns) / 1e9)}"
    speculative, plain = (span.arms[arm].conversations for arm in ARMS)
    counts = f"{speculative} speculative and {plain} plain conversations"
    speed = span.ratio("speed", error)
    if isinstance(speed, Estimate) and speed.hi < least:
        at_load = (
            "" if span.overlap >= EQUAL_OVERLAP else f", at the load of the plain ones: {_unequal(span.in_flight)}"
        )
        measured = show_ratio(speed.center, speed.lo, speed.hi)
        reason = f"{about}: decode speed {measured} of plain decoding's by {counts}{at_load}"
        return _fail_guard(workload, DECODE_RATIO, speed, reason, now, at_least=least)
    answers = span.ratio("whole", error) if whole else None
    if isinstance(answers, Estimate) and answers.hi < min(least, 1.0):  # the prompt's time brings it nearer to 1
        measured = show_ratio(answers.center, answers.lo, answers.hi)
        reason = f"{about}: whole answers at {measured} of plain decoding's speed by {counts}"
        return _fail_guard(workload, ANSWER_RATIO, answers, reason, now, at_least=min(least, 1.0))
    (lo, hi), (_, most) = span.failures(error)
    if lo > most:
        reason = f"{about}: {lo:.1%} to {hi:.1%} of the speculative answers fail, at most {most:.1%} of the plain ones"
        arm = span.arms["speculative"]
        share = Estimate(arm.failed / arm.conversations, lo, hi, arm.conversations)
        return _fail_guard(workload, "error_rate", share, reason, now, at_most=max(most, 0.0))
    return None


def _fail_guard(
    workload: str, metric: str, estimate: Estimate, reason: str, now: Instant, **bound: float
) -> GuardResult:
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
