"""The table of `bench.exactness`, as a quick look: sound drafts are promoted, and defects of an engine are found."""

import pytest

pytest.importorskip("mlx_lm")

from bench.exactness.cells import MIDDLE, Cell, Plan, measure
from bench.exactness.judged import Shown
from bench.exactness.planted import Kind

pytestmark = [pytest.mark.mlx, pytest.mark.nightly]


@pytest.mark.timeout(900)  # decodes thirty thousand tokens
def test_sound_drafts_are_promoted_and_defects_found_on_another_kernel() -> None:
    """With 2 % of flips a token a sound draft is promoted in process, and each defect of the engine is found there."""
    results = measure(MIDDLE, Plan(sound=1, defective=1))

    assert results.ends[Cell(MIDDLE)][Shown.ROUNDS].promoted == 1
    for kind in (Kind.UNVERIFIED, Kind.SHIFTED, Kind.STALE, Kind.DROPPED, Kind.TIES):
        rate = 1.0 if kind is Kind.TIES else 0.05
        assert results.ends[Cell(MIDDLE, kind, rate)][Shown.ROUNDS].failed == 1, kind
