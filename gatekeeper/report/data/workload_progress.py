"""The latest answers of a workload: its speeds, its acceptance and its ratio to plain decoding so far."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from gatekeeper.analysis.metrics.timing import FASTEST, output_tokens
from gatekeeper.core.judgement import Estimate
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.slo import CONFIDENCE
from gatekeeper.core.text import describe_setting

RECENT = 20
"""Answers over which the median of speed and acceptance is shown."""
LEAST_CANARIES = 5
"""With fewer canaries than this in both arms no ratio is shown."""


LEAST_READS = 4
"""Fewer reads than this say nothing of the speed at which an answer was decoded."""
READ_TOGETHER_S = 100e-6
"""Pieces closer together than this were read together."""


def live_speed(generation: Generation) -> float | None:
    """Return the decode rate, or that of the whole answer; None where its pieces were read together.

    On a busy machine a stream is read long after it arrived, all at once: its gaps are then those of reading. Pieces
    that carry what was drafted were timed where they were decoded.
    """
    from gatekeeper.analysis.metrics.answer_table import tabulate  # noqa: PLC0415 (numpy, once it measures)

    answer = generation.answer
    timed, pieces = bool(answer.columns.drafted), len(answer.columns)
    table = tabulate(([generation], 0.0 if timed else READ_TOGETHER_S))
    if pieces > 1 and not timed and table.count_bursts(answer) < min(LEAST_READS, pieces):
        return None
    speed = table.read("speed")(answer)
    return speed if speed is not None and speed < FASTEST else None


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
    """Total time of plain decoding over that of drafting in this stage, canary by canary: centre and 95 % bounds."""
    read_at_once: int = 0
    """Answers whose pieces were read together, so that they show no speed."""


@dataclass(slots=True)
class _Times:
    """The answers of one trial, as sums by canary, so that a soak of a day takes no memory."""

    sums: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    """Seconds a token, tokens, and answers."""

    def add(self, canary: str, seconds: float, tokens: int) -> None:
        total, length, count = self.sums.get(canary, (0.0, 0, 0))
        self.sums[canary] = total + seconds, length + tokens, count + 1

    def against(self, plain: "_Times") -> tuple[list[tuple[str, float, float]], float]:
        """Return the seconds of plain decoding and of this trial for the same tokens of each canary, and all tokens."""
        times, tokens_of_all = [], 0.0
        for canary in sorted(self.sums.keys() & plain.sums.keys()):
            (seconds, length, count), (plain_seconds, plain_length, plain_count) = self.sums[canary], plain.sums[canary]
            tokens = (length / count + plain_length / plain_count) / 2
            times.append((canary, tokens * plain_seconds / plain_count, tokens * seconds / count))
            tokens_of_all += tokens
        return times, tokens_of_all


@dataclass(slots=True)
class WorkloadProgress:
    """The latest answers of one workload in this stage."""

    setting: str = ""
    answered: int = 0
    drafting: str | None = None
    """The trial that drafted last."""
    speeds: dict[str | None, deque[float]] = field(default_factory=dict)
    """The latest speeds by trial; plain decoding's under None."""
    rates: dict[str | None, deque[float]] = field(default_factory=dict)
    times: dict[str | None, _Times] = field(default_factory=dict)
    ratio: tuple[float, float, float] | None = None
    speeds_of_ratio: tuple[float, float] = (0.0, 0.0)
    """Speeds of plain decoding and of drafting in the answers of the ratio: beside it, others would contradict it."""
    read_at_once: int = 0
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
        speed = live_speed(generation)
        self.read_at_once += speed is None and len(answer.columns) > 1 and output_tokens(answer) > 0
        if speed is not None:
            self.speeds.setdefault(trial, deque(maxlen=RECENT)).append(speed)
            self.times.setdefault(trial, _Times()).add(generation.canary, 1 / speed, output_tokens(answer))
            self.stale = True
        counts = answer.rounds or answer.claims
        if counts.drafted and counts.accepted is not None:
            self.rates.setdefault(trial, deque(maxlen=RECENT)).append(counts.accepted / counts.drafted)

    def row(self, name: str) -> WorkloadRow:
        """Return the latest figures of the workload *name*."""
        trial = self.drafting or ""
        recent = (self.speeds.get(None), self.speeds.get(trial), self.rates.get(trial))
        plain, drafting, acceptance = (median(values) if values else None for values in recent)
        if self.stale:
            self.ratio, self.stale = self._ratio(trial), False
        if self.ratio is not None:
            plain, drafting = self.speeds_of_ratio
        return WorkloadRow(
            name, self.setting, plain, drafting, acceptance, self.answered, self.ratio, self.read_at_once
        )

    def _ratio(self, trial: str) -> tuple[float, float, float] | None:
        drafting, plain = self.times.get(trial), self.times.get(None)
        if drafting is None or plain is None:
            return None
        times, tokens = drafting.against(plain)
        if len(times) < LEAST_CANARIES:
            return None
        plain_seconds = sum(of_canary for _, of_canary, _ in times)
        seconds = sum(of_canary for _, _, of_canary in times)
        self.speeds_of_ratio = tokens / plain_seconds, tokens / seconds
        from gatekeeper.analysis.stats import intervals, total_time  # noqa: PLC0415 (numpy, for a live ratio)

        logs = {canary: [log] for canary, log in total_time.linearise_times(times).logs}
        estimate = intervals.mean_of_logs(logs, CONFIDENCE)
        return (estimate.center, estimate.lo, estimate.hi) if isinstance(estimate, Estimate) else None
