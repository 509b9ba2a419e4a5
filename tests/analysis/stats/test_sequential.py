"""The sequential interval: looks fixed beforehand, an error spent over them, and bounds that hold at all of them."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as oracle

from gatekeeper.analysis.stats import sequential
from gatekeeper.core.verdict import Estimate, Missing

FINITE = st.floats(-2.0, 2.0)


@given(st.integers(1, 1000), st.sampled_from([sequential.GROWTH, sequential.RESTARTED]))
def test_looks_grow_to_the_budget(budget: int, growth: float) -> None:
    """
    The first look has canaries enough to decide, each next has clearly more, the last one has seen everything.
    """
    counts = sequential.looks(budget, growth)

    assert budget == counts[-1]
    assert min(budget, sequential.MIN_CANARIES) <= counts[0] < sequential.MIN_LAST_STRETCH * sequential.MIN_CANARIES
    assert all(after >= sequential.MIN_LAST_STRETCH * before for before, after in pairwise(counts))


@given(st.integers(8, 300), st.integers(1, 5), st.sampled_from([sequential.GROWTH, sequential.RESTARTED]))
def test_one_look_comes_before_the_first_repeat(canaries: int, repeats: int, growth: float) -> None:
    """
    When every canary was sent once the records are looked at, wherever the other looks fall.
    """
    counts = sequential.looks(canaries * repeats, growth, canaries)

    assert {canaries, canaries * repeats} <= set(counts)
    assert sorted(set(counts)) == list(counts)


def test_the_boundaries_are_the_published_ones() -> None:
    """
    Five even looks, 2.5 % one-sided, Pocock's kind of spending: the table of Lan and DeMets's own program.
    """
    nominal = sequential.nominal_errors((1, 2, 3, 4, 5), 5, 0.025)

    assert [2.438, 2.427, 2.410, 2.397, 2.386] == [round(float(oracle.norm.isf(error)), 3) for error in nominal]


@pytest.mark.parametrize(("counts", "error"), [((8, 12, 18), 0.05), ((8, 16, 64), 0.01), ((8, 9, 72), 0.004)])
def test_all_looks_together_err_as_often_as_allowed(counts: tuple[int, ...], error: float) -> None:
    """
    The chance that a normal score crosses any of its boundaries, by scipy's multivariate normal, is the error spent.
    """
    nominal = sequential.nominal_errors(counts, counts[-1], error)
    edges = [float(oracle.norm.isf(level)) for level in nominal]
    ties = [[math.sqrt(min(count, two) / max(count, two)) for count in counts] for two in counts]

    crossed = 1 - oracle.multivariate_normal(cov=ties, seed=1).cdf(edges)

    assert pytest.approx(error, rel=0.02) == crossed


SOAKS = [((1 / 6, 1 / 3, 2 / 3, 1), (40, 80, 160, 240)), ((0.6, 1.0, 1.5, 4.0), (100, 180, 190, 600)), ((1.0,), (30,))]


@pytest.mark.parametrize(("shares", "answers"), SOAKS, ids=["to max_duration", "extended twice", "one part"])
@pytest.mark.parametrize("error", [0.05, 0.05 / 3])
def test_all_looks_at_a_soak_err_as_often_as_its_time_has_spent(
    shares: tuple[float, ...], answers: tuple[float, ...], error: float
) -> None:
    """
    The looks share answers, not seconds: by scipy's multivariate normal, some bound fails as often as was spent.
    """
    spent = tuple(sequential.error_spent_by(share, error) for share in shares)
    nominal = sequential.spending_errors(tuple(answer / answers[-1] for answer in answers), spent)

    ties = [[math.sqrt(min(answer, two) / max(answer, two)) for answer in answers] for two in answers]
    edges = [float(oracle.norm.isf(level)) for level in nominal]
    crossed = 1 - oracle.multivariate_normal(cov=ties, seed=1).cdf(edges)
    assert pytest.approx(spent[-1], rel=0.02) == crossed


@given(st.lists(st.floats(0.0, 1e6), min_size=2), st.floats(1e-4, 0.2))
def test_no_soak_however_long_spends_more_than_is_allowed(shares: list[float], error: float) -> None:
    """
    More time spends more, and less than everything, so that every extension has something left.
    """
    spent = [sequential.error_spent_by(share, error) for share in sorted(shares)]

    assert sorted(spent) == spent
    assert 0 <= spent[0] <= spent[-1] < error


def test_one_look_spends_everything() -> None:
    """
    A sweep that looks once, at its end, is the fixed design.
    """
    assert pytest.approx([0.05], rel=1e-6) == list(sequential.nominal_errors((40,), 40, 0.05))


@given(st.lists(FINITE, min_size=8, max_size=60), st.floats(1e-4, 0.2))
@settings(max_examples=50, deadline=None)
def test_the_interval_is_students(logs: list[float], error: float) -> None:
    """
    Against scipy's t, on the scale of ratios.
    """
    interval = sequential.interval(logs, error)

    assert isinstance(interval, Estimate)
    half = oracle.t.isf(error, len(logs) - 1) * np.std(logs, ddof=1) / math.sqrt(len(logs))
    expected = [math.exp(np.mean(logs) + side * half) for side in (-1, 0, 1)]
    assert pytest.approx(expected, rel=1e-6) == [interval.lo, interval.center, interval.hi]


@pytest.mark.parametrize(
    ("logs", "error"),
    [([], 0.05), ([0.1] * 7, 0.05), ([0.1] * 7 + [math.nan], 0.05), ([0.1] * 8 + [-math.inf], 0.05), ([0.1] * 9, 0.0)],
)
def test_what_is_missing_decides_nothing(logs: list[float], error: float) -> None:
    """
    Too few canaries, a value that is no number, no error to spend: the sweep continues.
    """
    interval = sequential.interval(logs, error)

    assert isinstance(interval, Missing)
    assert {"continue"} == {sequential.decide(interval, bound) for bound in (0.0, 1.0, 100.0)}


@given(st.lists(FINITE, min_size=30, max_size=30), st.floats(0.5, 2.0))
@settings(max_examples=100, deadline=None)
def test_a_decision_is_never_taken_back(logs: list[float], bound: float) -> None:
    """
    Each interval lies inside the one before, so a pass never becomes a fail; looks that contradict decide nothing more.
    """
    counts = sequential.looks(30)
    bounds: Estimate | Missing | None = None
    words: list[str] = []
    for count, error in zip(counts, sequential.nominal_errors(counts, 30, 0.05), strict=True):
        before, bounds = bounds, sequential.intersected(bounds, sequential.interval(logs[:count], error))
        if isinstance(before, Estimate) and isinstance(bounds, Estimate):
            assert before.lo <= bounds.lo <= bounds.hi <= before.hi
        words.append(sequential.decide(bounds, bound))

    assert not {"pass", "fail"} <= set(words)


def test_looks_that_contradict_each_other_stay_unproven() -> None:
    """
    A subject that changed between the looks is known no better by a third.
    """
    slow, fast = Estimate(0.8, 0.7, 0.9, 8), Estimate(1.2, 1.1, 1.3, 12)

    torn = sequential.intersected(slow, fast)

    assert isinstance(torn, Missing)
    assert torn == sequential.intersected(torn, fast)


@given(st.lists(FINITE, min_size=12, max_size=12), st.floats(0.5, 2.0), st.floats(0.0, 1.0))
@settings(max_examples=50, deadline=None)
def test_a_higher_bound_is_never_easier(logs: list[float], bound: float, more: float) -> None:
    """
    What passes a bound passes every lower one, and what fails it fails every higher one.
    """
    interval, order = sequential.interval(logs, 0.01), {"fail": 0, "continue": 1, "pass": 2}

    assert order[sequential.decide(interval, bound + more)] <= order[sequential.decide(interval, bound)]


def _normal(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return random.standard_normal(shape)


def _heavy(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return random.standard_t(3, shape)


def _two_heaps(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return random.standard_normal(shape) + 4.0 * random.choice([-1, 1], shape)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("noise", "allowed"),
    [(_normal, 0.05), (_heavy, 0.05), (_two_heaps, 0.08)],
    ids=["log-normal", "heavy tails", "two heaps"],
)
@pytest.mark.parametrize("budget", [24, 90])
def test_all_looks_together_hold(
    noise: Callable[[np.random.Generator, tuple[int, int]], np.ndarray], allowed: float, budget: int
) -> None:
    """
    Looked at until something is decided, each side is wrong at the bound itself in no more than the allowed 5 % of the
    series, but for three standard errors of the simulation: for ratios with log-normal tails, and for logs with heavy
    ones. Eight canaries in two heaps far apart are nearly coins, for which Student's t is a little too narrow.
    """
    runs, counts = 1500, sequential.looks(budget)
    nominal = sequential.nominal_errors(counts, budget, 0.05)
    words = []
    for logs in noise(np.random.default_rng(11), (runs, budget)).tolist():
        bounds: Estimate | Missing | None = None
        for count, error in zip(counts, nominal, strict=True):
            bounds = sequential.intersected(bounds, sequential.interval(logs[:count], error))
            if (word := sequential.decide(bounds, 1.0)) != "continue":
                break
        words.append(word)

    limit = allowed + 3 * math.sqrt(0.05 * 0.95 / runs)
    assert limit > words.count("pass") / runs
    assert limit > words.count("fail") / runs


def test_a_known_spread_keeps_the_interval_from_closing() -> None:
    """
    Eight logs that are alike by chance are held as far apart as the set is known to lie: normal quantile, root of n.
    """
    alike = [0.1] * 8

    alone, spread_known = (sequential.interval(alike, 0.05, spread) for spread in (0.0, 0.2))

    assert isinstance(alone, Estimate)
    assert isinstance(spread_known, Estimate)
    assert pytest.approx((0.0, 0.2326174)) == (
        math.log(alone.hi / alone.lo),
        math.log(spread_known.hi / spread_known.lo),
    )
