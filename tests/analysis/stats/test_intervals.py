"""The arithmetic of proof against scipy, known numbers, and properties."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats as oracle

from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing
from tests.builders.slo import known

LEVELS = st.sampled_from([0.8, 0.9, 0.95, 1 - 0.05 / 3, 0.99])
RATIOS = st.floats(0.05, 20.0)
BROKEN = [math.nan, math.inf, -math.inf]
few = settings(max_examples=12, deadline=None)


@pytest.mark.parametrize(
    ("quantile", "level", "samples"),
    [(0.5, 0.95, 5), (0.9, 0.95, 29), (0.95, 0.95, 59), (0.99, 0.95, 299), (0.05, 0.95, 59), (0.95, 1 - 0.05 / 3, 80)],
)
def test_samples_needed(quantile: float, level: float, samples: int) -> None:
    """The published numbers; a low quantile needs as many as its mirror, and more where the error is split."""
    assert samples == intervals.samples_needed(quantile, level)


@given(st.floats(0.01, 0.99), LEVELS)
def test_samples_needed_is_the_least_that_suffices(quantile: float, level: float) -> None:
    """One sample fewer leaves all of them on the near side more often than the allowed error; so many do not."""
    far = max(quantile, 1 - quantile)
    need = intervals.samples_needed(quantile, level)

    assert far**need <= (1 - level) * (1 + 1e-6)
    assert far ** (need - 1) >= (1 - level) * (1 - 1e-6)


@given(st.integers(1, 400), st.floats(0.001, 0.999), st.data())
def test_binomial_cdf_is_scipys(trials: int, chance: float, data: Any) -> None:
    """The binomial distribution function agrees with scipy."""
    successes = data.draw(st.integers(-1, trials))

    single = intervals.binomial_cdf(successes, trials, chance)

    assert pytest.approx(oracle.binom.cdf(successes, trials, chance), abs=1e-9) == single


@given(st.floats(-50, 50), st.integers(1, 300))
def test_student_cdf_is_scipys(t: float, degrees: int) -> None:
    """The finite sums for Student's t agree with scipy for odd and even degrees."""
    assert pytest.approx(oracle.t.cdf(t, degrees), abs=1e-9) == intervals.student_cdf(t, degrees)


@given(st.floats(0.51, 0.999), st.integers(1, 300))
def test_student_quantile_is_scipys(level: float, degrees: int) -> None:
    """Bisection finds the quantile that scipy finds."""
    assert pytest.approx(oracle.t.ppf(level, degrees), rel=1e-6, abs=1e-9) == intervals.student_quantile(level, degrees)


@given(st.integers(0, 200), st.integers(0, 200), LEVELS)
@settings(max_examples=40)
@example(1, 0, 0.95)
@example(0, 1, 0.95)
def test_proportion_bounds_are_clopper_pearsons(gains: int, losses: int, level: float) -> None:
    """The bounds of a proportion are the beta quantiles of Clopper and Pearson, one-sided each."""
    trials = gains + losses
    assume(trials > 0)

    lo, hi = intervals.proportion_bounds(gains, trials, level)

    low = oracle.beta.ppf(1 - level, gains, losses + 1) if gains else 0.0
    high = oracle.beta.ppf(level, gains + 1, losses) if losses else 1.0
    assert pytest.approx((low, high), abs=1e-7) == (lo, hi)
    assert (0.0, 1.0) == intervals.proportion_bounds(0, 0, level), "no trial leaves the whole range open"


@given(st.floats(0.05, 0.95), LEVELS, st.integers(0, 120))
def test_quantile_bounds_are_scipys_order_statistics(q: float, level: float, more: int) -> None:
    """Each bound is the one-sided order statistic of scipy; its rank is read off the value."""
    n = intervals.samples_needed(q, level) + more
    assume(n <= 400)
    ranks = [float(rank) for rank in range(1, n + 1)]

    interval = known(intervals.quantile(ranks, q, level))

    # Lower: the largest k with P(B >= k) >= level. Upper: the smallest k with P(B <= k - 1) >= level.
    below = oracle.binom.cdf(np.arange(n + 1), n, q)
    assume(np.abs(below - level).min() > 1e-9)
    assume(np.abs(1 - below - level).min() > 1e-9)
    lower = [float(k) for k in range(1, n + 1) if 1 - below[k - 1] >= level]
    upper = [float(k) for k in range(1, n + 1) if below[k - 1] >= level]
    assert (lower[-1] if lower else -math.inf, upper[0] if upper else math.inf) == (interval.lo, interval.hi)


@given(st.lists(st.lists(RATIOS, min_size=1, max_size=3), min_size=5, max_size=12), st.floats(0.1, 10))
@few
def test_geometric_mean_weighs_each_canary_once_and_scales(ratios: list[list[float]], factor: float) -> None:
    """The mean of log ratios, however often a canary was sent; faster everywhere is as much faster in both bounds."""
    interval, scaled = (
        known(
            intervals.geometric_mean_ratio(
                {str(at): [by * ratio for ratio in row] for at, row in enumerate(ratios)}, 0.95
            )
        )
        for by in (1.0, factor)
    )

    by_hand = math.exp(float(np.mean([np.mean(np.log(values)) for values in ratios])))
    assert pytest.approx(by_hand) == interval.center
    assert interval.lo <= interval.center * (1 + 1e-9)
    assert interval.center <= interval.hi * (1 + 1e-9)
    expected = (interval.center * factor, interval.lo * factor, interval.hi * factor)
    assert pytest.approx(expected) == (scaled.center, scaled.lo, scaled.hi)


@given(st.lists(st.lists(RATIOS, min_size=1, max_size=3), min_size=5, max_size=12))
@few
def test_swapping_the_arms_inverts_the_ratio(ratios: list[list[float]]) -> None:
    """Plain over candidate is one over candidate over plain, and the bounds change places."""
    forth = {str(number): values for number, values in enumerate(ratios)}
    back = {name: [1 / value for value in values] for name, values in forth.items()}

    there, swapped = (known(intervals.geometric_mean_ratio(arms, 0.95)) for arms in (forth, back))

    expected = (1 / there.center, 1 / there.hi, 1 / there.lo)
    assert pytest.approx(expected, rel=1e-6) == (swapped.center, swapped.lo, swapped.hi)


Interval = Callable[[Sequence[float], int], Estimate | Missing]
"""An interval from a list of numbers and a seed, so that all kinds share their properties."""


def _geometric(values: Sequence[float], _: int) -> Estimate | Missing:
    return intervals.geometric_mean_ratio({str(at): [value] for at, value in enumerate(values)}, 0.95)


def _pooled(values: Sequence[float], _: int) -> Estimate | Missing:
    return intervals.pooled_quantile({str(at): [(value, 1)] for at, value in enumerate(values)}, 0.5, 0.95)


def _order(values: Sequence[float], _: int) -> Estimate | Missing:
    return intervals.quantile(values, 0.5, 0.95)


def _deltas(values: Sequence[float], _: int) -> Estimate | Missing:
    return intervals.paired_pass_delta({str(at): (value, 0.0) for at, value in enumerate(values)}, 0.95)


ALL_KINDS: list[Interval] = [_geometric, _pooled, _order, _deltas]


@pytest.mark.parametrize("interval", ALL_KINDS)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_is_not_finite_is_missing(interval: Interval) -> None:
    """One sample that is no finite number leaves no estimate at all, and neither does no sample."""
    for broken in BROKEN:
        assert isinstance(interval([1.0] * 11 + [broken], 7), Missing)
    assert Missing is type(interval([], 7))
    assert 0 == interval([], 7).n


def test_pooled_bounds_by_hand() -> None:
    """101 answers of one token: the share up to the median has the error sqrt(51 * 50 / 101**2 / 100) = 0.05, and
    Student's 1.66 of it reach from 0.417 to 0.583 of 101 values; a hundred tokens an answer, all alike, change nothing.
    """
    for weight in (1, 100):
        clusters = {f"c-{at:03}": [(float(at), weight)] for at in range(1, 102)}

        assert Estimate(51.0, 43.0, 59.0, 101, confidence=0.95) == intervals.pooled_quantile(clusters, 0.5, 0.95)


def woodruff(clusters: dict[str, list[tuple[float, int]]], q: float, level: float) -> tuple[float, float, float]:
    """Return lo, center and hi, answer by answer, with scipy's quantile of Student's t."""
    total = sum(weight for values in clusters.values() for _, weight in values)
    pooled = sorted(pair for values in clusters.values() for pair in values)

    def at(share: float) -> float:
        heap = 0
        return next(value for value, weight in pooled if (heap := heap + weight) >= share * total)

    def error(counts: Callable[[float], bool]) -> float:
        inside = [sum(weight for value, weight in values if counts(value)) for values in clusters.values()]
        sizes = [sum(weight for _, weight in values) for values in clusters.values()]
        squares = [(part - size * sum(inside) / total) ** 2 for part, size in zip(inside, sizes, strict=True)]
        return math.sqrt(len(clusters) / (len(clusters) - 1) * sum(squares)) / total

    middle, far = at(q), oracle.t.ppf(level, len(clusters) - 1)
    near = max(error(lambda value: value <= middle), error(lambda value: value < middle))
    below, above = at(q - far * near), at(q + far * near)
    widest = max(near, error(lambda value: value <= below), error(lambda value: value <= above))
    return at(q - far * widest), middle, at(q + far * widest)


@pytest.mark.parametrize(("q", "answers", "gaps", "digits"), [(0.5, 6, 200, 9), (0.95, 60, 20, 2), (0.05, 60, 20, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_pooled_bounds_are_woodruffs(seed: int, q: float, answers: int, gaps: int, digits: int) -> None:
    """Answers at speeds of their own, gaps of one to five tokens each, one last gap of many."""
    chance = np.random.default_rng(seed)
    clusters = {
        f"c-{at}": [
            (round(float(gap), digits), int(chance.integers(1, 6)))
            for gap in chance.lognormal(chance.normal(0, 0.05 if q == 0.5 else 0.4), 0.5, gaps)
        ]
        for at in range(answers)
    }
    clusters["c-5"].append((99.0, 300 if q == 0.5 else 30))

    interval = known(intervals.pooled_quantile(clusters, q, 0.95))

    assert woodruff(clusters, q, 0.95) == (interval.lo, interval.center, interval.hi)


def test_the_outermost_values_bound_a_tail() -> None:
    """With the fewest answers a p95 may rest on, the largest of all is the bound, and never infinity."""
    interval = known(intervals.pooled_quantile({f"c-{at:03}": [(float(at), 1)] for at in range(59)}, 0.95, 0.95))

    assert (56.0, 58.0) == (interval.center, interval.hi)


@pytest.mark.parametrize(("canaries", "bound"), [(598, 0.00615), (40, 0.0881), (200, 0.0183)])
def test_no_flip_still_has_a_bound(canaries: int, bound: float) -> None:
    """With no flip in n canaries the pass rate may still have moved by -ln(0.025) / n either way."""
    interval = known(intervals.paired_pass_delta({str(at): (1.0, 1.0) for at in range(canaries)}, 0.95))

    assert pytest.approx((-bound, 0.0, bound), rel=0.01) == (interval.lo, interval.center, interval.hi)


@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=80),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_a_share_is_bounded_over_units(units: list[list[bool]], level: float) -> None:
    """Marks of one unit are one unit: its best and its worst are bounded as scipy bounds so many of so many."""
    interval = known(intervals.clustered_share({str(at): unit for at, unit in enumerate(units)}, level))

    all_pass, any_pass = (sum(map(of, units)) for of in (all, any))
    lo = oracle.binomtest(all_pass, len(units), alternative="greater").proportion_ci(level).low
    hi = oracle.binomtest(any_pass, len(units), alternative="less").proportion_ci(level).high
    assert pytest.approx((lo, hi), abs=1e-9) == (interval.lo, interval.hi)
    assert len(units) == interval.n
    assert pytest.approx(np.mean([np.mean(unit) for unit in units])) == interval.center
    assert interval.lo <= interval.center <= interval.hi


def test_no_unit_is_no_share() -> None:
    """Units without a mark are none, and of none there is no share."""
    assert Missing("no canary was answered") == intervals.clustered_share({}, 0.95)
    assert Missing("no canary was answered") == intervals.clustered_share({"a": []}, 0.95)
    assert intervals.clustered_share({"a": [True]}, 0.95) == intervals.clustered_share({"a": [True], "b": []}, 0.95)


@given(st.floats(0.001, 0.9999), st.sampled_from([0.9, 0.95, 0.99]))
def test_so_many_units_are_enough(share: float, level: float) -> None:
    """With as many units as are needed, all alike, the lower bound reaches the share; one fewer falls short."""
    need = intervals.units_needed(share, level)

    lower = oracle.binomtest(need, need, alternative="greater").proportion_ci(level).low
    assert lower >= share - 1e-9
    if need > 1:
        assert oracle.binomtest(need - 1, need - 1, alternative="greater").proportion_ci(level).low < share + 1e-9


@pytest.mark.parametrize(
    ("share", "units"), [(0.0, 1), (1e-9, 1), *((0.05 ** (1 / units), units) for units in (1, 2, 59, 299, 4093))]
)
def test_units_that_just_reach_a_share_are_enough(share: float, units: int) -> None:
    """The very share that so many units alike show at 95 % needs no more of them, whatever rounding adds."""
    assert units == intervals.units_needed(share, 0.95)


def test_a_flip_that_repeats_do_not_share_is_no_whole_flip() -> None:
    """Of 40 canaries half gain in one of ten repeats: nothing, or at most 20 whole gains."""
    interval = known(intervals.paired_pass_delta({str(at): (0.1 if at < 20 else 0.0, 0.0) for at in range(40)}, 0.95))

    none = oracle.binomtest(0, 40, alternative="less").proportion_ci(0.975).high
    half = oracle.binomtest(20, 40, alternative="less").proportion_ci(0.975).high
    assert pytest.approx((-none, 0.05, half)) == (interval.lo, interval.center, interval.hi)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=60))
def test_pass_delta_mirrors_when_the_arms_change_places(marks: list[tuple[float, float]]) -> None:
    """What the candidate gains over plain, plain loses against the candidate; the interval is the exact mirror."""
    forth = known(intervals.paired_pass_delta({str(at): pair for at, pair in enumerate(marks)}, 0.95))
    back = known(intervals.paired_pass_delta({str(at): (b, a) for at, (a, b) in enumerate(marks)}, 0.95))

    assert pytest.approx((-forth.center, -forth.hi, -forth.lo), abs=1e-9) == (back.center, back.lo, back.hi)
    assert forth.lo <= forth.center <= forth.hi


def pairs(*marks: tuple[float, float]) -> dict[str, tuple[float, float]]:
    return {f"c-{at}": pair for at, pair in enumerate(marks)}


def test_a_bound_that_holds_exactly_as_often_as_promised_is_taken() -> None:
    """Five samples lie all on one side of the median once in 32: at 31/32 the bounds are the outermost samples."""
    interval = intervals.quantile([5.0, 4.0, 3.0, 2.0, 1.0], 0.5, 31 / 32)

    assert Estimate(3.0, 1.0, 5.0, 5, confidence=31 / 32) == interval


@pytest.mark.parametrize("n", [3, 5, 12, 300])
def test_expanded_is_hesterbergs_percentile(n: int) -> None:
    """Phi(sqrt(n / (n - 1)) * t(level, n - 1)) by scipy; of a single unit the outermost is taken."""
    wide = oracle.norm.cdf(math.sqrt(n / (n - 1)) * oracle.t.ppf(0.95, n - 1))

    assert pytest.approx(wide, abs=1e-9) == intervals.expanded_percentile(0.95, n)
    assert 1.0 == intervals.expanded_percentile(0.95, 1)
