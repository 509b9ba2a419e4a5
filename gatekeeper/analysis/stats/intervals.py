"""Estimates with bounds from samples. Every bound is one-sided at `level`, so [lo, hi] holds at 2 * level - 1."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gatekeeper.analysis.stats.root_finding import root
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.units import percent

RESAMPLES = 2000
"""Draws of a bootstrap: the Monte-Carlo error of a 98.3 % bound is then about 0.3 % of coverage."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")


def number_names(names: Iterable[Name]) -> tuple[list[Name], Ints]:
    """Return the distinct names, in their order, and the number of each of *names* among them."""
    numbers: dict[Name, int] = {}
    owner = [numbers.setdefault(name, len(numbers)) for name in names]
    return list(numbers), np.array(owner, dtype=np.int64)


def by_canary(pairs: Iterable[tuple[Name, Value]]) -> dict[Name, list[Value]]:
    """Group values by their canary."""
    groups: dict[Name, list[Value]] = {}
    for canary, value in pairs:
        groups.setdefault(canary, []).append(value)
    return groups


def samples_needed(quantile: float, level: float) -> int:
    """Return how many independent samples bound *quantile* on its far side: 59 for p95 and 299 for p99 at 95 %."""
    return units_needed(max(quantile, 1 - quantile), level)


def frozen_samples_needed(quantile: float, level: float) -> int:
    """Return how many distinct canaries a bound on *quantile* needs where it holds for these canaries alone.

    A tail beyond the p95 needs no more of them than the p95: what is uncertain is how their answers scatter, which
    repeats show (`fixed_canaries.quantile`), not which canaries these are.
    """
    return samples_needed(min(quantile, 0.95), level)


def units_needed(share: float, level: float) -> int:
    """Return how many independent units, were all of them alike, show that more than *share* < 1 of all are so."""
    return math.ceil(math.log(1 - level) / math.log(share) - 1e-9) if share > 0 else 1


def binomial_cdf(successes: int, trials: int, chance: float) -> float:
    """Return P(X <= successes) for a binomial X."""
    if successes < 0:
        return 0.0
    return 1.0 if successes >= trials else float(np.sum(_binomial(trials, chance)[: successes + 1]))


def _binomial(trials: int, chance: float) -> Floats:
    """Return P(X = k) for every k from 0 to *trials*; by logarithms, which thousands of trials do not overflow."""
    k = np.arange(trials + 1, dtype=np.float64)
    if not 0 < chance < 1:
        return np.where(k == (trials if chance >= 1 else 0), 1.0, 0.0)
    ways = np.concatenate(([0.0], np.cumsum(np.log((trials - k[1:] + 1) / k[1:]))))
    likely: Floats = np.exp(ways + k * math.log(chance) + (trials - k) * math.log1p(-chance))
    return likely


def quantile(values: Sequence[float], q: float, level: float) -> Estimate | Missing:
    """Bound the *q* quantile by order statistics; no distribution is assumed (David & Nagaraja 2003, section 7.1).

    `lo` is the largest order statistic that the quantile exceeds with probability >= level, `hi` the smallest that it
    stays below. Too few samples for both sides, or one that is not finite, give Missing.
    """
    ordered = sorted(values)
    n = len(ordered)
    if not all(math.isfinite(value) for value in ordered):
        return Missing("a sample is not a finite number", n)
    need = samples_needed(q, level)
    if n < need:
        return _too_few_answers(n, need, level)
    below, above = _bounding_ranks(n, q, level)
    lo = ordered[below - 1] if below is not None else -math.inf
    hi = ordered[above - 1] if above is not None else math.inf
    return Estimate(float(np.quantile(ordered, q)), lo, hi, n, confidence=level)


@lru_cache(maxsize=1024)
def _bounding_ranks(n: int, q: float, level: float) -> tuple[int | None, int | None]:
    """Return which of *n* order statistics, counted from 1, bound the *q* quantile; None where none does."""
    # P(X_(k) <= quantile) = P(at least k samples fall below it) = 1 - cdf(k - 1).
    cdf: list[float] = np.cumsum(_binomial(n, q)).tolist()
    below = next((k for k in range(n, 0, -1) if 1 - cdf[k - 1] >= level), None)
    return below, next((k for k in range(1, n + 1) if cdf[k - 1] >= level), None)


def _too_few_answers(n: int, need: int, level: float) -> Missing:
    return Missing(f"too few distinct canaries answered: {n}, need {need} for {percent(level, '.4g')} confidence", n)


def student_cdf(t: float, degrees: int) -> float:
    """Return P(T <= t) for integer *degrees* by the finite sums of Abramowitz & Stegun 26.7.3 and 26.7.4."""
    theta = math.atan(t / math.sqrt(degrees))
    cos2 = math.cos(theta) ** 2
    if degrees % 2:
        k = np.arange(1.0, (degrees - 1) // 2)
        total = _sum_of_products(cos2 * 2 * k / (2 * k + 1))
        tail = math.sin(theta) * math.cos(theta) * total if degrees > 1 else 0.0
        return 0.5 + (theta + tail) / math.pi
    k = np.arange(1.0, degrees // 2)
    return 0.5 + math.sin(theta) * _sum_of_products(cos2 * (2 * k - 1) / (2 * k)) / 2


def _sum_of_products(factors: Floats) -> float:
    """Return 1 + a + ab + abc and so on, for the factors a, b, c."""
    return float(np.cumsum(np.concatenate(([1.0], np.cumprod(factors))))[-1])


@lru_cache(maxsize=1024)
def student_quantile(level: float, degrees: int) -> float:
    """Return t with P(T <= t) = level > 0.5."""
    hi = 1.0
    while student_cdf(hi, degrees) < level:
        hi *= 2
    return root(lambda t: student_cdf(t, degrees) - level, hi / 2 if hi > 1 else 0.0, hi)


def expanded_percentile(level: float, n: int) -> float:
    """Return the percentile a bootstrap of *n* units must be read at to cover at *level*.

    The plain percentile interval is too narrow for small n; Hesterberg (2015, "What Teachers Should Know About the
    Bootstrap", section 5.3) widens it to Phi(sqrt(n / (n - 1)) * t(level, n - 1)).
    """
    if n < 2:
        return 1.0
    return NormalDist().cdf(math.sqrt(n / (n - 1)) * student_quantile(level, n - 1))


def bootstrap_bounds(resampled: Floats, level: float, n: int) -> tuple[float, float]:
    """Read the lower and the upper bound off a statistic of *n* units, *resampled* by the bootstrap."""
    at = expanded_percentile(level, n)  # for very few units this is beyond all resamples, and the outermost is read
    lo, hi = np.quantile(resampled, [1 - at, at])
    return float(lo), float(hi)


def geometric_mean_ratio(ratios: Mapping[str, Sequence[float]], level: float, *, least: int = 5) -> Estimate | Missing:
    """Bound the geometric mean of paired ratios for prompts like these: `ratios` holds, per canary, one a repeat."""
    logs = {name: [math.log(ratio) if ratio > 0 else -math.inf for ratio in ratios[name]] for name in ratios}
    return mean_of_logs(logs, level, least=least)


def mean_of_logs(logs: Mapping[str, Sequence[float]], level: float, *, least: int = 5) -> Estimate | Missing:
    """Bound exp of the mean over prompts like these of a canary's mean log of a ratio; `logs` has one a repeat.

    Student's interval of the canaries' mean logs: they hold the noise of repeats once. Resampling repeats inside
    resampled canaries counts it twice (Davison & Hinkley 1997, section 3.8), a quarter to a third too wide where
    canaries do not differ. Fewer than *least* canaries give Missing.
    """
    return mean_log([float(np.mean(logs[name])) for name in sorted(logs) if len(logs[name])], level, least=least)


def mean_log(logs: Sequence[float], level: float, *, least: int = 5, least_spread: float = 0.0) -> Estimate | Missing:
    """Bound exp of the mean log of a ratio, of which *logs* has one a canary, by Student's interval.

    The interval is no narrower than *least_spread* allows, a deviation known from elsewhere: these few may be alike by
    chance. Fewer than *least* give Missing.
    """
    n = len(logs)
    if n < least:
        return Missing(f"too few canaries in both arms: {n}, need {least}", n)
    if not np.isfinite(logs).all():
        return Missing("a ratio is not a positive finite number", n)
    center, half = float(np.mean(logs)), student_quantile(level, n - 1) * float(np.std(logs, ddof=1))
    half = max(half, NormalDist().inv_cdf(level) * least_spread) / math.sqrt(n)
    return Estimate(math.exp(center), math.exp(center - half), math.exp(center + half), n, confidence=level)


@dataclass(frozen=True, slots=True)
class WeightedValues:
    """Weighted values of answers, in the order of the answers, in columns: a day has millions."""

    canaries: Sequence[str]
    """The canary of each answer that has a value."""
    sizes: Ints
    """How many values each of these has."""
    values: Floats
    weights: Floats

    @classmethod
    def of(cls, answers: Iterable[tuple[str, Sequence[tuple[float, float]]]]) -> "WeightedValues":
        """Return the (value, weight) pairs of answers, each given with its canary, in columns."""
        with_pairs = [(canary, pairs) for canary, pairs in answers if pairs]
        columns = np.array([pair for _, pairs in with_pairs for pair in pairs], dtype=np.float64).reshape(-1, 2)
        sizes = np.array([len(pairs) for _, pairs in with_pairs], dtype=np.int64)
        return cls([canary for canary, _ in with_pairs], sizes, columns[:, 0].copy(), columns[:, 1].copy())

    def sums(self, counted: NDArray[np.bool_] | None = None) -> Floats:
        """Return the weight of each answer, in all or in the values that are *counted*."""
        weights = self.weights if counted is None else self.weights * counted
        return np.add.reduceat(weights, np.cumsum(self.sizes) - self.sizes)


def pooled_quantile(
    clusters: WeightedValues | Mapping[str, Sequence[tuple[float, float]]], q: float, level: float
) -> Estimate | Missing:
    """Bound the *q* quantile of weighted values pooled over clusters (answers); the clusters alone are independent.

    `clusters` holds (value, weight) pairs, weight counting tokens. The share of the weight up to the quantile is a
    ratio of sums over clusters; its standard error is linearised. As many clusters are needed as independent samples:
    one value of each bounds the quantile, so the outermost values do.
    """
    columns = clusters if isinstance(clusters, WeightedValues) else WeightedValues.of(clusters.items())
    names, owner = number_names(columns.canaries)
    n, need = len(names), samples_needed(q, level)
    if n < need:
        return _too_few_answers(n, need, level)
    if not np.isfinite(columns.values).all():
        return Missing("a gap is not a finite number", n)
    sizes = np.bincount(owner, columns.sums())
    far = student_quantile(level, n - 1) * math.sqrt(n / (n - 1)) / float(sizes.sum())

    def half_width(counted: NDArray[np.bool_]) -> float:
        inside = np.bincount(owner, columns.sums(counted))
        return far * float(np.linalg.norm(inside - sizes * (inside.sum() / sizes.sum())))

    center, lo, hi = woodruff(columns, columns.weights, q, half_width)
    lowest, highest = float(columns.values.min()), float(columns.values.max())
    return Estimate(center, max(lo, lowest), min(hi, highest), n, confidence=level)


def woodruff(
    columns: WeightedValues, weights: Floats, q: float, half_width: Callable[[NDArray[np.bool_]], float]
) -> tuple[float, float, float]:
    """Return the *q* quantile of weighted values and its bounds, which are infinite beyond all values (Woodruff 1952).

    The share of the weight up to the quantile has bounds, which are read back as quantiles. Their *half_width* shrinks
    towards the tail, so the widest of those at the quantile, just below it and at either bound is taken.
    """
    order = np.argsort(columns.values, kind="stable")
    shares, ordered = weights[order], columns.values[order]
    del order, weights  # of a day they have tens of megabytes
    np.cumsum(shares, out=shares)
    shares /= shares[-1]

    def at(share: float) -> float:
        if not 0 <= share <= 1:
            return math.copysign(math.inf, share)
        return float(ordered[min(int(np.searchsorted(shares, share - 1e-12)), len(ordered) - 1)])

    center = at(q)
    near = max(half_width(columns.values <= center), half_width(columns.values < center))
    widest = max(near, *(half_width(columns.values <= at(q + side * near)) for side in (-1, 1)))
    return center, at(q - widest), at(q + widest)


@lru_cache(maxsize=1024)
def proportion_bounds(successes: int, trials: int, level: float) -> tuple[float, float]:
    """Return Clopper-Pearson bounds of a proportion, each one-sided at *level*."""

    def solve(count: int, tail: float) -> float:
        return root(lambda chance: tail - binomial_cdf(count, trials, chance), 0.0, 1.0)

    lower = 0.0 if successes == 0 else solve(successes - 1, level)
    upper = 1.0 if successes == trials else solve(successes, 1 - level)
    return lower, upper


def clustered_share(marks: Mapping[str, Sequence[bool]], level: float) -> Estimate | Missing:
    """Bound the share of marks that are true over units as these; `marks` holds, per unit, one or more of its marks.

    Units alone are independent. A unit's own share is at least 1 where all of its marks are true, and 0 where none is:
    the exact bounds of these two counts hold for the mean share, however marks of a unit depend on each other.
    """
    units = [unit for unit in marks.values() if unit]
    n = len(units)
    if n == 0:
        return Missing("no canary was answered")
    lo, _ = proportion_bounds(sum(sum(unit) == len(unit) for unit in units), n, level)
    _, hi = proportion_bounds(sum(sum(unit) > 0 for unit in units), n, level)
    return Estimate(math.fsum(sum(unit) / len(unit) for unit in units) / n, lo, hi, n, confidence=level)


def paired_pass_delta(pairs: Mapping[str, tuple[float, float]], level: float) -> Estimate | Missing:
    """Bound the difference of pass rates from paired canaries: gains and losses are each bounded at half the error.

    `pairs` holds the pass rate of the candidate and of plain decoding per canary. Conservative: the two exact bounds
    are simply subtracted, and where repeats disagree a flip counts whole against the bound and not at all for it. With
    no flips in n canaries the bound is about -ln(2 / (1 - level)) / n.
    """
    n = len(pairs)
    if n == 0:
        return Missing("no canary of this kind was answered in both arms")
    if not all(math.isfinite(rate) for pair in pairs.values() for rate in pair):
        return Missing("a pass rate is not a finite number", n)
    deltas = [candidate - plain for candidate, plain in pairs.values()]
    half = 1 - (1 - level) / 2
    gain_lo, _ = proportion_bounds(sum(delta >= 1 for delta in deltas), n, half)
    _, gain_hi = proportion_bounds(sum(delta > 0 for delta in deltas), n, half)
    loss_lo, _ = proportion_bounds(sum(delta <= -1 for delta in deltas), n, half)
    _, loss_hi = proportion_bounds(sum(delta < 0 for delta in deltas), n, half)
    return Estimate(math.fsum(deltas) / n, gain_lo - loss_hi, gain_hi - loss_lo, n, confidence=level)
