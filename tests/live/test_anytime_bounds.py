"""Moments: sums and products of rows, of which some are replaced."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.live.anytime_bounds import MOST_WAITING, Moments

ROWS = st.lists(st.tuples(*[st.floats(-20, 20)] * 3), min_size=2, max_size=3 * MOST_WAITING)


@given(ROWS, st.integers(0, MOST_WAITING))
def test_replaced_rows_leave_the_moments_of_the_others(rows: list[tuple[float, ...]], replaced: int) -> None:
    """Mean and centred products are those of numpy over the rows that stayed, also where they are read in between."""
    moments = Moments(3)
    for number, row in enumerate(rows):
        if number < replaced:
            moments.add((1.0, 2.0, 3.0))
            moments.replace((1.0, 2.0, 3.0), row)
        else:
            moments.add(row)
        if number % 7 == 0:
            moments.multiply_deviations()

    table = np.array(rows)
    assert len(rows) == moments.n
    assert table.mean(axis=0) == pytest.approx(moments.mean, abs=1e-9)
    assert np.cov(table.T, bias=True) * len(rows) == pytest.approx(moments.multiply_deviations(), abs=1e-6)
