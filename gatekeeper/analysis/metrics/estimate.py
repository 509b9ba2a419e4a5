"""Records become samples, and samples the estimate of a metric. The answer is the unit; tokens never are."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median

from gatekeeper.analysis.metrics import exactness, first_tokens
from gatekeeper.analysis.metrics.answer_grading import grade
from gatekeeper.analysis.metrics.over_time import acceptance_window_min, excessive_drift
from gatekeeper.analysis.metrics.paired_answers import (
    BURST_SHARE,
    PairedAnswers,
    paired_ratios,
    per_canary,
    plain_gap,
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
    prefill_rate,
    ttft,
)
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import PASS_DELTAS, RATIOS
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.verdict import Estimate, Missing, fact

CUT_SHORT = 0.5
"""A greedy answer under half of plain decoding's length, on the same canary, was cut short."""
BURSTY_LENGTH = 16
"""Shorter answers have too few bursts to tell drafting from a hiccup."""
BURSTS_SHOWN, BURSTS_STRAY = 0.2, 0.05
"""So many of a drafting arm's answers must come in bursts, and no more of plain decoding's may."""


def estimate(metric: str, evidence: PairedAnswers) -> Estimate | Missing:
    """Return the estimate of one workload metric; Missing, and why, where the records do not give it."""
    if not evidence.answers:
        return Missing("nothing was recorded")
    if metric in RATIOS:
        return _ratio(metric, evidence)
    if metric in PASS_DELTAS:
        return _pass_delta(PASS_DELTAS[metric], evidence)
    if metric in _PER_CANARY:
        return _per_canary_quantile(metric, evidence)
    if metric in _POOLED:
        return _itl(_POOLED[metric], evidence)
    return _OTHERS[metric](evidence)


def _ratio(metric: str, evidence: PairedAnswers) -> Estimate | Missing:
    if (moved := excessive_drift(evidence)) is not None:
        return Missing(moved, len(evidence.pairs))
    if metric == "system_throughput_ratio":
        return _system_ratio(evidence)
    together = BURST_SHARE * plain_gap(evidence)
    read = partial(decode_rate, together_s=together) if metric == "throughput_ratio" else answer_rate
    ratios, lost = paired_ratios(evidence.pairs, read, greedy=evidence.greedy)
    if (why := too_many_lost(lost, evidence)) is not None:
        return Missing(why, len(evidence.pairs))
    return intervals.geometric_mean_ratio(ratios, evidence.level, evidence.seed)


def _system_ratio(evidence: PairedAnswers) -> Estimate | Missing:
    """Compare tokens over busy time: with every stream always busy, that is wall time times the streams."""
    pairs: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {}
    sums: tuple[dict[str, list[tuple[float, float]]], ...] = (defaultdict(list), defaultdict(list))
    lost = 0
    for pair in evidence.pairs:
        faulty = any(one.answer.fault is not None or not one.answer.output_tokens for one in pair)
        if faulty or not similar_lengths(pair, greedy=evidence.greedy):
            lost += 1
            continue
        for arm, one in zip(sums, pair, strict=True):
            busy = float(one.answer.ended_ns - one.answer.sent_ns)
            arm[one.canary].append((float(one.answer.output_tokens or 0), busy))
    if (why := too_many_lost(lost, evidence)) is not None:
        return Missing(why, len(evidence.pairs))
    for canary, mine in sums[0].items():
        both = tuple(
            (sum(tokens for tokens, _ in arm), sum(busy for _, busy in arm)) for arm in (mine, sums[1][canary])
        )
        pairs[canary] = (both[0], both[1])
    return intervals.ratio_of_sums(pairs, evidence.level, evidence.seed)


def _per_canary_quantile(metric: str, evidence: PairedAnswers) -> Estimate | Missing:
    read, q = _PER_CANARY[metric]
    if metric in {"round_gap_p95", "stall_p95"}:
        together = BURST_SHARE * plain_gap(evidence)
        if metric == "round_gap_p95":
            clusters: dict[str, list[tuple[float, int]]] = defaultdict(list)
            for one in successful(evidence.answers):
                clusters[one.canary] += [(gap, 1) for gap, _ in bursts(one.answer, together)]
            return intervals.pooled_quantile(clusters, q, evidence.level)

        def read(answer: Answer) -> float | None:
            return max((gap for gap, _ in bursts(answer, together)), default=None)

    values = per_canary(successful(evidence.answers), read)
    if not values:
        return Missing("no answer shows it")
    return intervals.quantile([median(seen) for seen in values.values()], q, evidence.level)


def _tpot(answer: Answer) -> float | None:
    rate = decode_rate(answer)
    return 1 / rate if rate else None


def _never(_: Answer) -> float | None:
    return None


_PER_CANARY: dict[str, tuple[Callable[[Answer], float | None], float]] = {
    "decode_throughput": (decode_rate, 0.5),
    "prefill_throughput": (prefill_rate, 0.5),
    "ttft": (ttft, 0.5),
    "acceptance_rate": (acceptance_rate, 0.5),
    "acceptance_length": (acceptance_length, 0.5),
    "tpot_p95": (_tpot, 0.95),
    "round_gap_p95": (_never, 0.95),
    "stall_p95": (_never, 0.95),
}
_POOLED = {"itl_p50": 0.50, "itl_p95": 0.95, "itl_p99": 0.99}


def _itl(q: float, evidence: PairedAnswers) -> Estimate | Missing:
    together = BURST_SHARE * plain_gap(evidence)
    clusters: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for one in successful(evidence.answers):
        for gap, tokens in bursts(one.answer, together):
            if tokens is None:
                return Missing("this backend does not count the tokens of a chunk")
            if tokens:
                clusters[one.canary].append((gap / tokens, tokens))
    return intervals.pooled_quantile(clusters, q, evidence.level)


def _ttft_delta(evidence: PairedAnswers) -> Estimate | Missing:
    mine = per_canary((one for one, _ in evidence.pairs if one.answer.fault is None), ttft)
    plain = per_canary((one for _, one in evidence.pairs if one.answer.fault is None), ttft)
    both = {canary: (median(mine[canary]), median(plain[canary])) for canary in mine.keys() & plain.keys()}
    return intervals.relative_change_of_medians(both, evidence.level, evidence.seed)


def _pass_delta(kind: str | None, evidence: PairedAnswers) -> Estimate | Missing:
    wanted = {
        name for name, canary in evidence.canaries.items() if canary.expect and kind in {None, canary.expect.kind}
    }
    if not wanted:
        return Missing("no canary of this workload expects anything of this kind")
    # A plain answer that failed is no evidence that plain decoding is wrong; a candidate's is wrong.
    marks = [_marks(answers, evidence.canaries) for answers in (evidence.answers, successful(evidence.plain))]
    unseen = wanted - (marks[0].keys() & marks[1].keys())
    if unseen:
        return Missing(
            f"{len(unseen)} of {len(wanted)} canaries were not answered in both arms", len(wanted) - len(unseen)
        )
    both = {name: (fmean(marks[0][name]), fmean(marks[1][name])) for name in wanted}
    steady = all(len(set(seen[name])) == 1 for seen in marks for name in wanted)
    if evidence.greedy and steady and evidence.frozen:
        return fact(math.fsum(mine - plain for mine, plain in both.values()) / len(both), len(both))
    return intervals.paired_pass_delta(both, evidence.level)


def pass_rate(evidence: PairedAnswers, kind: str | None) -> Estimate | None:
    """Return the share of right answers, canary by canary, to those that expect something of a *kind*; None for all."""
    wanted = {name for name, one in evidence.canaries.items() if one.expect and kind in {None, one.expect.kind}}
    marks = {name: seen for name, seen in _marks(evidence.answers, evidence.canaries).items() if name in wanted}
    if not marks:
        return None
    passed = math.fsum(fmean(seen) for seen in marks.values())
    lo, hi = intervals.proportion_bounds(round(passed), len(marks), evidence.level)
    center = passed / len(marks)
    return Estimate(center, min(center, lo), max(center, hi), len(marks))


def _marks(answers: Sequence[Generation], canaries: Mapping[str, Canary]) -> dict[str, list[bool]]:
    out: dict[str, list[bool]] = defaultdict(list)
    for one in answers:
        marks = grade(canaries[one.canary], one.answer)
        if marks is not None:
            out[one.canary].append(marks.strict)
    return out


def _agreement(evidence: PairedAnswers) -> Estimate | Missing:
    if not evidence.greedy:
        return Missing("tokens can be compared one by one at temperature 0 only")
    compared = exactness.compare(evidence.answers, evidence.plain, evidence.ties)
    agree, notes = compared.agree, compared.notes()
    unseen = len(evidence.canaries) - len(agree)
    if unseen:
        return Missing(f"{unseen} of {len(evidence.canaries)} canaries were not answered in both arms", len(agree))
    return _of_canaries(agree, evidence, *notes)


def _of_canaries(holds: Mapping[str, bool], evidence: PairedAnswers, *notes: str) -> Estimate | Missing:
    """Return the share of canaries of which something *holds*: counted, or bounded for all prompts like them."""
    if evidence.frozen:
        return fact(fmean(holds.values()), len(holds), *notes)
    return _noted(intervals.clustered_share({name: [held] for name, held in holds.items()}, evidence.level), *notes)


def _of_answers(marks: Mapping[str, Sequence[bool]], evidence: PairedAnswers, what: str) -> Estimate | Missing:
    """Bound the share of answers that are marked, for all prompts like the canaries; *what* says what a mark means."""
    some = sum(any(seen) for seen in marks.values())
    return _noted(intervals.clustered_share(marks, evidence.level), f"{some} of {len(marks)} canaries {what}")


def _noted(found: Estimate | Missing, *notes: str) -> Estimate | Missing:
    return replace(found, notes=notes) if isinstance(found, Estimate) else found


def _warm_agreement(evidence: PairedAnswers) -> Estimate | Missing:
    if isinstance(evidence.warm, str):
        return Missing(evidence.warm)
    compared = exactness.warm_cache_agreement(evidence.warm, evidence.canaries.keys())
    if isinstance(compared, Missing):
        return compared
    agree, notes = compared
    return _of_canaries(agree, evidence, *notes)


def _first_tokens(evidence: PairedAnswers) -> Estimate | Missing:
    if isinstance(evidence.draws, str):
        return Missing(evidence.draws)
    return first_tokens.distribution_test(evidence.draws, len(evidence.canaries), evidence.seed)


def _error_rate(evidence: PairedAnswers) -> Estimate | Missing:
    faults: dict[str, list[bool]] = defaultdict(list)
    for one in evidence.answers:
        faults[one.canary].append(one.answer.fault is not None)
    if not evidence.frozen:
        return _of_answers(faults, evidence, "had an answer that failed")
    return fact(sum(map(sum, faults.values())) / len(evidence.answers), len(evidence.answers))


def _engaged(evidence: PairedAnswers) -> Estimate | Missing:
    """Count answers in which a draft proposed; an answer of one token leaves nothing to draft."""
    long_enough = [one for one in successful(evidence.answers) if (one.answer.output_tokens or 0) > 1]
    proposed = [_proposed(one.answer) for one in long_enough]
    if all(seen is None for seen in proposed):
        return _seen_in_bursts(evidence)
    if not evidence.frozen:
        return _engaged_beyond(evidence, long_enough)
    return fact(sum(seen is True for seen in proposed) / len(proposed), len(proposed))


def _proposed(answer: Answer) -> bool | None:
    """Tell by our counters, else by the server's, whether a draft proposed; None where nobody counted."""
    drafted = answer.rounds.drafted if answer.rounds else answer.claims.drafted
    return None if drafted is None else drafted > 0


def _engaged_beyond(evidence: PairedAnswers, long_enough: Sequence[Generation]) -> Estimate | Missing:
    """Bound the share for all prompts like the canaries; one whose answers all failed could be either."""
    failed = {one.canary for one in evidence.answers} - {one.canary for one in successful(evidence.answers)}
    if failed:
        return Missing(f"every answer of {len(failed)} canaries failed", len(long_enough))
    marks: dict[str, list[bool]] = defaultdict(list)
    for one in long_enough:
        marks[one.canary].append(_proposed(one.answer) is True)
    return _of_answers(marks, evidence, "had an answer with drafted tokens")


def _seen_in_bursts(evidence: PairedAnswers) -> Estimate | Missing:
    """Show without any counter that a draft was used: its answers come in bursts, and plain decoding's do not.

    How often it proposed stays unknown, so nothing but the whole can be told: it was used, or nothing shows it.
    """
    together = BURST_SHARE * plain_gap(evidence)
    arms = [[one.answer for one in successful(arm)] for arm in (evidence.answers, evidence.plain)]
    long_enough = [[one for one in arm if (one.output_tokens or 0) >= BURSTY_LENGTH] for arm in arms]
    mine, plain = ([came_in_bursts(one, together) for one in arm] for arm in long_enough)
    told = f"{sum(mine)} of {len(mine)} answers came in bursts, {sum(plain)} of {len(plain)} plain ones did"
    if not mine or not plain or sum(mine) < BURSTS_SHOWN * len(mine) or sum(plain) > BURSTS_STRAY * len(plain):
        return Missing(f"nothing shows whether the draft was used: no counters, and {told}")
    if not evidence.frozen:
        return Missing("without counters nothing shows in which answers the draft was used", len(mine))
    return fact(1.0, len(mine), f"without counters: {told}")


def _truncation(evidence: PairedAnswers) -> Estimate | Missing:
    plain: dict[str, list[Answer]] = defaultdict(list)
    for one in successful(evidence.plain):
        plain[one.canary].append(one.answer)
    cut: dict[str, list[bool]] = defaultdict(list)
    for one in successful(evidence.answers):
        for twin in plain[one.canary]:
            cut[one.canary].append(_cut_short(one.answer, twin, greedy=evidence.greedy))
    if not cut:
        return Missing("no canary was answered in both arms")
    if not evidence.frozen and (unseen := len(evidence.canaries.keys() - cut.keys())):
        return Missing(f"{unseen} of {len(evidence.canaries)} canaries were not answered in both arms", len(cut))
    return _of_canaries({name: any(seen) for name, seen in cut.items()}, evidence)


def _cut_short(mine: Answer, twin: Answer, *, greedy: bool) -> bool:
    complete = twin.finish in {"stop", "tool_calls"}
    if complete and mine.finish not in {"stop", "tool_calls"}:
        return True
    lengths = (mine.output_tokens, twin.output_tokens)
    return greedy and None not in lengths and (lengths[0] or 0) < CUT_SHORT * (lengths[1] or 0)


_OTHERS: dict[str, Callable[[PairedAnswers], Estimate | Missing]] = {
    "ttft_delta": _ttft_delta,
    "token_agreement": _agreement,
    "warm_cache_agreement": _warm_agreement,
    "first_tokens_p_value": _first_tokens,
    "error_rate": _error_rate,
    "speculation_engaged": _engaged,
    "truncation_rate": _truncation,
    "acceptance_window_min": acceptance_window_min,
}
