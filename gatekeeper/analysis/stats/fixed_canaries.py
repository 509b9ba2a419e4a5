"""Intervals for the canaries themselves: they are fixed, and only the noise of their answers is uncertain.

Two-stage sampling (Cochran 1977, section 10.3) with canaries as the first stage and answers as the second. Where every
canary was answered, canaries differing from each other adds nothing; where some were not, it adds its share. The noise
is read off repeats of a canary, never off plain decoding alone: a draft may be noisier than plain decoding, and then
bounds from the noise of plain decoding fail in 10 to 16 % of the cases where 2.5 % are allowed (bench/coverage.py).
Noise is taken to be independent here; `lasting.widened` allows for noise that is not.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from gatekeeper.analysis.stats.intervals import (
    Floats,
    Ints,
    WeightedValues,
    by_canary,
    number_names,
    student_quantile,
    woodruff,
)
from gatekeeper.core.judgement import Estimate

LEAST_DEGREES = 8
"""Degrees of freedom below which repeats do not show the noise: Student's bounds are then 18 % too wide and more."""

ENOUGH_ANSWERS = 8
"""Answers to each canary, on average, that show how a quantile far from the median scatters."""


def standard_error(
    owner: Ints, values: Floats, size: int, before: Floats | None = None, weights: Floats | None = None
) -> tuple[float, int] | None:
    """Return the standard error of the mean over canaries of their mean values, and its degrees of freedom.

    `owner` numbers the canary of each of the *values*; the whole set has *size* canaries. `before`, of shape
    (canaries, 2), holds the count and the mean of earlier values of each canary, all shifted by one unknown amount:
    they show the noise and leave the mean alone. Where the noise of a canary grows with its weight, of *weights* whose
    mean is 1, the error is no smaller than by the noise of all canaries relative to their weight. None where repeats
    are too few.
    """
    count = np.bincount(owner).astype(np.float64)
    m, mean = len(count), np.bincount(owner, values) / count
    pooled = _noise(owner, values, before)
    if pooled is None:
        return None
    noise, degrees = pooled
    inside = noise * float((1 / count).sum()) / m**2
    if weights is not None:
        center = mean.mean()
        earlier = None if before is None else np.stack([before[:, 0], (before[:, 1] - center) / weights], axis=1)
        relative = _noise(owner, (values - center) / weights[owner], earlier)
        if relative is not None and (larger := relative[0] * float((weights**2 / count).sum()) / m**2) > inside:
            inside, degrees = larger, relative[1]
    share = min(1.0, m / size)
    across = (1 - share) * float(mean.var(ddof=1)) / m if m > 1 else 0.0
    variance = across + share * inside
    if variance <= 0:
        return 0.0, max(1, int(degrees))
    together = variance**2 / (across**2 / (m - 1 or 1) + (share * inside) ** 2 / degrees)
    return math.sqrt(variance), max(1, int(together + 1e-9))


def _noise(owner: Ints, values: Floats, before: Floats | None) -> tuple[float, float] | None:
    """Return the variance of a value within its canary, of all canaries together, and its degrees of freedom."""
    count = np.bincount(owner).astype(np.float64)
    mean = np.bincount(owner, values) / count
    squares = np.bincount(owner, (values - mean[owner]) ** 2)
    free = count - 1
    if before is not None and (repeated := before[:, 0] > 0).sum() > 1:
        shift = np.where(repeated, mean - before[:, 1], 0.0)
        weight = np.where(repeated, 1 / (1 / count + 1 / np.maximum(before[:, 0], 1)), 0.0)
        common = (weight * shift).sum() / weight.sum()
        squares = squares + weight * (shift - common) ** 2
        free = free + repeated * (1 - 1 / repeated.sum())
    degrees = float(free.sum())
    if degrees < LEAST_DEGREES - 1e-9:
        return None
    noise = float(squares.sum()) / degrees
    # Welch and Satterthwaite's degrees over canaries: few canaries may hold most of the noise.
    fourth = float((squares**2 / (free + 2))[free > 0].sum())
    degrees = min(degrees, max(LEAST_DEGREES / 2, float(squares.sum()) ** 2 / fourth)) if fourth > 0 else degrees
    return noise, degrees


def mean_of_logs(
    logs: Sequence[tuple[str, float]],
    level: float,
    size: int,
    before: Sequence[tuple[str, float]],
    weights: Mapping[str, float] | None = None,
) -> Estimate | None:
    """Bound exp of the mean over these canaries of their (canary, log of a ratio) pairs.

    `before` holds the logs of each canary in the sweep, and *weights* its share of the whole, for their noise. None
    where repeats are too few for bounds.
    """
    names, owner = number_names([name for name, _ in logs])
    values, earlier = _values(logs), _before(names, before)
    shares = np.array([weights[name] for name in names]) if weights else None
    noise = standard_error(owner, values, size, earlier, shares)
    if noise is None:
        return None
    error, degrees = noise
    center = float((np.bincount(owner, values) / np.bincount(owner)).mean())
    half = student_quantile(level, degrees) * error
    bounds = math.exp(center - half), math.exp(center + half)
    return Estimate(math.exp(center), *bounds, len(names), confidence=level, scope="frozen")


def proven_below(
    logs: Sequence[tuple[str, float]], level: float, before: Sequence[tuple[str, float]]
) -> tuple[str, ...] | None:
    """Return the canaries whose own ratio is proven below 1, each by itself at *level*; None without enough repeats.

    `logs` and `before` are as in `mean_of_logs`; all canaries have the same noise.
    """
    names, owner = number_names([name for name, _ in logs])
    values = _values(logs)
    noise = _noise(owner, values, _before(names, before))
    if noise is None:
        return None
    count, factor = np.bincount(owner), student_quantile(level, max(1, int(noise[1])))
    highest = np.bincount(owner, values) / count + factor * np.sqrt(noise[0] / count)
    return tuple(sorted(name for name, high in zip(names, highest.tolist(), strict=True) if high < 0))


def _values(logs: Sequence[tuple[str, float]]) -> Floats:
    return np.array([log for _, log in logs], dtype=np.float64)


def _before(names: Sequence[str], before: Sequence[tuple[str, float]]) -> Floats:
    """Return the count and the mean of the earlier values of each of *names*."""
    groups = by_canary(before)
    return np.array([(len(logs), fmean(logs)) if (logs := groups.get(name)) else (0.0, 0.0) for name in names])


def quantile(
    answers: WeightedValues | Sequence[tuple[str, Sequence[tuple[float, float]]]], q: float, level: float, size: int
) -> Estimate | None:
    """Bound the *q* quantile of the values of these canaries' answers, each canary weighing the same.

    `answers` holds the canary of each answer and its (value, weight) pairs: a latency weighs 1,
    a gap its tokens. The share of the weight up to the quantile is a mean over canaries. None where repeats are too few
    or a bound lies beyond all values.
    """
    columns = answers if isinstance(answers, WeightedValues) else WeightedValues.of(answers)
    names, owner = number_names(columns.canaries)
    count, m = np.bincount(owner), len(names)
    if len(owner) - m < LEAST_DEGREES:
        return None
    sizes = columns.sums()
    total = float((sizes / count[owner]).sum())
    # An answer more or less on the other side may always be unseen chance. Where canaries have few answers, one of them
    # may hold all that lies near the quantile and scatter as much as a median does.
    share = q * (1 - q) if len(owner) >= ENOUGH_ANSWERS * m else 0.25
    least = math.sqrt(share / (m * len(owner)))

    def half_width(counted: NDArray[np.bool_]) -> float:
        below = columns.sums(counted)
        share_below = float((below / count[owner]).sum()) / total
        error, degrees = standard_error(owner, (below - share_below * sizes) * m / total, size) or (math.inf, 1)
        return student_quantile(level, degrees) * math.hypot(error, least)

    center, lo, hi = woodruff(columns, columns.weights / np.repeat(count[owner], columns.sizes), q, half_width)
    if not (math.isfinite(lo) and math.isfinite(hi)):
        return None
    return Estimate(center, lo, hi, m, confidence=level, scope="frozen")
