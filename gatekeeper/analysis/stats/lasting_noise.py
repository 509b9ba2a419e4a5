"""Noise that lasts over several answers: how much it adds to the uncertainty of a mean over time.

Answers that follow each other are then alike, so that their mean is less certain than the spread of repeats shows.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from gatekeeper.analysis.stats.intervals import student_quantile
from gatekeeper.analysis.stats.series_change import noise_of, variance_inflation
from gatekeeper.core.judgement import Estimate

MARGIN = 0.5
"""Standard errors that are taken off the correlation of neighbours: independent noise shows some by chance."""
LEAST = 12
"""Fewer values show nothing."""

Series = Sequence[tuple[Hashable, float]]
"""Canaries and log values, in the order of time."""


def added_variance(series: Series, before: Series = ()) -> float:
    """Return what lasting noise adds to the variance of the mean of a *series*; 0 where none shows.

    The noise is taken to be a first-order autoregression, whose lag-1 correlation makes the variance of a mean
    (1 + r) / (1 - r) times as large (Box, Jenkins & Reinsel 2008, section 2.1). *before* are values from before the
    series, which show the heights of its canaries.
    """
    if len(series) < LEAST:
        return 0.0
    noise, left = noise_of([name for name, _ in series], [value for _, value in series], before)
    inflation = variance_inflation(noise, margin=MARGIN, left=left)
    return float(noise @ noise) / left / len(noise) ** 2 * (inflation - 1)


def added_by_blocks(blocks: Sequence[Series]) -> float:
    """Return what noise that each block has of its own adds to the variance of the mean over *blocks*.

    It is the variance between the blocks' means beyond what their values explain (a one-way random-effects model;
    Searle, Casella & McCulloch 1992, section 3.6). Of few blocks it is not well known, so that it counts as much more
    as Student's quantile exceeds the normal one, at 97.5 %.
    """
    values = [value for block in blocks for _, value in block]
    if len(blocks) < 2 or len(values) < LEAST:
        return 0.0
    noise, _ = noise_of([name for block in blocks for name, _ in block], values, ())
    parts = np.split(noise, np.cumsum([len(block) for block in blocks])[:-1])
    inside = sum(float(((part - part.mean()) ** 2).sum()) for part in parts) / max(1, len(values) - len(blocks))
    means = np.array([part.mean() for part in parts])
    between = float(means.var(ddof=1)) - inside * float(np.mean([1 / len(part) for part in parts]))
    wider = student_quantile(0.975, len(blocks) - 1) / NormalDist().inv_cdf(0.975)
    return max(0.0, between) / len(blocks) * wider**2


def widen_bounds(estimate: Estimate, variance: float) -> Estimate:
    """Return the estimate whose bounds, those for prompts like them too, allow for the added *variance* of its log.

    Lasting noise makes all answers faster or slower alike, so that it moves a mean and a quantile by the same factor.
    """
    population = estimate.population and widen_bounds(estimate.population, variance)
    if estimate.confidence is None or not 0 < estimate.center < math.inf or variance <= 0:
        return replace(estimate, population=population)
    added, lo, hi = NormalDist().inv_cdf(estimate.confidence) * math.sqrt(variance), estimate.lo, estimate.hi
    if lo > 0:
        lo = estimate.center * math.exp(-math.hypot(math.log(estimate.center / lo), added))
    if hi < math.inf:
        hi = estimate.center * math.exp(math.hypot(math.log(hi / estimate.center), added))
    return replace(estimate, lo=lo, hi=hi, population=population)
