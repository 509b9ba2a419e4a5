"""The distributions a page draws, checked against a plain reckoning."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.conclude import conclude
from gatekeeper.report.data.distributions import QUANTILES, STEPS, curve, distributions
from tests.builders.page_data import whole_case


def every(_quantile: float) -> bool:
    return True


WEIGHTED = st.lists(st.tuples(st.floats(1e-6, 1e3), st.integers(1, 9).map(float)), min_size=1, max_size=40)


@given(WEIGHTED)
def test_a_curve_is_the_weighted_quantiles(weighted: list[tuple[float, float]]) -> None:
    """A burst of m tokens counts m times: the curve is that of every token by itself, to six digits."""
    values, weights = np.array(weighted).T
    distribution = curve(values, weights, every)
    each = np.sort(np.repeat([value for value, _ in weighted], [int(weight) for _, weight in weighted]))

    assert distribution is not None
    for share, value in zip((0.5, 1.0), (distribution.quantiles[0], distribution.values[-1]), strict=True):
        expected = each[max(0, math.ceil(share * len(each) - 1e-9) - 1)]
        assert pytest.approx(expected, rel=1e-5) == value


@given(WEIGHTED)
def test_a_curve_never_falls(weighted: list[tuple[float, float]]) -> None:
    """More answers lie below a later point, never fewer, from the smallest value to the largest."""
    values, weights = np.array(weighted).T
    distribution = curve(values, weights, every)

    assert distribution is not None
    assert list(distribution.values) == sorted(distribution.values)
    assert (STEPS + 1, len(QUANTILES)) == (len(distribution.values), len(distribution.quantiles))


def test_nothing_has_no_curve() -> None:
    """No value, no weight and no number give no curve."""
    assert curve(np.empty(0), np.empty(0), every) is None
    assert curve(np.array([1.0, math.nan, math.inf]), np.array([0.0, 1.0, 1.0]), every) is None


def test_both_arms_of_the_last_speculating_soak_are_shown() -> None:
    """A workload that speculates shows both arms of its soak; one that never did shows those of the sweep."""
    case = whole_case()

    easy, hard = distributions(case, conclude(case).verdict.workloads)

    assert ("soak-1", "sweep") == (easy.source, hard.source)
    for workload in (easy, hard):
        assert {"ttft", "itl"} == set(workload.curves)
        assert {"plain", "candidate"} == set(workload.curves["itl"])
    assert easy.curves["itl"]["candidate"].values[50] < easy.curves["itl"]["plain"].values[50]
    assert hard.curves["itl"]["candidate"].values[50] > hard.curves["itl"]["plain"].values[50]
