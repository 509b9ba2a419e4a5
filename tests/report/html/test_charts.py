"""The charts: positions on their scales, and charts without data."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Scale

VALUES = st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1, max_size=20)


def check(outcome: Outcome = Outcome.PASS, bound: str = "at_least", **figures: float | None) -> Check:
    return Check("throughput_ratio", bound, 1.16, outcome, unit="1", because="because", why="why", **figures)  # type: ignore[arg-type]


@given(VALUES)
def test_every_value_lies_on_its_scale_in_order(values: list[float]) -> None:
    """A scale holds what it was made for, and a larger value never lies lower."""
    across = charts.scale(values)

    shares = [across.share(value) for value in sorted(values)]

    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)


@given(VALUES, st.integers(2, 8))
def test_ticks_are_few_and_inside(values: list[float], most: int) -> None:
    """However wide or narrow the values, the ticks lie inside and are no crowd."""
    across = charts.scale(values)
    assume(across.hi - across.lo > 1e-9 * max(abs(across.lo), abs(across.hi)))

    ticks = across.ticks(most)

    assert len(ticks) <= most + 1
    spare = 1e-6 * (across.hi - across.lo)
    assert all(across.lo - spare <= tick <= across.hi + spare for tick in ticks)


@pytest.mark.parametrize(
    ("seconds", "ticks"), [(90.0, [0, 15, 30, 45, 60, 75, 90]), (1360.0, [0, 300, 600, 900, 1200])]
)
def test_time_is_counted_as_people_do(seconds: float, ticks: list[float]) -> None:
    """A soak's axis counts in 15 s or 5 min, never in 16.7 min."""
    assert ticks == Scale(0.0, seconds).ticks(6, seconds=True)


@pytest.mark.parametrize(
    ("figures", "label"),
    [
        ({"center": 1.31, "lo": 1.22, "hi": 1.38}, "pass: 1.31x [1.22, 1.38], objective at least 1.16"),
        ({"center": 1.31, "lo": 1.31, "hi": 1.31}, "pass: 1.31x, objective at least 1.16"),
        ({"center": 1.31, "lo": 1.22, "hi": None}, "pass: 1.31x [1.22x, ?], objective at least 1.16"),
        ({}, "pass: not measured, objective at least 1.16"),
    ],
)
def test_a_chart_has_its_content_as_text(figures: dict[str, float], label: str) -> None:
    """The chart of a check has a text label for screen readers; what was not measured has no dot."""
    drawn = charts.interval(check(Outcome.PASS, "at_least", **figures))

    assert f'aria-label="{label}"' in drawn
    assert bool(figures) == ("circle" in drawn)


def test_the_side_that_passes_is_shaded() -> None:
    """`at_least` shades the right side of the bound, `at_most` the left one."""
    more = charts.interval(check(center=2.0, lo=1.9, hi=2.1))
    less = charts.interval(check(Outcome.FAIL, "at_most", center=2.0, lo=1.9, hi=2.1))

    at = 'x1="24.68%"'
    assert (True, True) == (at in more, at in less)
    assert 'class="passing" x="24.68%"' in more
    assert 'class="passing" x="0.00%" y="22" width="24.68%"' in less
