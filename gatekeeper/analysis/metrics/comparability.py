"""Whether two arms can be compared at all: an unstable plain arm, answers of different lengths, the metrics voided."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, variance

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, similar_lengths, successful
from gatekeeper.analysis.metrics.timing import answer_rate, decode_rate
from gatekeeper.core.metrics import ALL
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.verdict import Finding

OUTLIER_FACTOR = 2.0
"""A plain answer this many times faster or slower than its canary's median is far off: schedulers do less."""
OUTLIER_SHARE = 0.25
"""More far-off answers than this, and the arm has no speed of its own; fewer are tails, which intervals carry."""
MODE_RATIO = 1.2
"""Two modes closer together than this factor are noise for the interval to carry."""
MIN_ASHMAN_D = 4.0
"""Ashman's D of the two halves (Ashman, Bird & Zepf 1994): a normal cut in two has 2.7, an even spread 3.5."""
OUTLIER_CANARIES = 3
"""So many canaries must have a far-off answer: one stalled answer is a stall, not an arm."""
BIMODAL_ANSWERS, BIMODAL_REPEATS = 90, 4
"""Two heaps are looked for in so many answers, so many to each canary: a normal arm is then taken for two in under 1 %
of simulated runs at up to 20 % noise. With 12 answers, two to a canary, it was every third at 15 %."""
MIN_ANSWERS = 8
"""Fewer answers say nothing about the shape of an arm, or about counters."""
_RATIOS = frozenset(metric.name for metric in ALL if metric.speed_ratio)


def unstable_plain_arm(plain: Iterable[Generation], about: str) -> tuple[Finding, ...]:
    """Return a finding if the speed of the plain arm is too variable to compare with."""
    wild = instability(plain)
    advice = "find what else runs on this machine, or what the server does in between, then measure again"
    return (Finding("unstable_arm", about, wild, advice, voids=_RATIOS),) if wild is not None else ()


def length_mismatches(evidence: PairedAnswers, about: str) -> tuple[Finding, ...]:
    """Return a finding if answers of a pair differ in length; no ratio counts such pairs."""
    odd = [pair for pair in evidence.pairs if not similar_lengths(pair, greedy=evidence.greedy)]
    if not odd:
        return ()
    mine, twin = (one.answer.output_tokens for one in odd[0])
    detail = (
        f"{len(odd)} of {len(evidence.pairs)} pairs differ in length, e.g. {odd[0][0].canary}: {mine} tokens "
        f"against {twin} of plain decoding; they carry no speed"
    )
    return (Finding("length_mismatch", about, detail, "look for truncation or early stops"),)


def voided_metrics(findings: Iterable[Finding]) -> Mapping[str, str]:
    """Return the metrics that a finding makes unproven, each with the reason."""
    return {metric: f"{one.kind}: {one.detail}" for one in findings for metric in one.voids}


def instability(plain: Iterable[Generation]) -> str | None:
    """Say that plain decoding has no speed of its own, if answers to the same canary scatter wildly or in two heaps."""
    speeds: dict[str, list[float]] = defaultdict(list)
    for one in successful(plain):
        rate = decode_rate(one.answer) or answer_rate(one.answer)
        if rate and one.role is not Role.WARMUP:
            speeds[one.canary].append(math.log(rate))
    groups = [seen for seen in speeds.values() if len(seen) > 1]
    n = sum(len(seen) for seen in groups)
    if n < MIN_ANSWERS:
        return None
    widest = max(groups, key=lambda seen: max(seen) - min(seen))
    example = f"the same canary read {math.exp(min(widest)):.4g} and {math.exp(max(widest)):.4g} tok/s"
    far_off = [sum(abs(value - median(seen)) > math.log(OUTLIER_FACTOR) for value in seen) for seen in groups]
    far = sum(far_off)
    if far > OUTLIER_SHARE * n and sum(count > 0 for count in far_off) >= OUTLIER_CANARIES:
        return (
            f"{far} of {n} plain answers are off their canary's median by more than {OUTLIER_FACTOR:g} times; {example}"
        )
    often = [value - max(seen) for seen in groups if len(seen) >= BIMODAL_REPEATS for value in seen]
    if len(often) >= BIMODAL_ANSWERS and _two_heaps(often):
        return f"plain answers fall into two heaps; {example}"
    return None


def _two_heaps(values: Sequence[float]) -> bool:
    """Tell whether the best cut in two (Otsu 1979) leaves two clean heaps, each of a tenth of the values or more."""
    ordered = sorted(values)
    n = len(ordered)
    least = max(2, math.ceil(OUTLIER_SHARE * n))
    if n < 2 * least:
        return False

    def between(cut: int) -> float:
        low, high = math.fsum(ordered[:cut]) / cut, math.fsum(ordered[cut:]) / (n - cut)
        return cut * (n - cut) * (high - low) ** 2

    cut = max(range(least, n - least + 1), key=between)
    heaps = (ordered[:cut], ordered[cut:])
    means = [math.fsum(heap) / len(heap) for heap in heaps]
    spread = sum(variance(heap) for heap in heaps)
    apart = means[1] - means[0]
    return apart > math.log(MODE_RATIO) and apart * math.sqrt(2) > MIN_ASHMAN_D * math.sqrt(spread)
