"""Estimates of the workload metrics from recorded answers. The independent unit is the answer, never the token."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median

import numpy as np

from gatekeeper.analysis.metrics import exactness, first_tokens
from gatekeeper.analysis.metrics.answer_grading import grade
from gatekeeper.analysis.metrics.over_time import acceptance_window_min, excessive_drift
from gatekeeper.analysis.metrics.paired_answers import (
    PairedAnswers,
    by_canary,
    pair_ratios,
    per_canary,
    similar_lengths,
    successful,
    too_many_lost,
)
from gatekeeper.analysis.metrics.timing import (
    acceptance_length,
    acceptance_rate,
    answer_rate,
    bursts,
    came_in_bursts,
    decode_rate,
    gather_bursts,
    prefill_rate,
    prompt_rate_until_first,
    ttft,
)
from gatekeeper.analysis.stats import fixed_canaries, intervals
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.records import UNKNOWN, Answer, Generation
from gatekeeper.core.verdict import Estimate, Missing, fact

CUT_SHORT = 0.5
"""A greedy answer under half of plain decoding's length, on the same canary, was cut short."""
BURSTY_LENGTH = 16
"""Shorter answers have too few bursts to tell drafting from a stall."""
BURSTS_SHOWN, BURSTS_STRAY = 0.2, 0.05
"""At least this share of the drafting arm's answers must come in bursts, and at most this share of the plain arm's."""
LEAST_CONFIDENCE = 0.95
"""With fewer canaries than a bound of this confidence needs for prompts like them, a quantile is not bounded at all."""
CHUNKS_PER_TOKEN = 0.9
"""With fewer chunks a token a server joins tokens, and a chunk says nothing of one token's time."""
COMPLETE = frozenset({"stop", "tool_calls"})
"""Finish reasons of an answer that is not cut short."""


def estimate(name: str, paired: PairedAnswers) -> Estimate | Missing:
    """Return the estimate of one workload metric; Missing with the reason where the records do not give it."""
    metric = BY_NAME[name]
    if not paired.answers:
        return Missing("no answers were recorded")
    if metric.speed_ratio and (moved := excessive_drift(paired)) is not None:
        return Missing(moved, len(paired.pairs))
    if metric.quantile is not None:
        found = _QUANTILES[metric.base](paired, metric.quantile)
    else:
        found = _pass_delta(paired, metric.pass_rate.kind) if metric.pass_rate else _OTHERS[name](paired)
    if isinstance(found, Missing) or found.confidence is None or found.scope is not None:
        return found
    return replace(found, scope="population")


def _speed_ratio(read: Callable[[Answer], float | None], paired: PairedAnswers) -> Estimate | Missing:
    ratios, lost = pair_ratios(paired.pairs, read, greedy=paired.greedy)
    if (why := too_many_lost(lost, paired)) is not None:
        return Missing(why, len(paired.pairs))
    return mean_ratio(ratios, pair_ratios(paired.before, read, greedy=paired.greedy)[0], paired)


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
    lost = 0
    for pair in paired.pairs:
        faulty = any(one.answer.fault is not None or not one.answer.output_tokens for one in pair)
        if faulty or not similar_lengths(pair, greedy=paired.greedy):
            lost += 1
            continue
        for arm, one in zip(sums[pair[0].canary], pair, strict=True):
            arm[0] += one.answer.output_tokens or 0
            arm[1] += one.answer.ended_ns - one.answer.sent_ns
    if (why := too_many_lost(lost, paired)) is not None:
        return Missing(why, len(paired.pairs))
    return intervals.ratio_of_sums(sums, paired.level, paired.seed)


def _over_canaries(
    read: Callable[[Answer], float | None], paired: PairedAnswers, quantile: float
) -> Estimate | Missing:
    values = [(one.canary, value) for one in successful(paired.answers) if (value := read(one.answer)) is not None]
    if not values:
        return Missing("no answer has a value for it")
    medians = [median(seen) for seen in by_canary(values).values()]
    others = intervals.quantile(medians, quantile, paired.level)
    if not paired.frozen or _too_few(others, len(medians), quantile):
        return others
    answers = [(canary, [(value, 1.0)]) for canary, value in values]
    these = fixed_canaries.quantile(answers, quantile, paired.level, len(paired.canaries))
    if isinstance(others, Missing):  # of a look whose bounds are further out than the plan counted with
        return these or others
    return _beside(others, these)


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
    return found if isinstance(found, Missing) else _less_one(found)


def _less_one(found: Estimate) -> Estimate:
    """Turn a ratio into a relative change."""
    others = _less_one(found.population) if found.population is not None else None
    return replace(found, center=found.center - 1, lo=found.lo - 1, hi=found.hi - 1, population=others)


def _pass_delta(paired: PairedAnswers, kind: str | None) -> Estimate | Missing:
    paired = paired.words
    wanted = _expecting(paired, kind)
    if not wanted:
        return Missing("no canary of this workload has an expectation of this kind")
    # A failed plain answer is not counted as wrong; a candidate's is.
    marks = [_marks(paired, answers) for answers in (paired.answers, successful(paired.plain))]
    if (missing := _unanswered(wanted, marks[0].keys() & marks[1].keys(), paired)) is not None:
        return missing
    both = {name: (fmean(marks[0][name]), fmean(marks[1][name])) for name in wanted}
    steady = all(len(set(seen[name])) == 1 for seen in marks for name in wanted)
    if paired.greedy and steady and paired.frozen:
        return fact(math.fsum(mine - plain for mine, plain in both.values()) / len(both), len(both))
    return intervals.paired_pass_delta(both, paired.level)


def pass_rate(paired: PairedAnswers, kind: str | None) -> Estimate | None:
    """Return the mean pass rate of the canaries with an expectation of a *kind*; of any kind where it is None."""
    wanted = _expecting(paired, kind)
    marks = [seen for name, seen in _marks(paired, paired.answers).items() if name in wanted]
    if not marks:
        return None
    passed = math.fsum(map(fmean, marks))
    lo, hi = intervals.proportion_bounds(round(passed), len(marks), paired.level)
    center = passed / len(marks)
    return Estimate(center, min(center, lo), max(center, hi), len(marks), confidence=paired.level)


def _expecting(paired: PairedAnswers, kind: str | None) -> set[str]:
    return {name for name, one in paired.canaries.items() if one.expect and kind in {None, one.expect.kind}}


def _marks(paired: PairedAnswers, answers: Iterable[Generation]) -> dict[str, list[bool]]:
    marks: dict[str, list[bool]] = defaultdict(list)
    for one in answers:
        if (right := grade(paired.canaries[one.canary], one.answer)) is not None:
            marks[one.canary].append(right)
    return marks


def _unanswered(wanted: Collection[str], answered: Collection[str], paired: PairedAnswers) -> Missing | None:
    unseen = len(set(wanted) - set(answered))
    if not unseen:
        return None
    why = f"; {paired.not_forced}" if paired.not_forced else ""
    return Missing(f"{unseen} of {len(wanted)} canaries were not answered in both arms{why}", len(wanted) - unseen)


def _agreement(paired: PairedAnswers) -> Estimate | Missing:
    if not paired.greedy:
        return Missing("tokens can only be compared at temperature 0")
    paired = paired.words
    compared = exactness.compare(paired.answers, paired.plain, paired.ties)
    if (missing := _unanswered(paired.canaries, compared.agree, paired)) is not None:
        return missing
    return _share_of_canaries(compared.agree, paired, *compared.notes())


def _warm_cache_agreement(paired: PairedAnswers) -> Estimate | Missing:
    if isinstance(paired.warm_cache, str):
        return Missing(paired.warm_cache)
    compared = exactness.warm_cache_agreement(paired.warm_cache, paired.canaries.keys())
    return compared if isinstance(compared, Missing) else _share_of_canaries(compared[0], paired, *compared[1])


def _first_tokens(paired: PairedAnswers) -> Estimate | Missing:
    if isinstance(paired.first_tokens, str):
        return Missing(paired.first_tokens)
    entropy = paired.rules > 1
    return first_tokens.distribution_test(paired.first_tokens, len(paired.canaries), paired.seed, entropy=entropy)


def _error_rate(paired: PairedAnswers) -> Estimate | Missing:
    failed = per_canary(paired.answers, lambda answer: answer.fault is not None)
    return _share_of_answers(failed, paired, "had an answer that failed")


def _engaged(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of answers with drafted tokens; an answer of one token leaves nothing to draft."""
    whole = successful(paired.answers)
    long_enough = [one for one in whole if (one.answer.output_tokens or 0) > 1]
    if all(_proposed(one.answer) is None for one in long_enough):
        return _seen_in_bursts(paired)
    failed = {one.canary for one in paired.answers} - {one.canary for one in whole}
    if failed and not paired.frozen:  # such a canary could be either
        return Missing(f"all answers of {len(failed)} canaries failed", len(long_enough))
    proposed = per_canary(long_enough, lambda answer: _proposed(answer) is True)
    return _share_of_answers(proposed, paired, "had an answer with drafted tokens")


def _proposed(answer: Answer) -> bool | None:
    """Return whether a draft proposed tokens, by our counters or else the server's; None where neither counts."""
    drafted = answer.rounds.drafted if answer.rounds else answer.claims.drafted
    return None if drafted is None else drafted > 0


def _seen_in_bursts(paired: PairedAnswers) -> Estimate | Missing:
    """Show without counters that a draft was used: its answers come in bursts, and plain decoding's do not.

    That shows whether the draft was used at all, not how often.
    """
    together = paired.burst_gap
    mine, plain = (
        [
            came_in_bursts(one.answer, together)
            for one in successful(arm)
            if (one.answer.output_tokens or 0) >= BURSTY_LENGTH
        ]
        for arm in (paired.answers, paired.plain)
    )
    counts = f"{sum(mine)} of {len(mine)} answers came in bursts, {sum(plain)} of {len(plain)} plain ones did"
    if not mine or not plain or sum(mine) < BURSTS_SHOWN * len(mine) or sum(plain) > BURSTS_STRAY * len(plain):
        return Missing(f"cannot determine whether the draft was used: no counters, {counts}")
    if not paired.frozen:
        return Missing("cannot determine in which answers the draft was used: no counters", len(mine))
    return fact(1.0, len(mine), f"without counters: {counts}")


def _truncation(paired: PairedAnswers) -> Estimate | Missing:
    mine, plain = (per_canary(successful(arm), _ending) for arm in (paired.answers, paired.plain))
    cut = {
        canary: any(
            _cut_short(one, baseline, greedy=paired.greedy) for one in set(endings) for baseline in set(plain[canary])
        )
        for canary, endings in mine.items()
        if canary in plain
    }
    if not cut:
        return Missing("no canary was answered in both arms")
    if not paired.frozen and (missing := _unanswered(paired.canaries, cut, paired)) is not None:
        return missing
    return _share_of_canaries(cut, paired)


def _ending(answer: Answer) -> tuple[bool, int | None]:
    """Return whether an answer is complete, and its tokens."""
    return answer.finish in COMPLETE, answer.output_tokens


def _cut_short(mine: tuple[bool, int | None], baseline: tuple[bool, int | None], *, greedy: bool) -> bool:
    (complete, tokens), (baseline_complete, baseline_tokens) = mine, baseline
    if baseline_complete and not complete:
        return True
    if not greedy or tokens is None or baseline_tokens is None:
        return False
    return tokens < CUT_SHORT * baseline_tokens


def _share_of_canaries(holds: Mapping[str, bool], paired: PairedAnswers, *notes: str) -> Estimate | Missing:
    """Return the share of canaries for which something *holds*: counted, or bounded for all prompts like them."""
    if paired.frozen:
        return fact(fmean(holds.values()), len(holds), *notes)
    return _noted(intervals.clustered_share({name: [held] for name, held in holds.items()}, paired.level), *notes)


def _share_of_answers(marks: Mapping[str, Sequence[bool]], paired: PairedAnswers, what: str) -> Estimate | Missing:
    """Return the share of marked answers: counted, or bounded for all prompts like them; *what* describes a mark."""
    if paired.frozen:
        count = sum(map(len, marks.values()))
        return fact(sum(map(sum, marks.values())) / count, count)
    some = sum(any(seen) for seen in marks.values())
    return _noted(intervals.clustered_share(marks, paired.level), f"{some} of {len(marks)} canaries {what}")


def _noted(found: Estimate | Missing, *notes: str) -> Estimate | Missing:
    return replace(found, notes=notes) if isinstance(found, Estimate) else found


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
    "token_agreement": _agreement,
    "warm_cache_agreement": _warm_cache_agreement,
    "first_tokens_p_value": _first_tokens,
    "error_rate": _error_rate,
    "speculation_engaged": _engaged,
    "truncation_rate": _truncation,
    "acceptance_window_min": acceptance_window_min,
}
