"""The ratio of two runs, or of two versions: on the same canaries, with the noise of both in the interval."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from gatekeeper.analysis.stats import fixed_canaries, lasting
from gatekeeper.analysis.stats.intervals import student_quantile
from gatekeeper.core.verdict import Estimate, Missing

LEAST_CANARIES = 5
"""Fewer canaries in common are too few to compare."""

Values = Sequence[tuple[str, float]]
"""A canary and its value, in the order of time."""


def ratio(now: Values, then: Values, level: float, size: int, *, logs: bool) -> Estimate | Missing:
    """Bound the mean of *now* over the mean of *then* on the canaries that both have, each bound at *level*.

    *logs*: the values are logs of ratios, so their difference is the log of the ratio; else they are counts, and the
    interval is made on the log scale as well (delta method). Bounds allow for noise that lasts.
    The whole set has *size* canaries.

    Where each run repeats its canaries, these are fixed and the two standard errors add up; else canaries are the
    sample, and Student's interval of their differences holds the noise of both runs, too.
    """
    mine, other = _by_canary(now), _by_canary(then)
    common = [name for name in mine if name in other]
    n = len(common)
    if n < LEAST_CANARIES:
        return Missing(f"{n} canaries were answered in both runs, {LEAST_CANARIES} are needed", n)
    before = [math.fsum(other[name]) / len(other[name]) for name in common]
    after = [math.fsum(mine[name]) / len(mine[name]) for name in common]
    means = math.fsum(before) / n, math.fsum(after) / n
    if not logs and means[0] > 0 == means[1]:
        return Estimate(0.0, 0.0, 0.0, n, ("all values are zero now",), level, "frozen")
    if not all(map(math.isfinite, (*before, *after))) or (not logs and min(means) <= 0):
        return Missing("a value is zero or not finite, so no ratio of the runs exists", n)
    scale = (1.0, 1.0) if logs else means
    center = means[1] - means[0] if logs else math.log(means[1] / means[0])
    errors = [_error(values, common, size) for values in (then, now)]
    if None not in errors:
        (first, degrees_1), (second, degrees_2) = (one for one in errors if one is not None)
        parts = (first / scale[0]) ** 2, (second / scale[1]) ** 2
        error, scope = math.sqrt(sum(parts)), "frozen"
        fourth = parts[0] ** 2 / degrees_1 + parts[1] ** 2 / degrees_2
        degrees = int(sum(parts) ** 2 / fourth + 1e-9) if fourth > 0 else min(degrees_1, degrees_2)
    else:
        apart = np.array([b / scale[1] - a / scale[0] for a, b in zip(before, after, strict=True)])
        error, degrees, scope = float(apart.std(ddof=1)) / math.sqrt(n), n - 1, "population"
    half = student_quantile(level, max(1, degrees)) * error
    bounds = math.exp(center - half), math.exp(center + half)
    seen = Estimate(
        math.exp(center), *bounds, n, confidence=level, scope="frozen" if scope == "frozen" else "population"
    )
    noises = [
        lasting.of_one_arm(lasting.TimedLogs.of([(name, value / by) for name, value in values if name in other]))
        for values, by in zip((then, now), scale, strict=True)
    ]
    seen = lasting.widened(seen, lasting.together(*noises))
    return seen if n == size else _noted(seen, f"on the {n} of {size} canaries that both runs answered")


def _noted(seen: Estimate, note: str) -> Estimate:
    return Estimate(seen.center, seen.lo, seen.hi, seen.n, (note,), seen.confidence, seen.scope)


def _by_canary(values: Values) -> Mapping[str, list[float]]:
    out: dict[str, list[float]] = defaultdict(list)
    for name, value in values:
        out[name].append(value)
    return out


def _error(values: Values, common: Sequence[str], size: int) -> tuple[float, int] | None:
    """Return the standard error of one run's mean over the *common* canaries; None where repeats are too few."""
    number = {name: at for at, name in enumerate(common)}
    kept = [(number[name], value) for name, value in values if name in number]
    owner = np.array([at for at, _ in kept], dtype=np.int64)
    seen = np.array([value for _, value in kept], dtype=np.float64)
    return fixed_canaries.standard_error(owner, seen, max(size, len(common)))
