"""The drift: how far plain decoding's own speed moved while the soak ran."""

import math
from collections import defaultdict

from gatekeeper.terms.outcome import Estimate, Missing
from gatekeeper.terms.records import Role
from gatekeeper.verdict import stats
from gatekeeper.verdict.evidence import Evidence, sound
from gatekeeper.verdict.timing import answer_rate, decode_rate


def drift(evidence: Evidence) -> Estimate | Missing:
    """Estimate how much plain decoding's speed changed over the soak, as a share of itself, from its plain answers.

    Each canary is compared with itself alone, by the seasonal Kendall slope.
    """
    by_canary: dict[str, list[tuple[float, float]]] = defaultdict(list)
    last = max((one.segment for one in evidence.plain), default=0)  # clocks of two segments do not compare
    for one in sound(evidence.plain):
        rate = decode_rate(one.answer) or answer_rate(one.answer)
        if rate and one.segment == last:
            by_canary[one.canary].append((float(one.answer.sent_ns), math.log(rate)))
    slope = stats.seasonal_slope(list(by_canary.values()), evidence.level)
    if isinstance(slope, Missing):
        return Missing(f"too few plain answers to the same canaries to see a drift: {slope.because}", slope.n)
    times = [at for seen in by_canary.values() for at, _ in seen]
    span = max(times) - min(times)
    return Estimate(slope.center * span, slope.lo * span, slope.hi * span, slope.n)


def drifted(evidence: Evidence) -> str | None:
    """Say that plain decoding drifted too far for a ratio, if it did.

    Twins asked next to each other drift together, so there the excess has to be proven. Where plain blocks lie apart
    from the soak, a drift that is likely is enough.
    """
    limit = evidence.drift_limit
    if math.isinf(limit):  # the sweep's arms are interleaved: its ratios stand whatever drifted
        return None
    moved = drift(evidence)
    if isinstance(moved, Missing):
        return None
    woven = all(twin.role is not Role.BLOCK for twin in evidence.plain)
    least = limit if woven else 0.0
    if abs(moved.center) > limit and (moved.lo > least or moved.hi < -least):
        return f"plain decoding drifted by {moved.center:+.1%} during the soak, more than {limit:.0%}"
    return None
