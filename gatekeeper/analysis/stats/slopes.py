"""Slopes: of one series, with an interval by the parts of it, and within groups that have heights of their own."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from gatekeeper.analysis.stats.intervals import Floats, student_quantile
from gatekeeper.core.verdict import Estimate, Missing

MIN_READINGS = 20
"""Readings below which no slope is given."""
BINS = 100
"""The series is reduced to medians of this many parts: 3600 readings would have six million pairs."""
BLOCKS = 8
"""Memory changes in steps and waves, so that neighbouring readings are alike: what so many blocks add to a slope hardly
is."""
DEGREES = 4
"""Of Student's t: two parameters are fitted to the blocks, and those in the middle say little."""


def slope(times: Floats, values: Floats, *, level: float) -> Estimate | None:
    """Return the median of all pairwise slopes, in units per second, with one-sided bounds at *level*; None if short.

    Theil (1950), Sen (1968). The standard error is that of a slope whose noise is alike within blocks (Liang and Zeger,
    1986), so that a slow wave does not count as a trend.
    """
    if len(times) < MIN_READINGS or times.max() <= times.min():
        return None
    bins = np.array_split(np.argsort(times, kind="stable"), min(BINS, len(times)))
    at, heights = (np.array([np.median(column[part]) for part in bins]) for column in (times, values))
    center = float(np.median(_slopes(at, heights)))
    off, at = heights - center * at, at - at.mean()
    shifts = [float(part.sum()) for part in np.array_split(at * (off - off.mean()), BLOCKS)]
    error = math.sqrt(BLOCKS / (BLOCKS - 2)) * math.hypot(*shifts) / float(at @ at)
    half = student_quantile(level, DEGREES) * error
    return Estimate(center, center - half, center + half, len(times), confidence=level)


def seasonal_slope(groups: Sequence[Sequence[tuple[float, float]]], level: float) -> Estimate | Missing:
    """Bound the slope that (time, value) points of all *groups* share, each group at a height of its own.

    The seasonal Kendall slope of Hirsch, Slack & Smith (1982): the median of the slopes between points of the same
    group; the groups' variances of Kendall's S add up. Values centred group by group and then pooled would flatten it.
    """
    pairwise = np.concatenate([np.empty(0), *(_slopes(*np.reshape(group, (-1, 2)).T) for group in groups)])
    n = sum(len(group) for group in groups if len(group) > 1)
    if len(pairwise) < 8:
        return Missing(f"too few points for a slope: {len(pairwise)} pairs of answers to the same canary, need 8", n)
    if not np.isfinite(pairwise).all():
        return Missing("the points have no finite slope", n)
    pairwise.sort()
    variance = sum(len(group) * (len(group) - 1) * (2 * len(group) + 5) / 18 for group in groups)
    spread = NormalDist().inv_cdf(level) * math.sqrt(variance)
    below = max(0, math.floor((pairwise.size - spread) / 2) - 1)
    above = min(pairwise.size - 1, math.ceil((pairwise.size + spread) / 2))
    return Estimate(float(np.median(pairwise)), float(pairwise[below]), float(pairwise[above]), n, confidence=level)


def _slopes(at: Floats, values: Floats) -> Floats:
    """Return the slopes between any two points of different times."""
    first, second = np.triu_indices(len(at), 1)
    spans = at[second] - at[first]
    between: Floats = (values[second] - values[first])[spans != 0] / spans[spans != 0]
    return between
