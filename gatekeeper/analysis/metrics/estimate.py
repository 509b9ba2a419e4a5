"""Estimates of the workload metrics from recorded answers. The independent unit is the answer, never the token."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from statistics import median

import numpy as np

from gatekeeper.analysis.metrics.answer_table import Read
from gatekeeper.analysis.metrics.cached_turns import pair_timed_turns
from gatekeeper.analysis.metrics.lost_pairs import Pair
from gatekeeper.analysis.metrics.over_time import keep_settled_pairs
from gatekeeper.analysis.metrics.pair_speeds import pair_logs, pair_speeds
from gatekeeper.analysis.metrics.paired_answers import (
    PairedAnswers,
    in_order_of_time,
    mean_ratio,
    successful,
    values_of,
    with_population,
)
from gatekeeper.analysis.metrics.readers import (
    OfAnswer,
    OfEvidence,
    OfGaps,
    OfWarmCache,
    answer_reader,
    reader_of,
    speeds_of,
)
from gatekeeper.analysis.metrics.timing import output_tokens
from gatekeeper.analysis.stats import fixed_canaries, intervals, lasting_noise
from gatekeeper.analysis.stats.total_time import PairLogs
from gatekeeper.core.judgement import Estimate, Missing, StillChanging
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.slo import CONFIDENCE
from gatekeeper.core.text import show_count
from gatekeeper.core.units import show_seconds

LATE_SHARE = 0.25
"""At most this share of the answers up to a length is read late; a server that holds back one arm holds back half."""
HELD_BACK_S = 0.1
"""Seconds: the beginning of an answer that took longer was not delayed on the way, but kept by its server."""


def estimate(name: str, paired: PairedAnswers) -> Estimate | Missing:
    """Return the estimate of one workload metric; Missing with the reason where the records do not give it."""
    metric, reader = BY_NAME[name], reader_of(name)
    if isinstance(reader, OfWarmCache):
        return _estimate_turns(reader.metric, pair_timed_turns(paired))
    paired = paired.plain_alone if metric.of_plain else paired
    if not paired.answers:
        return Missing("no answers were recorded")
    stretch = keep_settled_pairs(paired) if metric.speed_ratio else paired
    if isinstance(stretch, StillChanging):
        return stretch
    value = _read(metric, reader, stretch)
    if isinstance(value, Missing) or value.confidence is None or value.scope is not None:
        return value
    return replace(value, scope="population")


def _estimate_turns(name: str, turns: PairedAnswers | Missing) -> Estimate | Missing:
    """Return the estimate of a metric for turns on a warm cache, whose conversations stand where canaries do."""
    value = turns if isinstance(turns, Missing) else estimate(name, turns)
    if isinstance(value, Estimate):
        return value
    return replace(value, because=value.because.replace("canaries", "conversations"))


def _read(metric: Metric, reader: OfAnswer | OfGaps | OfEvidence, paired: PairedAnswers) -> Estimate | Missing:
    match reader:
        case OfAnswer() if metric.quantile is not None:
            return _over_canaries(reader, paired, metric.quantile)
        case OfAnswer():
            return _pair_ratio(metric, reader, paired)
        case OfGaps(per_token=per_token):
            return _pooled_gaps(paired, metric.quantile or 0.5, per_token=per_token)
        case OfEvidence(estimate=count):
            return count(paired)


def _pair_ratio(metric: Metric, reader: OfAnswer, paired: PairedAnswers) -> Estimate | Missing:
    logs = logs_of_pairs(metric, paired, limited=metric.speed_ratio)
    ratio = mean_ratio(logs, paired) if isinstance(logs, PairLogs) else logs
    if isinstance(ratio, Estimate):
        ratio = lasting_noise.widen_bounds(ratio, _ratio_noise(metric, reader, paired))
    return ratio.as_change() if metric.relative and isinstance(ratio, Estimate) else ratio


def logs_of_pairs(metric: Metric, paired: PairedAnswers, *, limited: bool) -> PairLogs | Missing:
    """Return the logs of the pairs whose mean is that of the ratio *metric*.

    Where they are *limited*, too many lost pairs leave none: then it is Missing, with the reason.
    """
    speeds, before, lost = speeds_of(metric.name, paired)
    if limited and (reason := paired.too_many_lost(lost)) is not None:
        whole = _arrived_at_once(answer_reader(metric.name), paired, chain.from_iterable(paired.pairs))
        return Missing(f"{reason}; {whole}" if whole else reason, len(paired.pairs))
    return pair_logs(speeds, before, total=metric.speed_ratio)


def _arrived_at_once(reader: OfAnswer, paired: PairedAnswers, generations: Iterable[Generation]) -> str:
    """Return how many answers have no speed by *reader* because they arrived at once, and what would show one.

    Empty where that is not why. A server's own time is no speed of ours: it shows whether the answer was held back
    until its end. Otherwise one delay on the way covered all of it, and an answer of twice the tokens cannot come in
    that. A few among many that came in pieces, and are no longer, were held back by no server: a busy machine read
    them late.
    """
    longest_gap = paired.table.read("longest_gap")
    answers = [generation.answer for generation in successful(generations)]
    came = [answer for answer in answers if answer.arrivals]
    whole = [answer for answer in came if not longest_gap(answer)]
    if not whole or not reader.needs_arrivals:
        return ""
    tokens = max(map(output_tokens, whole))
    no_longer = sum(output_tokens(answer) <= tokens for answer in came)
    claimed = max((answer.claims.decode_seconds or 0.0 for answer in whole), default=0.0)
    text = f"{len(whole)} of {len(answers)} answers arrived at once, the longest of {show_count(tokens, 'token')}"
    text += f", decoded in up to {show_seconds(claimed)} by the server's own timings" if claimed else ""
    if all(answer.tool_calls for answer in whole):
        return f"{text}: a tool call comes whole, use answer_throughput_ratio"
    if len(whole) <= LATE_SHARE * no_longer:
        in_pieces = f"{no_longer - len(whole)} others of at most this length came in pieces"
        return f"{text}; {in_pieces}, so these were read late: close other programs, or measure later"
    if claimed > HELD_BACK_S:
        return f"{text}: the server holds them back, use answer_throughput_ratio"
    if all(answer.finish == "length" for answer in whole):
        return f"{text}: set max_tokens to {2 * tokens} or more"
    return f"{text}: use prompts with answers of {2 * tokens} tokens or more"


def _allow_for_noise(
    estimated: Estimate | Missing, added: Callable[[], float], paired: PairedAnswers
) -> Estimate | Missing:
    """Return the estimate whose bounds allow for the *added* variance of noise that lasts.

    Where the arms ran apart, each plain block has noise of its own, which nothing shows.
    """
    if isinstance(estimated, Missing) or not paired.interleaved:
        return estimated
    return lasting_noise.widen_bounds(estimated, added())


def _ratio_noise(metric: Metric, reader: OfAnswer, paired: PairedAnswers) -> float:
    added = partial(_noise_of_pairs, paired, reader.on(paired), reader.least_length(paired))
    return paired.once(f"noise of {metric.name}", added, paired.pairs, paired.before)


def _noise_of_pairs(paired: PairedAnswers, read: Read, least: float | None) -> float:
    """Return what noise that lasts adds to the variance of a mean log ratio.

    Noise of the host hits both answers of a pair and cancels; where the arms ran apart, each plain block has its own.
    """

    def logs(pairs: Iterable[Pair]) -> list[tuple[str, float]]:
        speeds, _ = pair_speeds(pairs, read, least)
        return [(speed.canary, speed.log_ratio) for speed in speeds if math.isfinite(speed.log_ratio)]

    if paired.interleaved:
        return lasting_noise.added_variance(logs(in_order_of_time(paired.pairs)), logs(in_order_of_time(paired.before)))
    blocks: dict[tuple[int, int], list[Pair]] = defaultdict(list)
    for pair in paired.pairs:
        if pair[1].role is Role.BLOCK:
            blocks[pair[1].segment, pair[1].repeat].append(pair)
    return lasting_noise.added_by_blocks([block_logs for block in blocks.values() if (block_logs := logs(block))])


def _in_order_of_time(paired: PairedAnswers) -> list[Generation]:
    """Return the judged answers without a fault in the order of their requests, by which noise that lasts shows."""
    return sorted(successful(paired.answers), key=attrgetter("moment"))


def _value_noise(values: Iterable[tuple[str, float]]) -> float:
    return lasting_noise.added_variance([(name, math.log(value)) for name, value in values if value > 0])


def _over_canaries(reader: OfAnswer, paired: PairedAnswers, quantile: float) -> Estimate | Missing:
    values = values_of(_in_order_of_time(paired), reader.on(paired))
    if not values:
        return Missing(_arrived_at_once(reader, paired, paired.answers) or reader.unread)
    noise = partial(_value_noise, values)
    medians = [median(canary_values) for canary_values in intervals.by_canary(values).values()]
    population = intervals.quantile(medians, quantile, paired.level)
    if not paired.frozen or _too_few(population, len(medians), quantile):
        return _allow_for_noise(population, noise, paired)
    answers = [(canary, [(value, 1.0)]) for canary, value in values]
    frozen = fixed_canaries.quantile(answers, quantile, paired.level, len(paired.canaries))
    if isinstance(population, Missing):  # of a look whose bounds are further out than the plan counted with
        return _allow_for_noise(frozen or population, noise, paired)
    return _allow_for_noise(with_population(population, frozen), noise, paired)


def _pooled_gaps(paired: PairedAnswers, quantile: float, *, per_token: bool) -> Estimate | Missing:
    pooled = paired.table.pool_gaps(_in_order_of_time(paired), per_token=per_token)
    if pooled is None:
        return Missing("this server does not report how many tokens each piece of an answer has")
    canaries = pooled.canaries
    population = intervals.pooled_quantile(pooled, quantile, paired.level)
    estimated = population
    if paired.frozen and not _too_few(population, len(set(canaries)), quantile):
        frozen = fixed_canaries.quantile(pooled, quantile, paired.level, len(paired.canaries))
        if isinstance(population, Estimate):
            estimated = with_population(population, frozen)
        else:
            # A look may have bounds that are further out than the plan counted with, or too few repeats of canaries.
            enough = len(set(canaries)) >= intervals.frozen_samples_needed(quantile, paired.level)
            repeats = f"{len(canaries)} answers to {len(set(canaries))} canaries repeat too few of them to bound it"
            estimated = frozen or (Missing(repeats, len(set(canaries))) if enough else population)
    weights = pooled.sums()
    means = (
        np.add.reduceat(pooled.values * pooled.weights, np.cumsum(pooled.sizes) - pooled.sizes) / weights
        if canaries
        else weights
    )
    estimated = _allow_for_noise(estimated, lambda: _value_noise(zip(canaries, means.tolist(), strict=True)), paired)
    answers = successful(paired.answers)
    uncounted = int(paired.table.joined[paired.table.rows(answers)].sum()) if per_token else 0
    if isinstance(estimated, Missing) or not uncounted:
        return estimated
    about = f"in {uncounted} of {len(answers)} answers some tokens came without a chunk: there a chunk counts as one"
    return replace(estimated, notes=(about,))


def _too_few(population: Estimate | Missing, canaries: int, quantile: float) -> bool:
    """Return whether a quantile is not bounded for prompts like these, and has too few canaries for these alone."""
    return isinstance(population, Missing) and canaries < intervals.frozen_samples_needed(quantile, CONFIDENCE)
