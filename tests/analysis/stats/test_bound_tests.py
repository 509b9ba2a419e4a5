"""Tests of a latency against its bound: they err as rarely as they say, and few answers show a clear miss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.stats.bound_tests import is_broken, is_kept, measured_quantile, quantile_bounds
from gatekeeper.analysis.stats.intervals import WeightedValues

RUNS = 300


def answers(values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> WeightedValues:
    """Return answers, one a row of *values*."""
    return WeightedValues.of((str(number), [(value, 1.0) for value in row]) for number, row in enumerate(values))


def drawn(random: np.random.Generator, count: int, gaps: int, apart: float) -> WeightedValues:
    """Return answers whose values have a 95 % quantile of 0, and differ from answer to answer by *apart*."""
    share = random.normal(0, 1, (count, 1)) * np.sqrt(apart)
    return answers(share + random.normal(0, 1, (count, gaps)) * np.sqrt(1 - apart) - 1.644854)


@pytest.mark.whole
@pytest.mark.parametrize(("gaps", "apart"), [(1, 0.0), (20, 0.0), (20, 0.5), (20, 0.99)])
@pytest.mark.parametrize("count", [12, 116])
def test_a_quantile_at_its_bound_is_rarely_called_kept_or_broken(gaps: int, apart: float, count: int) -> None:
    """
    Whether answers are alike or differ, each error is made in no more than the stated 2.5 % of 300 tests, but for
    chance and the skewness of shares.
    """
    random = np.random.default_rng(5)
    tried = [drawn(random, count, gaps, apart) for _ in range(RUNS)]

    assert sum(is_broken(values, 0.0, 0.95, 0.025) for values in tried) <= 0.045 * RUNS
    assert sum(is_kept(values, 0.0, 0.95, 0.025) for values in tried) <= 0.045 * RUNS


@pytest.mark.parametrize(("q", "count"), [(0.5, 9), (0.95, 3), (0.99, 2)])
def test_few_answers_show_a_clear_miss(q: float, count: int) -> None:
    """
    Where every answer lies above the bound, three prove it of a 95 % quantile, and nine of a median.
    """
    assert is_broken(answers(np.ones((count, 1))), 0.0, q, 0.0025)


@pytest.mark.parametrize("gaps", [1, 30])
def test_a_clear_pass_needs_the_fewest_answers_that_can_show_it(gaps: int) -> None:
    """
    No answer above the bound proves a 95 % quantile from 72 answers on at 97.5 %; with gaps, from 1.6 times
    as many, though all of an answer's gaps are alike.
    """
    random = np.random.default_rng(1)
    count = 72 if gaps == 1 else 116
    alike = np.repeat(random.uniform(0, 1, (count, 1)), gaps, axis=1)

    assert is_kept(answers(alike), 2.0, 0.95, 0.025)
    assert not is_kept(answers(random.uniform(0, 1, (71, gaps))), 2.0, 0.95, 0.025)


@given(st.integers(0, 200), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_the_bounds_hold_the_measured_quantile(count: int, gaps: int, seed: int) -> None:
    """
    The ends are where the tests turn, the measured quantile lies between them, and few answers bound nothing above.
    """
    values = answers(np.random.default_rng(seed).lognormal(size=(count + 1, gaps)))

    lo, hi = quantile_bounds(values, 0.95, 0.95)

    center = measured_quantile(values, 0.95)
    assert lo is None or lo <= center
    assert hi is None or (center <= hi and is_kept(values, hi, 0.95, 0.05))
    assert count >= 58 or hi is None
