"""Scores of sampled tokens, as the mlx worker computes them: exact under its filters, and fair where logits tie."""

import math
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.words.sampled_tokens import e_value

mx: Any = pytest.importorskip("mlx.core", exc_type=ImportError)
pytest.importorskip("mlx_lm", exc_type=ImportError)
pytestmark = pytest.mark.mlx
SCORES = import_module("gatekeeper.backends.workers.target_reader")

FILTERS = [(None, None, None), (0.8, None, None), (None, 0.2, None), (None, None, 3), (0.9, 0.05, 4)]


def rows_of(logits: list[float], temperature: float, filters: tuple[Any, ...]) -> list[list[float | None]]:
    """Score every token of the vocabulary at one place, in half precision as models give it."""
    size = len(logits)
    logprobs = mx.broadcast_to(mx.array(logits, dtype=mx.bfloat16), (size, size))
    rows: list[list[float | None]] = SCORES.score_rows(logprobs, list(range(size)), temperature, *filters)
    return rows


@given(
    st.lists(st.sampled_from([-4.0, -2.0, -1.5, -1.0, -0.5]), min_size=6, max_size=10),
    st.sampled_from(FILTERS),
    st.sampled_from([0.5, 0.7, 1.3]),
)
def test_ratios_have_mean_one_where_logits_tie(
    logits: list[float], filters: tuple[Any, ...], temperature: float
) -> None:
    """However many tokens tie, and whatever is filtered, the evidence has mean 1 under the target itself."""
    drawable = [row for row in rows_of(logits, temperature, filters) if row[0] is not None]
    rows = [[float(value) for value in row if value is not None] for row in drawable]
    chances = np.exp([row[0] for row in rows])

    assert chances.sum() == pytest.approx(1.0, abs=1e-4)
    assert sum(chances * np.exp([e_value([row]) for row in rows])) == pytest.approx(1.0, abs=1e-3)
    for _, _, squares, roots in rows:
        assert math.exp(squares) == pytest.approx((chances**2).sum(), rel=1e-3)
        assert math.exp(roots) == pytest.approx(np.sqrt(chances).sum(), rel=1e-3)


def test_a_filtered_token_has_no_chance() -> None:
    """A token that the filter takes out has none as its log-probability: it cannot have been drawn."""
    rows = rows_of([-0.5, -1.0, -3.0, -4.0, -5.0], 0.7, (None, None, 2))

    assert [row[0] is None for row in rows] == [False, False, True, True, True]
