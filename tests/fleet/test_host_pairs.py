"""The comparison of hosts of one chip."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gatekeeper.fleet.fleet_cell import CellWorkload
from gatekeeper.fleet.host_pairs import RatioContrast, contrast


def workload(center: float, spread: float, **changes: Any) -> CellWorkload:
    """Return a workload whose ratio has a standard error of *spread* in logs, over 40 canaries."""
    half = spread * float(stats.t.ppf(0.95, 39))
    ratio = {"center": center, "lo": center * math.exp(-half), "hi": center * math.exp(half), "n": 40}
    setting = {"draft": "d", "num_draft_tokens": 4}
    return replace(CellWorkload("promoted", setting, ratio, 0.95), **changes)


@given(st.floats(0.3, 3), st.floats(0.3, 3), st.floats(0.001, 0.5), st.floats(0.001, 0.5), st.integers(1, 400))
def test_the_comparison_is_welchs_test_with_bonferroni(
    a: float, b: float, of_a: float, of_b: float, count: int
) -> None:
    """
    Two ratios differ where Welch's two-sided p-value of their logs, times the number of comparisons, is below 5 %.
    """
    n = 40
    spreads = of_a * math.sqrt(n), of_b * math.sqrt(n)
    p = (
        count
        * stats.ttest_ind_from_stats(math.log(a), spreads[0], n, math.log(b), spreads[1], n, equal_var=False).pvalue
    )

    difference = contrast(workload(a, of_a), workload(b, of_b), count)

    assert difference.quotient is not None
    assert difference.lo is not None
    assert difference.hi is not None
    if abs(p - 0.05) > 0.004:  # the degrees of freedom are rounded down to a whole number
        assert ("differ" if p < 0.05 else "no difference shown") == difference.says
    assert math.isclose(b / a, difference.quotient, rel_tol=1e-9)
    assert difference.lo <= difference.quotient <= difference.hi


@pytest.mark.whole
def test_alike_hosts_are_rarely_called_different() -> None:
    """
    Among hosts with the same truth, at most one fleet in twenty has a pair that is called different.
    """
    drawn, wrong = random.Random(3), 0
    for _ in range(400):
        ratios = [workload(1.5 * math.exp(drawn.gauss(0, 0.03)), 0.03) for _ in range(4)]
        pairs = [(a, b) for number, a in enumerate(ratios) for b in ratios[:number]]
        wrong += any(contrast(a, b, len(pairs)).says == "differ" for a, b in pairs)

    assert wrong <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95)


@pytest.mark.parametrize(
    ("change", "because"),
    [({"setting": {"draft": None}}, "their settings differ"), ({"ratio": None}, "a ratio is missing")],
)
def test_what_cannot_be_compared_is_named(change: dict[str, Any], because: str) -> None:
    """
    Another setting, or a ratio that was not measured, is no difference and no likeness.
    """
    assert RatioContrast("not compared", because) == contrast(workload(1.5, 0.03), workload(1.5, 0.03, **change), 1)
