"""The slope of one series, with an interval by the parts of it."""

import math

import numpy as np

from gatekeeper.analysis.stats.intervals import Floats, student_quantile
from gatekeeper.core.judgement import Estimate

MIN_READINGS = 20
"""Readings below which no slope is given."""
BINS = 100
"""The series is reduced to medians of this many parts: 3600 readings would have six million pairs."""
BLOCKS = 8
"""Memory changes in steps and waves, so that neighbouring readings are alike: what so many blocks add to a slope hardly
is."""
DEGREES = 4
"""Degrees of freedom of Student's t: two parameters are fitted to the blocks, and those in the middle say little."""


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


def _slopes(at: Floats, values: Floats) -> Floats:
    """Return the slopes between any two points of different times."""
    first, second = np.triu_indices(len(at), 1)
    spans = at[second] - at[first]
    between: Floats = (values[second] - values[first])[spans != 0] / spans[spans != 0]
    return between
