"""The drift: how far plain decoding's own speed moved while the soak ran."""

import math
from collections import defaultdict
from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.timing import answer_rate, decode_rate
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Role
from gatekeeper.core.verdict import Estimate, Missing, fact


def plain_drift(evidence: PairedAnswers) -> Estimate | Missing:
    """Estimate how much plain decoding's speed changed over the soak, as a share of itself, from its plain answers.

    Each canary is compared with itself alone, by the seasonal Kendall slope.
    """
    by_canary: dict[str, list[tuple[float, float]]] = defaultdict(list)
    last = max((one.segment for one in evidence.plain), default=0)  # clocks of two segments do not compare
    for one in successful(evidence.plain):
        rate = decode_rate(one.answer) or answer_rate(one.answer)
        if rate and one.segment == last:
            by_canary[one.canary].append((float(one.answer.sent_ns), math.log(rate)))
    slope = intervals.seasonal_slope(list(by_canary.values()), evidence.level)
    if isinstance(slope, Missing):
        return Missing(f"too few plain answers to the same canaries to see a drift: {slope.because}", slope.n)
    times = [at for seen in by_canary.values() for at, _ in seen]
    span = max(times) - min(times)
    return replace(slope, center=slope.center * span, lo=slope.lo * span, hi=slope.hi * span)


def excessive_drift(evidence: PairedAnswers) -> str | None:
    """Say that plain decoding drifted too far for a ratio, if it did.

    Twins asked next to each other drift together, so there the excess has to be proven. Where plain blocks lie apart
    from the soak, a drift that is likely is enough.
    """
    limit = evidence.drift_limit
    if math.isinf(limit):  # the sweep's arms are interleaved: its ratios stand whatever drifted
        return None
    moved = plain_drift(evidence)
    if isinstance(moved, Missing):
        return None
    woven = all(twin.role is not Role.BLOCK for twin in evidence.plain)
    least = limit if woven else 0.0
    if abs(moved.center) > limit and (moved.lo > least or moved.hi < -least):
        return f"plain decoding drifted by {moved.center:+.1%} during the soak, more than {limit:.0%}"
    return None


def acceptance_windows(evidence: PairedAnswers) -> dict[tuple[int, int], float | None]:
    """Return accepted over drafted tokens by (segment, number) of each window that has answers.

    Answers that drafted nothing count as accepting nothing; where no answer of the soak did, every window is None. A
    window without answers says nothing and is left out.
    """
    window_ns = round(evidence.window_s * 1e9)
    drafted: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    begun: dict[int, int] = {}
    for one in sorted(successful(evidence.answers), key=lambda one: (one.segment, one.answer.sent_ns)):
        start = begun.setdefault(one.segment, one.answer.sent_ns)
        number = (one.answer.ended_ns - start) // window_ns
        if one.answer.rounds is not None:
            drafted[one.segment, number][0] += one.answer.rounds.accepted
            drafted[one.segment, number][1] += one.answer.rounds.drafted
    if not any(tried for _, tried in drafted.values()):
        return dict.fromkeys(drafted)
    return {at: accepted / tried if tried else 0.0 for at, (accepted, tried) in drafted.items()}


def acceptance_window_min(evidence: PairedAnswers) -> Estimate | Missing:
    """Fold acceptance over windows of the soak: the smallest, over three in a row, of the largest of the three."""
    seen = acceptance_windows(evidence)
    rates = {at: rate for at, rate in seen.items() if rate is not None}
    if not rates:
        return Missing("no answer drafted anything", len(seen))
    threes = [
        max(rates[segment, number + step] for step in range(3))
        for segment, number in rates
        if all((segment, number + step) in rates for step in range(3))
    ]
    if not threes:
        return Missing("the soak has no three consecutive windows with drafted tokens", len(rates))
    return fact(min(threes), len(rates))
