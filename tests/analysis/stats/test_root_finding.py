"""Roots of known functions."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.stats.root_finding import root


@given(st.floats(-9, 9), st.floats(1e-6, 9), st.floats(1e-6, 9), st.sampled_from([-1, 1]), st.integers(0, 4))
def test_a_root_is_found_in_few_steps(change: float, before: float, after: float, sign: int, shape: int) -> None:
    """Where a function rises through 0 is found in either direction, as exactly as its values tell: of a straight
    line and
    of cubes, of exponential and logistic curves in some ten values, of a step in no more than bisection takes.
    """
    rise: Callable[[float], float] = (
        lambda x: x, lambda x: x**3 + x / 9, lambda x: math.expm1(4 * x), lambda x: math.tanh(9 * x),
        lambda x: math.copysign(1, x),
    )[shape]  # fmt: skip
    values = []

    def function(value: float) -> float:
        values.append(value)
        return rise(sign * (value - change))

    end = root(function, change - sign * before, change + sign * after)

    assert end == pytest.approx(change, rel=1e-15, abs=1e-15)
    assert len(values) < (25 if shape < 4 else 70)


def test_a_function_without_a_change_has_its_root_at_an_end() -> None:
    """One that has risen where the search begins gives that end, one that never rises the other."""
    assert root(lambda value: value + 9, 2, 5) == 2
    assert root(lambda value: value - 9, 2, 5) == 5
