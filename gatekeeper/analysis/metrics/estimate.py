"""Estimates of the workload metrics from recorded answers. The independent unit is the answer, never the token."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from gatekeeper.analysis.metrics import shares
from gatekeeper.analysis.metrics.exactness import WARM_PARTS
from gatekeeper.analysis.metrics.over_time import acceptance_window_min, excessive_drift, settled
from gatekeeper.analysis.metrics.paired_answers import (
    PairedAnswers,
    by_canary,
    pair_ratios,
    pair_values,
    pair_work,
    successful,
    too_many_lost,
)
from gatekeeper.analysis.metrics.timing import (
    acceptance_length,
    acceptance_rate,
    answer_rate,
    bursts,
    decode_rate,
    gather_bursts,
    prefill_rate,
    prompt_rate_until_first,
    ttft,
)
from gatekeeper.analysis.stats import fixed_canaries, intervals, lasting
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.records import UNKNOWN, Answer
from gatekeeper.core.verdict import Estimate, Missing, StillChanging

LEAST_CONFIDENCE = 0.95
"""With fewer canaries than a bound of this confidence needs for prompts like them, a quantile is not bounded at all."""
CHUNKS_PER_TOKEN = 0.9
"""With fewer chunks a token a server joins tokens, and a chunk says nothing of one token's time."""

Read = Callable[[Answer], float | None]


def estimate(name: str, paired: PairedAnswers) -> Estimate | Missing:
    """Return the estimate of one workload metric; Missing with the reason where the records do not give it."""
    metric = BY_NAME[name]
    if not paired.answers:
        return Missing("no answers were recorded")
    if metric.speed_ratio and (moved := excessive_drift(paired)) is not None:
        return Missing(moved, len(paired.pairs))
    stretch = settled(paired) if metric.speed_ratio else paired
    if isinstance(stretch, StillChanging):
        return stretch
    paired = stretch
    if metric.quantile is not None:
        found = _QUANTILES[metric.base](paired, metric.quantile)
    else:
        found = shares.pass_delta(paired, metric.pass_rate.kind) if metric.pass_rate else _OTHERS[name](paired)
    if isinstance(found, Missing) or found.confidence is None or found.scope is not None:
        return found
    return replace(found, scope="population")


def _speed_ratio(read: Read, paired: PairedAnswers) -> Estimate | Missing:
    ratios, lost = pair_ratios(paired.pairs, read, greedy=paired.greedy)
    if (why := too_many_lost(lost, paired)) is not None:
        return Missing(why, len(paired.pairs))
    found = mean_ratio(ratios, pair_ratios(paired.before, read, greedy=paired.greedy)[0], paired)
    return _widened(found, partial(_of_both_arms, paired, read, paired.greedy), paired)


def _widened(
    found: Estimate | Missing, noise: Callable[[], lasting.Lasting], paired: PairedAnswers
) -> Estimate | Missing:
    """Return the estimate whose bounds allow for *noise* that lasts; runs of older rules were judged without.

    Where the arms ran apart, each plain block has noise of its own, which nothing shows.
    """
    if isinstance(found, Missing) or paired.rules < 2 or not paired.interleaved:
        return found
    return lasting.widened(found, noise())


def _of_both_arms(paired: PairedAnswers, read: Read, greedy: bool | None) -> lasting.Lasting:
    before = sorted(paired.before, key=lambda pair: (pair[0].segment, pair[0].answer.sent_ns))
    soak, swept = (
        [(name, math.log(mine), math.log(plain)) for name, mine, plain in values if min(mine, plain) > 0]
        for values, _ in (pair_values(pairs, read, greedy=greedy) for pairs in (paired.pairs, before))
    )
    mine = lasting.TimedLogs.of([(name, log) for name, log, _ in soak], [(name, log) for name, log, _ in swept])
    plain = lasting.TimedLogs.of([(name, log) for name, _, log in soak], [(name, log) for name, _, log in swept])
    return lasting.of_both_arms(mine, plain, trend=paired.falls)


def _of_one_arm(paired: PairedAnswers, values: Iterable[tuple[str, float]]) -> lasting.Lasting:
    series = lasting.TimedLogs.of([(name, math.log(value)) for name, value in values if value > 0])
    return lasting.of_one_arm(series, trend=paired.falls)


def mean_ratio(
    ratios: Sequence[tuple[str, float]], before: Sequence[tuple[str, float]], paired: PairedAnswers
) -> Estimate | Missing:
    """Bound the geometric mean of (canary, ratio) pairs: for these canaries, or for prompts like them.

    Where the arms ran apart, noise that lasts hits all pairs of a plain block alike, and repeats do not show it.
    """
    others = intervals.geometric_mean_ratio(by_canary(ratios), paired.level)
    if isinstance(others, Missing) or not paired.frozen or not paired.interleaved:
        return others
    earlier = by_canary((name, ratio) for name, ratio in before if ratio > 0)
    return _beside(others, fixed_canaries.geometric_mean(ratios, paired.level, len(paired.canaries), earlier))


def _beside(others: Estimate, these: Estimate | None) -> Estimate:
    """Return the estimate for *these* canaries with the one for all like them beside it, or that alone."""
    return others if these is None else replace(these, population=others)


def _system_ratio(paired: PairedAnswers) -> Estimate | Missing:
    """Compare tokens over busy time, which is wall time times the streams because every stream is always busy."""
    sums: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([0, 0], [0, 0]))
    work, lost = pair_work(paired.pairs, greedy=paired.greedy)
    for name, *both in work:
        for arm, (tokens, busy_ns) in zip(sums[name], both, strict=True):
            arm[0] += tokens
            arm[1] += busy_ns
    if (why := too_many_lost(lost, paired)) is not None:
        return Missing(why, len(paired.pairs))
    found = intervals.ratio_of_sums(sums, paired.level, paired.seed)
    return _widened(found, partial(_of_both_arms, paired, answer_rate, paired.greedy), paired)


def _over_canaries(read: Read, paired: PairedAnswers, quantile: float) -> Estimate | Missing:
    values = [(one.canary, value) for one in successful(paired.answers) if (value := read(one.answer)) is not None]
    if not values:
        return Missing("no answer has a value for it")
    noise = partial(_of_one_arm, paired, values)
    medians = [median(seen) for seen in by_canary(values).values()]
    others = intervals.quantile(medians, quantile, paired.level)
    if not paired.frozen or _too_few(others, len(medians), quantile):
        return _widened(others, noise, paired)
    answers = [(canary, [(value, 1.0)]) for canary, value in values]
    these = fixed_canaries.quantile(answers, quantile, paired.level, len(paired.canaries))
    if isinstance(others, Missing):  # of a look whose bounds are further out than the plan counted with
        return _widened(these or others, noise, paired)
    return _widened(_beside(others, these), noise, paired)


def _prefill(paired: PairedAnswers, quantile: float) -> Estimate | Missing:
    if paired.rules < 2:
        return _over_canaries(prompt_rate_until_first, paired, quantile)
    if all(prefill_rate(one.answer) is None for one in paired.answers):
        return Missing("no answer says how long its prompt was read, and the time to first token holds more than that")
    return _over_canaries(prefill_rate, paired, quantile)


def _time_per_token(answer: Answer) -> float | None:
    rate = decode_rate(answer)
    return 1 / rate if rate else None


def _longest_gap(paired: PairedAnswers, quantile: float) -> Estimate | Missing:
    together = paired.burst_gap

    def read(answer: Answer) -> float | None:
        return max((gap for gap, _ in bursts(answer, together)), default=None)

    return _over_canaries(read, paired, quantile)


def _pooled_gaps(paired: PairedAnswers, quantile: float, *, per_token: bool) -> Estimate | Missing:
    whole = successful(paired.answers)
    answers = [_a_token_a_chunk(one.answer) if per_token else one.answer for one in whole]
    uncounted = sum(mine is not one.answer for mine, one in zip(answers, whole, strict=True))
    found = gather_bursts(answers, paired.burst_gap)
    sizes, values, weights = found.sizes, found.gaps, np.ones(len(found.gaps))
    if per_token:
        if UNKNOWN in found.tokens:
            return Missing("this backend does not report the tokens of a chunk")
        gaps = found.per_token()
        sizes, values, weights = gaps.sizes, gaps.values, gaps.tokens
    del found  # of a day it has tens of megabytes
    canaries = [one.canary for one, size in zip(whole, sizes, strict=True) if size]
    pooled = intervals.WeightedValues(canaries, sizes[sizes > 0], values, weights)
    others = intervals.pooled_quantile(pooled, quantile, paired.level)
    seen = others
    if paired.frozen and not _too_few(others, len(set(canaries)), quantile):
        these = fixed_canaries.quantile(pooled, quantile, paired.level, len(paired.canaries))
        # Missing is of a look whose bounds are further out than the plan counted with.
        seen = (these or others) if isinstance(others, Missing) else _beside(others, these)
    counted = pooled.sums()
    means = np.add.reduceat(values * weights, np.cumsum(pooled.sizes) - pooled.sizes) / counted if canaries else counted
    seen = _widened(seen, lambda: _of_one_arm(paired, zip(canaries, means.tolist(), strict=True)), paired)
    if isinstance(seen, Missing) or not uncounted:
        return seen
    about = f"in {uncounted} of {len(whole)} answers some tokens came without a chunk: there a chunk counts as one"
    return replace(seen, notes=(about,))


def _too_few(others: Estimate | Missing, canaries: int, quantile: float) -> bool:
    """Return whether a quantile is not bounded for prompts like these, and has too few canaries for any bound."""
    return isinstance(others, Missing) and canaries < intervals.samples_needed(quantile, LEAST_CONFIDENCE)


def _a_token_a_chunk(answer: Answer) -> Answer:
    """Return the answer with one token a chunk, where it has hardly more tokens than chunks.

    A server holds back the token that ends inside a character, so one such character would leave the gaps of a whole
    workload unproven. Counting fewer tokens than there were makes gaps per token longer, never shorter.
    """
    chunks, columns = len(answer.arrivals), answer.columns
    known = bool(columns.tokens) and UNKNOWN not in memoryview(columns.tokens).cast("q").tolist()
    if known or answer.output_tokens is None or chunks < CHUNKS_PER_TOKEN * answer.output_tokens:
        return answer
    return replace(answer, arrivals=tuple(one._replace(tokens=1) for one in answer.arrivals))


def _ttft_delta(paired: PairedAnswers) -> Estimate | Missing:
    ratios, _ = pair_ratios(paired.pairs, ttft, greedy=None)
    found = mean_ratio(ratios, pair_ratios(paired.before, ttft, greedy=None)[0], paired)
    found = _widened(found, partial(_of_both_arms, paired, ttft, None), paired)
    return found if isinstance(found, Missing) else _less_one(found)


def _less_one(found: Estimate) -> Estimate:
    """Turn a ratio into a relative change."""
    others = _less_one(found.population) if found.population is not None else None
    return replace(found, center=found.center - 1, lo=found.lo - 1, hi=found.hi - 1, population=others)


_QUANTILES: dict[str, Callable[[PairedAnswers, float], Estimate | Missing]] = {
    "decode_throughput": partial(_over_canaries, decode_rate),
    "prefill_throughput": _prefill,
    "ttft": partial(_over_canaries, ttft),
    "acceptance_rate": partial(_over_canaries, acceptance_rate),
    "acceptance_length": partial(_over_canaries, acceptance_length),
    "tpot": partial(_over_canaries, _time_per_token),
    "stall": _longest_gap,
    "itl": partial(_pooled_gaps, per_token=True),
    "round_gap": partial(_pooled_gaps, per_token=False),
}
"""By the base of a metric: the function that estimates any of its quantiles."""
_OTHERS: dict[str, Callable[[PairedAnswers], Estimate | Missing]] = {
    "throughput_ratio": lambda paired: _speed_ratio(partial(decode_rate, together_s=paired.burst_gap), paired),
    "answer_throughput_ratio": partial(_speed_ratio, answer_rate),
    "system_throughput_ratio": _system_ratio,
    "ttft_delta": _ttft_delta,
    "token_agreement": shares.agreement,
    **{metric: partial(shares.warm_cache_agreement, metric=metric) for metric in WARM_PARTS},
    "first_tokens_p_value": shares.first_tokens,
    "error_rate": shares.error_rate,
    "speculation_engaged": shares.engaged,
    "truncation_rate": shares.truncation,
    "acceptance_window_min": acceptance_window_min,
}
