"""The ratio of all streams together as runs of rules 1 and 2 are judged by it: tokens over busy time."""

import math
from collections import defaultdict
from collections.abc import Iterable

from gatekeeper.analysis.metrics.lost_pairs import Pair, similar_lengths
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.core.verdict import Estimate, Missing


def system_ratio(paired: PairedAnswers) -> Estimate | Missing:
    """Compare tokens over busy time, which is wall time times the streams because every stream is always busy."""
    sums: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([0, 0], [0, 0]))
    work, lost = _pair_work(paired.pairs, least=paired.least_length)
    for name, *arms in work:
        for arm, (tokens, busy_ns) in zip(sums[name], arms, strict=True):
            arm[0] += tokens
            arm[1] += busy_ns
    if (reason := paired.too_many_lost(lost)) is not None:
        return Missing(reason, len(paired.pairs))
    return intervals.ratio_of_sums(sums, paired.level, paired.seed)


def system_logs(paired: PairedAnswers) -> list[tuple[str, float]] | Missing:
    """Return the log of tokens over busy time, candidate over plain, with each pair's part in its noise added.

    Each canary weighs the same. The parts are those of the delta method: their mean over canaries is zero.
    """
    work, lost = _pair_work(paired.pairs, least=paired.least_length)
    if (reason := paired.too_many_lost(lost)) is not None:
        return Missing(reason, len(paired.pairs))
    rows = [(name, (*candidate, *plain)) for name, candidate, plain in work]
    grouped = by_canary(rows).values()
    means = [[math.fsum(column) / len(group) for column in zip(*group, strict=True)] for group in grouped]
    totals = [math.fsum(column) / len(means) for column in zip(*means, strict=True)]
    if min(totals) <= 0:
        return Missing("an answer took no time", len(paired.pairs))
    signs = (1, -1, -1, 1)
    center = math.fsum(sign * math.log(total) for sign, total in zip(signs, totals, strict=True))
    return [
        (name, center + math.fsum(sign * part / total for sign, part, total in zip(signs, row, totals, strict=True)))
        for name, row in rows
    ]


def _pair_work(
    pairs: Iterable[Pair], *, least: float
) -> tuple[list[tuple[str, tuple[int, int], tuple[int, int]]], int]:
    """Return the canary of each pair with the tokens and busy nanoseconds of both answers, and how many are lost."""
    rows = []
    lost = 0
    for pair in pairs:
        faulty = any(generation.answer.fault is not None or not generation.answer.output_tokens for generation in pair)
        if faulty or not similar_lengths(pair, least):
            lost += 1
            continue
        drafting, plain = (
            (generation.answer.output_tokens or 0, generation.answer.ended_ns - generation.answer.sent_ns)
            for generation in pair
        )
        rows.append((pair[0].canary, drafting, plain))
    return rows, lost
