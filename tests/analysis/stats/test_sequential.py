"""The sequential interval: looks fixed beforehand, an error spent over them, and bounds that hold at all of them."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as oracle

from gatekeeper.analysis.stats import sequential
from gatekeeper.core.judgement import Estimate, Missing

FINITE = st.floats(-2.0, 2.0)


@given(st.integers(1, 1000), st.sampled_from([sequential.GROWTH, sequential.RESTARTED]))
def test_looks_grow_to_the_budget(budget: int, growth: float) -> None:
    """The first look has canaries enough to decide, each next has clearly more, the last one has seen everything."""
    counts = sequential.looks(budget, growth)

    assert budget == counts[-1]
    assert min(budget, sequential.MIN_CANARIES) <= counts[0] < sequential.MIN_LAST_STRETCH * sequential.MIN_CANARIES
    assert all(after >= sequential.MIN_LAST_STRETCH * before for before, after in pairwise(counts))


@given(st.integers(8, 300), st.integers(1, 5), st.sampled_from([sequential.GROWTH, sequential.RESTARTED]))
def test_one_look_comes_before_the_first_repeat(canaries: int, repeats: int, growth: float) -> None:
    """When every canary was sent once the records are looked at, wherever the other looks fall."""
    counts = sequential.looks(canaries * repeats, growth, canaries)

    assert {canaries, canaries * repeats} <= set(counts)
    assert sorted(set(counts)) == list(counts)


SOAKS = [((1 / 6, 1 / 3, 2 / 3, 1), (40, 80, 160, 240)), ((0.6, 1.0, 1.5, 4.0), (100, 180, 190, 600)), ((1.0,), (30,))]


@pytest.mark.parametrize(("shares", "answers"), SOAKS, ids=["to max_duration", "extended twice", "one part"])
@pytest.mark.parametrize("error", [0.05, 0.05 / 3])
def test_all_looks_at_a_soak_err_as_often_as_its_time_has_spent(
    shares: tuple[float, ...], answers: tuple[float, ...], error: float
) -> None:
    """The looks share answers, not seconds: by scipy's multivariate normal, some bound fails as often as was spent."""
    spent = tuple(sequential.error_spent_by(share, error) for share in shares)
    nominal = sequential.spending_errors(tuple(answer / answers[-1] for answer in answers), spent)

    ties = [[math.sqrt(min(answer, two) / max(answer, two)) for answer in answers] for two in answers]
    edges = [float(oracle.norm.isf(level)) for level in nominal]
    crossed = 1 - oracle.multivariate_normal(cov=ties, seed=1).cdf(edges)
    assert pytest.approx(spent[-1], rel=0.02) == crossed


@given(st.lists(st.floats(0.0, 1e6), min_size=2), st.floats(1e-4, 0.2))
def test_no_soak_however_long_spends_more_than_is_allowed(shares: list[float], error: float) -> None:
    """More time spends more, and less than everything, so that every extension has something left."""
    spent = [sequential.error_spent_by(share, error) for share in sorted(shares)]

    assert sorted(spent) == spent
    assert 0 <= spent[0] <= spent[-1] < error


@given(st.lists(FINITE, min_size=8, max_size=60), st.floats(1e-4, 0.2))
@settings(max_examples=50, deadline=None)
def test_the_interval_is_students(logs: list[float], error: float) -> None:
    """Against scipy's t, on the scale of ratios."""
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
    """Too few canaries, a value that is no number, no error to spend: the sweep continues."""
    interval = sequential.interval(logs, error)

    assert isinstance(interval, Missing)


def test_a_known_spread_keeps_the_interval_from_closing() -> None:
    """Eight logs that are alike by chance are held as far apart as the set is known to lie."""
    alike = [0.1] * 8

    alone, spread_known = (sequential.interval(alike, 0.05, spread) for spread in (0.0, 0.2))

    assert isinstance(alone, Estimate)
    assert isinstance(spread_known, Estimate)
    assert pytest.approx((0.0, 0.2326174)) == (
        math.log(alone.hi / alone.lo),
        math.log(spread_known.hi / spread_known.lo),
    )
