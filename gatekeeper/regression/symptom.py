"""The symptom of a bad version: one metric of a short probe, and the limit that a good version keeps."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from gatekeeper.analysis.metrics.pair_speeds import pair_logs, pair_speeds
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.readers import PAIR_RATIOS, answer_reader
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.words import exactness, explanations
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.stats.intervals import by_canary, student_quantile
from gatekeeper.analysis.stats.run_to_run import Values
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.verdict import Estimate, Missing, fact
from gatekeeper.regression.version_comparison import Word

MEMORY = "footprint_peak"
BOTH_ARMS = frozenset({*PAIR_RATIOS, "token_agreement"})


@dataclass(frozen=True, slots=True)
class Symptom:
    """What tells a bad version from a good one: a metric, and the bound that a good version keeps."""

    metric: str
    bound: str
    """at_least | at_most"""
    threshold: float | None
    """None: versions are compared with both ends; of memory, which is one figure, it will be halfway between these."""

    def judge(self, value: Estimate | Missing) -> Word | None:
        """Return good where the whole interval keeps the bound, bad where all of it misses; None without a bound."""
        if isinstance(value, Missing):
            return "unclear"
        if self.threshold is None:
            return None
        is_floor = self.bound == "at_least"
        if value.lo >= self.threshold if is_floor else value.hi <= self.threshold:
            return "good"
        if value.hi < self.threshold if is_floor else value.lo > self.threshold:
            return "bad"
        return "unclear"

    @property
    def is_compared(self) -> bool:
        """Return whether versions are compared canary by canary: there is no limit, and answers have values."""
        return self.threshold is None and self.metric != MEMORY

    def halfway(self, good: Estimate, bad: Estimate) -> float | None:
        """Return the value halfway between a good and a bad version's counted figures; None where there is no loss."""
        is_loss = bad.hi < good.lo if BY_NAME[self.metric].higher_is_better else bad.lo > good.hi
        return math.sqrt(good.center * bad.center) if is_loss else None


def measure(metric: str, paired: PairedAnswers, counts: tuple[int, ...], most: int, level: float) -> Estimate | Missing:
    """Return the value of *metric* after the last of the looks *counts*; its bounds hold at all looks together."""
    if metric == "token_agreement":
        compared = exactness.compare(successful(paired.answers), successful(paired.plain), explanations.BY_WORDS)
        return share_of_canaries(compared.agree, most)
    row = BY_NAME[metric]
    values = values_of_metric(metric, paired)
    if isinstance(values, Missing):
        return values
    error = sequential.nominal_errors(counts, most, 1 - level)[-1]
    means = [fmean(canary_values) for canary_values in by_canary(values).values()]
    if not is_linear(row):
        interval = sequential.interval(means, error)
        if isinstance(interval, Missing) or not row.relative:
            return interval
        return replace(interval, center=interval.center - 1, lo=interval.lo - 1, hi=interval.hi - 1)
    n = len(means)
    if n < sequential.MIN_CANARIES:
        return Missing(f"{n} canaries were answered, {sequential.MIN_CANARIES} are needed to decide", n)
    center = fmean(means)
    spread = math.sqrt(math.fsum((mean - center) ** 2 for mean in means) / (n - 1))
    half = student_quantile(1 - error, n - 1) * spread / math.sqrt(n)
    return Estimate(center, max(0.0, center - half), min(1.0, center + half), n, confidence=1 - error)


def is_linear(metric: Metric) -> bool:
    """Return whether it is a share, which may be zero: its mean counts, and not the mean of its log."""
    return metric.maximum is not None


def values_of_metric(name: str, paired: PairedAnswers) -> Values | Missing:
    """Return the value of each answer or pair, in the order of time: the log of one that is no share."""
    metric, reader = BY_NAME[name], answer_reader(name)
    read = reader.on(paired)
    if metric.from_rounds:
        paired = replace(paired, answers=counted_or_claimed(paired.answers)[0])
    if metric.against_plain:
        speeds, lost = pair_speeds(paired.pairs, read, None if reader.any_length else paired.least_length)
        pairs = len(paired.pairs)
        if lost > paired.lost_limit * pairs:
            return Missing(f"{lost} of {pairs} pairs are lost to faults or missing values", pairs)
        logs = pair_logs(speeds, total=metric.speed_ratio).logs
        return [(canary, log) for canary, log in logs if math.isfinite(log)]
    successes = successful(paired.answers)
    if len(successes) < (1 - paired.lost_limit) * len(paired.answers):
        failed = next(generation.answer.fault for generation in paired.answers if generation.answer.fault is not None)
        return Missing(f"{len(paired.answers) - len(successes)} of {len(paired.answers)} requests failed: {failed}")
    values = [(generation.canary, value) for generation in successes if (value := read(generation.answer)) is not None]
    if not values:
        return Missing("no answer has a value for it")
    return values if is_linear(metric) else [(canary, math.log(value)) for canary, value in values if value > 0]


def share_of_canaries(agrees: Mapping[str, bool], most: int) -> Estimate | Missing:
    """Return the share of all *most* canaries, between none and all of those that were not answered yet."""
    if not agrees:
        return Missing("no canary was answered in both arms")
    agreeing, unanswered = sum(agrees.values()), most - len(agrees)
    return Estimate(agreeing / len(agrees), agreeing / most, (agreeing + unanswered) / most, len(agrees))


def peak_memory(bytes_: int | None) -> Estimate | Missing:
    """Return the largest memory footprint."""
    return fact(float(bytes_), 1) if bytes_ else Missing("the memory of the system cannot be measured")
