"""Whether two runs differ: their ratio on the same canaries, or by their intervals, with the noise of both."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Literal

import numpy as np

from gatekeeper.analysis.stats import fixed_canaries, lasting_noise
from gatekeeper.analysis.stats.intervals import by_canary, number_names, student_quantile
from gatekeeper.core.judgement import Estimate, Missing

LEAST_CANARIES = 5
"""Fewer canaries in common are too few to compare."""
ERROR = 0.05
"""Allowed chance of calling any of several figures of two runs different that are not."""
NO_DIFFERENCE = "no difference shown"

Values = Sequence[tuple[str, float]]
"""A canary and its value, in the order of time."""
Bounds = Callable[[float], Estimate]
"""Return an interval, each side at this level."""


def ratio(now: Values, then: Values, level: float, size: int, *, logs: bool) -> Estimate | Missing:
    """Bound the mean of *now* over the mean of *then* on the canaries that both have, each bound at *level*.

    *logs*: the values are logs of ratios, so their difference is the log of the ratio; else they are counts, and the
    interval is made on the log scale as well (delta method). Bounds allow for noise that lasts.
    The whole set has *size* canaries.

    Where each run repeats its canaries, these are fixed and the two standard errors add up; else canaries are the
    sample, and Student's interval of their differences holds the noise of both runs, too.
    """
    now_by_canary, then_by_canary = by_canary(now), by_canary(then)
    common = dict.fromkeys(name for name in now_by_canary if name in then_by_canary)
    n = len(common)
    if n < LEAST_CANARIES:
        return Missing(f"{n} canaries were answered in both runs, {LEAST_CANARIES} are needed", n)
    before, after = ([fmean(run[name]) for name in common] for run in (then_by_canary, now_by_canary))
    means = fmean(before), fmean(after)
    if not logs and means[0] > 0 == means[1]:
        return Estimate(0.0, 0.0, hi=0.0, n=n, notes=("all values are zero now",), confidence=level, scope="frozen")
    if not all(map(math.isfinite, (*before, *after))) or (not logs and min(means) <= 0):
        return Missing("a value is zero or not finite, so no ratio of the runs exists", n)
    scale = (1.0, 1.0) if logs else means
    center = means[1] - means[0] if logs else math.log(means[1] / means[0])
    scope: Literal["frozen", "population"] = "frozen"
    errors = [_error(values, common, size) for values in (then, now)]
    if None not in errors:
        (first, degrees_1), (second, degrees_2) = (noise for noise in errors if noise is not None)
        error, degrees = _together((first / scale[0], degrees_1), (second / scale[1], degrees_2))
    else:
        apart = np.array([b / scale[1] - a / scale[0] for a, b in zip(before, after, strict=True)])
        error, degrees, scope = float(apart.std(ddof=1)) / math.sqrt(n), n - 1, "population"
    half = student_quantile(level, max(1, degrees)) * error
    bounds = math.exp(center - half), math.exp(center + half)
    estimate = Estimate(math.exp(center), *bounds, n, confidence=level, scope=scope)
    added = sum(
        lasting_noise.added_variance([(name, value / mean) for name, value in values if name in then_by_canary])
        for values, mean in zip((then, now), scale, strict=True)
    )
    estimate = lasting_noise.widen_bounds(estimate, added)
    notes = () if n == size else (f"on the {n} of {size} canaries that both runs answered",)
    return replace(estimate, notes=notes)


def apart(then: Estimate, now: Estimate, comparisons: int, scale: Callable[[float], float]) -> Estimate:
    """Bound *now* minus *then* on a *scale*, by their intervals, so that any of several *comparisons* rarely errs.

    For figures whose single values are not at hand. Their standard errors add up as in `ratio`, each read off the side
    of its interval that faces the other value (Zou & Donner 2008); the allowed error is split (Bonferroni).
    """
    center = scale(now.center) - scale(then.center)
    level = 1 - ERROR / (2 * max(1, comparisons))

    def half(*ends: tuple[Estimate, float]) -> float:
        first, second = (_error_of(estimate, abs(scale(estimate.center) - scale(end))) for estimate, end in ends)
        error, degrees = _together(first, second)
        return student_quantile(level, degrees) * error

    lo, hi = center - half((now, now.lo), (then, then.hi)), center + half((now, now.hi), (then, then.lo))
    return Estimate(center, lo, hi, min(then.n, now.n), confidence=level, scope="population")


def _error_of(estimate: Estimate, half: float) -> tuple[float, int]:
    """Return the standard error and its degrees of freedom, where Student's interval reaches *half* to one side."""
    degrees = max(1, estimate.n - 1)
    return half / student_quantile(estimate.confidence, degrees) if estimate.confidence else half, degrees


def _together(first: tuple[float, int], second: tuple[float, int]) -> tuple[float, int]:
    """Return the standard error of a difference and Welch's degrees of freedom, from those of its two parts."""
    (error, degrees), (other_error, other_degrees) = first, second
    variances = error**2, other_error**2
    fourth = variances[0] ** 2 / degrees + variances[1] ** 2 / other_degrees
    welch = int(sum(variances) ** 2 / fourth + 1e-9) if fourth > 0 else min(degrees, other_degrees)
    return math.sqrt(sum(variances)), max(1, welch)


def together_at(bounds: Mapping[str, Bounds], unchanged: Mapping[str, float], error: float) -> dict[str, Estimate]:
    """Bound several figures so that any of them is proven changed, where none is, with probability *error* at most.

    Holm's procedure (1979): the figures that are proven at an even split of the error leave their shares to the others.
    `bounds` makes the interval of each at a one-sided level, `unchanged` is its value where nothing changed. Each
    comes with the interval of the last level that it was held at. None of them may be Missing.
    """
    proven: dict[str, Estimate] = {}
    while left := [name for name in bounds if name not in proven]:
        level = 1 - error / (2 * len(left))
        intervals = {name: bounds[name](level) for name in left}
        changed = {name: bound for name, bound in intervals.items() if not bound.lo <= unchanged[name] <= bound.hi}
        if not changed:
            return proven | intervals
        proven |= changed
    return proven


def better_or_worse(lo: float, hi: float, *, unchanged: float, higher_is_better: bool) -> str:
    """Say whether a change is proven: its whole interval lies on one side of what it is where nothing changed."""
    if lo <= unchanged <= hi:
        return NO_DIFFERENCE
    return "better" if (lo > unchanged) == higher_is_better else "worse"


def _error(values: Values, common: Collection[str], size: int) -> tuple[float, int] | None:
    """Return the standard error of one run's mean over the *common* canaries; None where repeats are too few."""
    shared = [(name, value) for name, value in values if name in common]
    _, owner = number_names(name for name, _ in shared)
    return fixed_canaries.standard_error(owner, np.array([value for _, value in shared]), max(size, len(common)))
