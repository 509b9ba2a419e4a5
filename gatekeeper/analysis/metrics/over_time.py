"""Change over a soak: the drift of plain decoding's speed, and acceptance window by window."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.timing import decode_or_answer_rate
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.units import percent
from gatekeeper.core.verdict import Estimate, Missing, fact


def plain_drift(paired: PairedAnswers) -> Estimate | Missing:
    """Estimate how much plain decoding's speed changed over the soak, as a share of itself, from its plain answers.

    Each canary is compared with itself alone, by the seasonal Kendall slope.
    """
    return paired.once(f"drift at {paired.level}", paired.plain, lambda plain: _drift(plain, paired.level))


def _drift(plain: Sequence[Generation], level: float) -> Estimate | Missing:
    by_canary: dict[str, list[tuple[float, float]]] = defaultdict(list)
    last = max((one.segment for one in plain), default=0)  # clocks of two segments do not compare
    for one in successful(plain):
        rate = decode_or_answer_rate(one.answer)
        if rate and one.segment == last:
            by_canary[one.canary].append((float(one.answer.sent_ns), math.log(rate)))
    slope = intervals.seasonal_slope(list(by_canary.values()), level)
    if isinstance(slope, Missing):
        return Missing(f"too few plain answers to the same canaries to measure a drift: {slope.because}", slope.n)
    times = [at for seen in by_canary.values() for at, _ in seen]
    span = max(times) - min(times)
    return replace(slope, center=slope.center * span, lo=slope.lo * span, hi=slope.hi * span)


def excessive_drift(paired: PairedAnswers) -> str | None:
    """Describe a drift of plain decoding that is too large for a ratio; None where there is none.

    Paired requests drift together, so there the excess must be proven. For plain blocks, which run apart from the soak,
    a likely drift is enough.
    """
    limit = paired.drift_limit
    if math.isinf(limit):  # the sweep interleaves its arms, so a drift does not change its ratios
        return None
    moved = plain_drift(paired)
    if isinstance(moved, Missing):
        return None
    apart = any(one.role is Role.BLOCK for one in paired.plain)
    least = 0.0 if apart else limit
    if abs(moved.center) > limit and (moved.lo > least or moved.hi < -least):
        drift = percent(moved.center, "+.1f")
        return f"the speed of plain decoding drifted by {drift} during the soak, {percent(limit, '.3g')} allowed"
    return None


def acceptance_windows(paired: PairedAnswers) -> dict[tuple[int, int], float | None]:
    """Return accepted over drafted tokens by (segment, number) of each window that has answers.

    Answers without drafted tokens count as accepting none; if no answer of the soak has any, every window is None. A
    window without answers is left out.
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
    """Return the smallest, over three consecutive windows of the soak, of the largest acceptance of the three."""
    seen = acceptance_windows(paired)
    rates = {at: rate for at, rate in seen.items() if rate is not None}
    if not rates:
        return Missing("no answer has drafted tokens", len(seen))
    threes = [
        max(rates[segment, number + step] for step in range(3))
        for segment, number in rates
        if all((segment, number + step) in rates for step in range(3))
    ]
    if not threes:
        return Missing("the soak has no three consecutive windows with drafted tokens", len(rates))
    return fact(min(threes), len(rates))
