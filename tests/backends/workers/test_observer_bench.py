"""The bench of what observing costs: two loops in turns over the same answers, and its interval."""

import math

import pytest

pytest.importorskip("mlx_lm")

from bench import observer_effect
from bench.observer_effect import BLOCK, Start, result_of

pytestmark = pytest.mark.mlx  # the bench loads mlx-lm, which takes seconds


def test_a_planted_cost_and_the_driving_are_found() -> None:
    """A loop that is 1 % slower, and driven for 1 % of the time, reads 0.99 * 0.99; one busy block does not move it."""
    blocks = [(1000, 1010)] * 20 + [(1000, 9000)]

    result = result_of("plain", [Start(blocks, driving=0.01), Start(blocks, driving=0.01)])

    assert math.isclose(1000 / 1010 * 0.99, result.ratio)
    assert (2, 42, BLOCK * 1e6) == (result.starts, result.blocks, result.bare_tokens_per_s)
    assert result.ratio < observer_effect.GOAL
