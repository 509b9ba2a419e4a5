"""Change over a soak: the drift of plain decoding's speed, and acceptance window by window."""

import math
from collections import defaultdict
from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.timing import decode_or_answer_rate
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Role
from gatekeeper.core.verdict import Estimate, Missing, fact


def plain_drift(paired: PairedAnswers) -> Estimate | Missing:
    """Estimate how much plain decoding's speed changed over the soak, as a share of itself, from its plain answers.

    Each canary is compared with itself alone, by the seasonal Kendall slope.
    """
    by_canary: dict[str, list[tuple[float, float]]] = defaultdict(list)
    last = max((one.segment for one in paired.plain), default=0)  # clocks of two segments do not compare
    for one in successful(paired.plain):
        rate = decode_or_answer_rate(one.answer)
        if rate and one.segment == last:
            by_canary[one.canary].append((float(one.answer.sent_ns), math.log(rate)))
    slope = intervals.seasonal_slope(list(by_canary.values()), paired.level)
    if isinstance(slope, Missing):
        return Missing(f"too few plain answers to the same canaries to see a drift: {slope.because}", slope.n)
    times = [at for seen in by_canary.values() for at, _ in seen]
    span = max(times) - min(times)
    return replace(slope, center=slope.center * span, lo=slope.lo * span, hi=slope.hi * span)


def excessive_drift(paired: PairedAnswers) -> str | None:
    """Say that plain decoding drifted too far for a ratio, if it did.

    Paired requests sent next to each other drift together, so there the excess has to be proven. Where plain blocks lie
    apart from the soak, a drift that is likely is enough.
    """
    limit = paired.drift_limit
    if math.isinf(limit):  # the sweep's arms are interleaved: its ratios stand whatever drifted
        return None
    moved = plain_drift(paired)
    if isinstance(moved, Missing):
        return None
    apart = any(one.role is Role.BLOCK for one in paired.plain)
    least = 0.0 if apart else limit
    if abs(moved.center) > limit and (moved.lo > least or moved.hi < -least):
        return f"plain decoding drifted by {moved.center:+.1%} during the soak, more than {limit:.0%}"
    return None


def acceptance_windows(paired: PairedAnswers) -> dict[tuple[int, int], float | None]:
    """Return accepted over drafted tokens by (segment, number) of each window that has answers.

    Answers that drafted nothing count as accepting nothing; where no answer of the soak did, every window is None. A
    window without answers says nothing and is left out.
    """
    window_ns = round(paired.window_s * 1e9)
    drafted: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    begun: dict[int, int] = {}
    for one in sorted(successful(paired.answers), key=lambda one: (one.segment, one.answer.sent_ns)):
        start = begun.setdefault(one.segment, one.answer.sent_ns)
        number = (one.answer.ended_ns - start) // window_ns
        if one.answer.rounds is not None:
            drafted[one.segment, number][0] += one.answer.rounds.accepted
            drafted[one.segment, number][1] += one.answer.rounds.drafted
    if not any(tried for _, tried in drafted.values()):
        return dict.fromkeys(drafted)
    return {at: accepted / tried if tried else 0.0 for at, (accepted, tried) in drafted.items()}


def acceptance_window_min(paired: PairedAnswers) -> Estimate | Missing:
    """Fold acceptance over windows of the soak: the smallest, over three in a row, of the largest of the three."""
    seen = acceptance_windows(paired)
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
