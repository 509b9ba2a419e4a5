"""Tests of a latency against its bound: few answers show a clear miss, and repeats of a canary count as answers.

The share of an answer is the part of its values that lies above the bound; a quantile q keeps its bound if the mean
share is at most 1 - q. With one value an answer the test is an exact binomial one. It holds for fixed canaries that are
answered equally often as well: a sum of unlike chances has lighter tails than a binomial one of their mean (Hoeffding
1956). The gaps of an answer depend on each other, so of them the mean share is bounded by Student's interval over
answers. Answers are taken to be independent; what slows several at once is not allowed for.
"""

import math
from bisect import bisect_left

import numpy as np

from gatekeeper.analysis.stats.intervals import Floats, WeightedValues, binomial_cdf, samples_needed, student_quantile

EVEN = 24
"""Answers from which the mean of their shares is near enough to normal for Student's bound."""
HALF_TAIL = 0.9
"""From this quantile on, an answer counts as beyond its bound if half of its values are; below, if all are."""


def is_broken(values: WeightedValues, bound: float, q: float, error: float) -> bool:
    """Tell whether answers prove that the *q* quantile of their values lies above *bound*, wrongly with *error*.

    If the quantile kept the bound, at most (1 - q) / s of the answers would have a share of s or more (Markov): an
    exact binomial tail, whose chance unequal weights raise. With many values an answer and `EVEN` answers or more,
    Student's bound of the mean share counts as well, with half the error each.
    """
    shares, weights = _shares(values, bound)
    n, allowed = len(shares), 1 - q
    if n == 0 or weights.min() <= 0:
        return False
    if _one_each(values):
        high = int(shares.sum())
        return high > 0 and 1 - binomial_cdf(high - 1, n, allowed) <= error
    counted = 0.5 if q >= HALF_TAIL else 1.0
    high = int((shares >= counted).sum())
    chance = min(1.0, allowed / counted * float(weights.mean() / weights.min()))
    if high and 1 - binomial_cdf(high - 1, n, chance) <= error / 2:
        return True
    if n < EVEN:
        return False
    excess = weights * (shares - allowed) / weights.mean()
    return float(excess.mean()) > student_quantile(1 - error / 2, n - 1) * _deviation(excess)


def is_kept(values: WeightedValues, bound: float, q: float, error: float) -> bool:
    """Tell whether answers prove that the *q* quantile of their values is at most *bound*, wrongly with *error*.

    At least as many are needed as show it where none lies above. Student's interval takes the larger of the deviations
    at the bound and at the measured quantile, as where nothing lies above the bound it would be zero (Woodruff 1952).
    """
    shares, weights = _shares(values, bound)
    n, allowed = len(shares), 1 - q
    if n < samples_needed(q, 1 - error):
        return False
    if _one_each(values):
        return binomial_cdf(int(shares.sum()), n, allowed) <= error
    at_quantile, _ = _shares(values, measured_quantile(values, q), itself=True)
    excess = weights * (shares - allowed) / weights.mean()
    deviation = max(_deviation(excess), _deviation(weights * (at_quantile - allowed) / weights.mean()))
    return float(excess.mean()) + student_quantile(1 - error, n - 1) * deviation <= 0


def measured_quantile(values: WeightedValues, q: float) -> float:
    """Return the *q* quantile of all values by their weights."""
    order = np.argsort(values.values)
    cumulative = np.cumsum(values.weights[order])
    place = min(int(np.searchsorted(cumulative, q * cumulative[-1])), len(order) - 1)
    return float(values.values[order][place])


def quantile_bounds(values: WeightedValues, q: float, level: float) -> tuple[float | None, float | None]:
    """Return between which values the tests place the *q* quantile, each end at *level*; None where they cannot."""
    ordered: list[float] = np.unique(values.values).tolist()
    lowest = bisect_left(ordered, True, key=lambda bound: not is_broken(values, bound, q, 1 - level))
    highest = bisect_left(ordered, True, key=lambda bound: is_kept(values, bound, q, 1 - level))
    return (
        ordered[lowest] if 0 < lowest < len(ordered) else None,
        ordered[highest] if highest < len(ordered) else None,
    )


def _one_each(values: WeightedValues) -> bool:
    return bool((values.sizes == 1).all() and (values.weights == 1).all())


def _shares(values: WeightedValues, bound: float, *, itself: bool = False) -> tuple[Floats, Floats]:
    """Return the share of each answer that lies above *bound*, or is the bound *itself*, and the answers' weights."""
    weights = values.sums()
    return values.sums(values.values >= bound if itself else values.values > bound) / weights, weights


def _deviation(excess: Floats) -> float:
    return float(excess.std(ddof=1)) / math.sqrt(len(excess)) if len(excess) > 1 else 0.0
