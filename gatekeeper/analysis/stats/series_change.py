"""The change of a series that stands out most: a step, a slope up to a moment, or one from a moment on.

Each owner (a canary) has a height of its own, a random effect: values are taken less a share of their owner's mean
(Swamy & Arora, 1972), so that a change is seen within owners and between them. Of all shapes the one with the largest
t counts; its critical value is that of the same values in random orders (Westfall & Young, 1993), so that shapes which
are alike cost nothing. Noise that lasts over several values would pass for a change: the lag-1 correlation of what is
left beside the change widens it, where it is proven above 0.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gatekeeper.analysis.stats.intervals import Floats, Ints, number_names

ERROR = 0.01
"""The chance that a series without any change shows one."""
ORDERS = 999
"""Random orders."""
BLOCKS = 512
"""Longer series are averaged to so many parts."""
LEAST = 12
"""Fewer values show no change."""
LEAST_SIDE = 4
"""Values that a change has on either side, at least."""
OUTLIER = 4.0
"""Standard deviations beyond which a value counts as no further away."""
SUSPICION = 0.2
"""The chance that a series without any change is suspected of one."""
LAST = 0.9
"""The last tenth is suspected, whatever chance explains."""
TINY = 1e-12
MOMENTS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.8, 0.85, 0.9)
"""A step or a slope may begin or end at these shares of the series."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that the order of the values does not explain."""

    size: float
    """The change from the beginning to the end, in the unit of the values."""
    error: float
    """Its standard error."""


@dataclass(frozen=True, slots=True)
class Fits:
    """How well each shape fits a series, whose owners' heights were taken off."""

    along: Floats
    """The series along each shape of unit length."""
    lengths: Floats
    total: float
    """The sum of squares of the series."""
    free: float
    """Degrees of freedom."""
    widened: float
    """How many times as large noise that lasts makes the variance of the best fit."""
    by_chance: Floats
    """The largest fit of the same values, in random orders."""
    after: Floats
    """Each shape is so much higher at the end than on average."""

    @property
    def best(self) -> int:
        """Return the place of the shape that fits best."""
        return int(np.argmax(np.abs(self.along)))

    def beyond_chance(self, error: float) -> NDArray[np.bool_]:
        """Return which shapes fit better than the best one does in all but a share *error* of random orders."""
        chance = self.by_chance / np.sqrt(np.maximum(self.total - self.by_chance**2, TINY) / self.free)
        return np.abs(self.along) / self.noise > float(np.quantile(chance, 1 - error))

    @property
    def noise(self) -> float:
        """Return the standard error of the best fit, along a shape of unit length."""
        left = max(self.total - float(self.along[self.best]) ** 2, TINY)
        return math.sqrt(left / self.free * self.widened)


def largest_change(fits: Fits | None, *, error: float) -> Change | None:
    """Return the largest change of a series; None where chance explains all of them, or it is too short for *fits*."""
    if fits is None or not fits.beyond_chance(error)[fits.best]:
        return None
    length = float(fits.lengths[fits.best])
    return Change(float(fits.along[fits.best]) / length, fits.noise / length)


def straight_change(fits: Fits | None) -> Change | None:
    """Return the change of a series along a straight line, whatever chance explains; None where it is too short."""
    if fits is None:
        return None
    return Change(float(fits.along[0] / fits.lengths[0]), float(fits.noise / fits.lengths[0]))


def end_below_mean(fits: Fits | None, *, margin: float) -> float:
    """Return by how much the end of a series may lie below its mean, as a suspicion that proves nothing.

    It is the larger one of the last tenth's distance with *margin* of its standard errors, and of the largest of the
    changes that chance explains in few series, with its standard error.
    """
    if fits is None:
        return 0.0
    below, errors = -fits.along / fits.lengths * fits.after, fits.noise / fits.lengths * np.abs(fits.after)
    suspected = fits.beyond_chance(SUSPICION) & (below > 0)
    last = float(below[-1] + margin * errors[-1])
    return max(0.0, last, float(np.max((below + errors)[suspected], initial=0.0)))


def fit_changes(
    owners: Sequence[Hashable], values: Sequence[float], before: Sequence[tuple[Hashable, float]] = ()
) -> Fits | None:
    """Return how well each shape fits *values*, in their order of time; None where they are too few.

    *before* are values from before the series, which may be at another level: they show the heights of owners.
    """
    count = len(values)
    if count < LEAST:
        return None
    shapes = _shapes(count)
    rows, lost = _without_heights(owners, values, before, shapes)
    rows[0] = _clip_outliers(rows[0])
    rows = _average_blocks(rows)
    left, rows = rows[0], rows[1:]
    lengths = np.maximum(np.sqrt((rows**2).sum(axis=1)), TINY)
    directions = rows / lengths[:, None]
    along, total = directions @ left, float(left @ left)
    best = int(np.argmax(np.abs(along)))
    shuffled = np.random.default_rng(count).permuted(np.broadcast_to(left, (ORDERS, len(left))), axis=1)
    return Fits(
        along,
        lengths,
        total=total,
        free=max(1.0, len(left) - 2 - lost * len(left) / count),
        widened=variance_inflation(left - along[best] * directions[best], margin=1.0),
        by_chance=np.abs(shuffled @ directions.T).max(axis=1),
        after=shapes[:, -1] - shapes.mean(axis=1),
    )


def noise_of(
    owners: Sequence[Hashable], values: Sequence[float], before: Sequence[tuple[Hashable, float]]
) -> tuple[Floats, float]:
    """Return what is left of *values*, in their order of time, without their level and the heights of their owners.

    Also the share of its variance that is left: values that were compared with their own mean lie too near to it.
    """
    rows, lost = _without_heights(owners, values, before, np.empty((0, len(values))))
    return rows[0], max(0.5, 1 - lost / len(values))


def variance_inflation(noise: Floats, *, margin: float, left: float = 1.0) -> float:
    """Return how many times as large noise that lasts makes the variance of its mean; 1 where none shows.

    Its lag-1 correlation is taken *margin* of its standard errors lower than it reads. *left* is the share of the
    variance that is left in the noise: a mean that was taken off an owner's values hides as much of the correlation.
    """
    power = float(noise @ noise)
    if power <= 0:
        return 1.0
    kept = min(0.99, float(noise[1:] @ noise[:-1]) / power / left - margin / math.sqrt(len(noise)))
    return (1 + kept) / (1 - kept) if kept > 0 else 1.0


def _without_heights(
    owners: Sequence[Hashable], values: Sequence[float], before: Sequence[tuple[Hashable, float]], shapes: Floats
) -> tuple[Floats, float]:
    """Return *values* and then the *shapes*, each less the heights of owners and the level, and the lost degrees."""
    count, present = len(values), set(owners)
    earlier = [pair for pair in before if pair[0] in present]
    _, owner = number_names((*owners, *(name for name, _ in earlier)))
    series = np.array([*values, *(value for _, value in earlier)], dtype=np.float64)
    inside = np.arange(len(series)) < count
    levels = np.stack([np.ones(len(series)), ~inside]) if earlier else np.ones((1, len(series)))
    whole = np.zeros((len(shapes), len(series)))
    whole[:, :count] = shapes
    level = np.where(inside, series[:count].mean(), series[count:].mean() if earlier else 0.0)
    share, lost = _shares(owner, series - level)
    rows = _less(owner, share, np.vstack([series, whole]))
    basis, _ = np.linalg.qr(_less(owner, share, levels).T)
    return (rows - (rows @ basis) @ basis.T)[:, :count], lost


def _shapes(count: int) -> Floats:
    """Return rows that rise by 1: steps, slopes from a moment to the end or up to a moment; last a step at the end."""
    at = (np.arange(count) + 0.5) / count
    rows = [at]
    for moment in MOMENTS:
        if min(moment, 1 - moment) * count >= LEAST_SIDE:
            step = np.asarray(at > moment, dtype=np.float64)
            rows += [np.maximum(0.0, (at - moment) / (1 - moment)), np.minimum(1.0, at / moment), step]
    return np.array([*rows, at > LAST], dtype=np.float64)


def _shares(owner: Ints, series: Floats) -> tuple[Floats, float]:
    """Return, by owner, the share of its mean to take off, and how many degrees of freedom that costs."""
    counts = np.bincount(owner)
    means = np.bincount(owner, series) / counts
    total, owners = len(series), len(counts)
    if owners < 2 or total <= owners:
        return np.zeros(owners), 0.0
    within = float(((series - means[owner]) ** 2).sum()) / (total - owners)
    between = float((counts * (means - series.mean()) ** 2).sum()) / (owners - 1)
    typical = (total - float((counts**2).sum()) / total) / (owners - 1)
    height = max(0.0, (between - within) / typical)
    if within <= 0:
        return np.ones(owners), float(owners - 1)
    share = 1 - np.sqrt(within / (within + counts * height))
    return share, float(share.sum())


def _less(owner: Ints, share: Floats, rows: Floats) -> Floats:
    counts = np.bincount(owner)
    return np.array([row - (share * np.bincount(owner, row) / counts)[owner] for row in rows])


def _clip_outliers(values: Floats) -> Floats:
    middle = float(np.median(values))
    spread = OUTLIER * 1.4826 * float(np.median(np.abs(values - middle)))
    return np.clip(values, middle - spread, middle + spread) if spread > 0 else values


def _average_blocks(rows: Floats) -> Floats:
    """Return the rows, longer ones as the means of so many parts."""
    count = rows.shape[1]
    if count <= BLOCKS:
        return rows
    starts = np.linspace(0, count, BLOCKS + 1).astype(np.int64)[:-1]
    return np.add.reduceat(rows, starts, axis=1) / np.diff(np.append(starts, count))
