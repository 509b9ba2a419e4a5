"""Human units at the door."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core import units
from gatekeeper.core.metrics import ALL, BY_NAME

EVERY = units.SECONDS | units.BYTES | units.BYTE_RATES | units.EVENT_RATES | units.OTHERS


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("900 ms", 0.9),
        ("600 s", 600.0),
        ("10 min", 600.0),
        ("30 d", 2_592_000.0),
        ("10 GB", 1e10),
        ("10GiB", 10 * 2.0**30),
        ("0.5 /s", 0.5),
        ("30 /min", 0.5),
        ("200 MB/h", 2e8 / 3600),
        ("5 %", 0.05),
        (" -1.5e2 ", -150.0),
        (".5", 0.5),
        (7, 7.0),
    ],
)
def test_quantities_people_write(written: object, value: float) -> None:
    """A number with a unit is read in SI base units; a bare one already is."""
    assert pytest.approx(value) == units.parse(written, EVERY)


@pytest.mark.parametrize(
    "written", ["", "ten s", "10 parsecs", "10 gb", "1 2 s", "s", "--1 s", "1e999 s", True, None, [], "nan", "inf s"]
)
def test_what_can_not_be_read_is_refused(written: object) -> None:
    """A typo, a wrong case, a boolean or an overflow is an error, never a guess."""
    with pytest.raises(ValueError, match=r"read|number|finite"):
        units.parse(written, EVERY)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (24 * 2**30, "25.8 GB (sold as 24 GB)"),
        (512 * 2**30, "550 GB (sold as 512 GB)"),
        (25_268_375_552, "25.3 GB"),  # what a kernel left of 24 GiB
        (2**20, "1.05 MB"),
    ],
)
def test_a_machine_is_told_in_the_units_of_everything_else(count: int, expected: str) -> None:
    """Memory is as decimal as headroom and weights, with the size on its box where it is one."""
    assert expected == units.show_memory(count)


@given(st.floats(1e-3, 1e3), st.sampled_from(sorted(EVERY)))
def test_units_are_factors(number: float, unit: str) -> None:
    """Every unit means its factor, with or without a space."""
    assert pytest.approx(number * EVERY[unit]) == units.parse(f"{number!r} {unit}", EVERY)
    assert units.parse(f"{number!r}{unit}", EVERY) == units.parse(f"{number!r} {unit}", EVERY)


@given(st.floats(1e-4, 1e7) | st.floats(-1e7, -1e-4))
def test_shown_quantities_are_read_back(number: float) -> None:
    """What is printed means the same when it is written into an SLO, to three digits."""
    assert pytest.approx(number, rel=0.006) == units.parse(units.show_seconds(number), units.SECONDS)
    size = abs(number) * 1e7
    assert pytest.approx(size, rel=0.006, abs=0.5) == units.parse(units.show_bytes(size), units.BYTES)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.0042, "s", "4.2 ms"),
        (600.0, "s", "10 min"),
        (1.4e9, "B", "1.4 GB"),
        (512, "B", "512 B"),
        (83_333.3, "B/s", "300 MB/h"),
        (1.162, "1", "1.16"),
        (1234.5, "tok/s", "1234 tok/s"),
        (0.0, "s", "0 ms"),
    ],
)
def test_values_as_people_read_them(value: float, unit: str, expected: str) -> None:
    """Three digits and the unit a person would use."""
    assert expected == units.show(value, unit)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_every_metrics_unit_can_be_written(metric: object) -> None:
    """A bound may be written in the unit of its metric, and what `show` prints of it is accepted."""
    unit = str(getattr(metric, "unit", ""))
    allowed = units.UNITS_OF[unit]

    assert math.isfinite(units.parse(units.show(2.5, unit), allowed))


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("decode_throughput", (157.0, 111.0, 189.0), "157 tok/s [111, 189]"),
        ("throughput_ratio", (2.12, 2.0791, 2.1), "2.12x [2.08, 2.10]"),
        ("ttft_delta", (0.138, 0.111, 0.167), "+13.8 % [+11.1, +16.7]"),
        ("acceptance_rate", (0.8, 0.43, 0.91), "0.8 [0.43, 0.91]"),
        ("ttft", (0.9, 0.8, 1.5), "900 ms [800 ms, 1.5 s]"),
        ("footprint_peak", (89e6, 89e6, 89e6), "89 MB"),
    ],
)
def test_an_interval_has_one_notation(metric: str, values: tuple[float, float, float], expected: str) -> None:
    """The value, then its bounds in brackets; a value that is certain stands alone."""
    assert expected == BY_NAME[metric].show_interval(*values)


EXPONENT = re.compile(r"\de[+-]?\d")


@given(st.floats(-1e300, 1e300), st.sampled_from(sorted(BY_NAME)))
def test_no_number_has_an_exponent(value: float, metric: str) -> None:
    """However large or small: people read a number, in any unit, as a share, a ratio or a condition, written out."""
    texts = [
        BY_NAME[metric].show(value),
        BY_NAME[metric].show_interval(value, value / 3, value * 3),
        units.percent(value, "+.3g"),
        units.show_number(value, 6),
        units.show_comparison(abs(value), abs(value) / 2, abs(value), "plain decoding"),
    ]

    assert [] == [text for text in texts if EXPONENT.search(text)]


def test_a_number_that_is_nearly_nothing_is_not_nothing() -> None:
    """Below a millionth a number is smaller than that, and 0 is 0."""
    assert ["0", "0.0000123", "<0.000001", ">-0.000001"] == [
        units.show_number(value) for value in (0.0, 1.23e-5, 1e-9, -1e-9)
    ]
