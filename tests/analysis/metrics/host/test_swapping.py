"""Swapping that means pressure, and swapping that a healthy machine does."""

from typing import Any

import pytest

from gatekeeper.analysis.metrics.host.host_findings import findings
from gatekeeper.analysis.metrics.host.host_series import HostSamples
from tests.analysis.metrics.host.test_host_estimates import center, judged, soak

PAGES = 39_686 * 16_384
"""Written in one burst by an M5 Pro with 28 GB reclaimable."""


def burst(second: int) -> float:
    return PAGES if second >= 300 else 0.0


def swapped(**courses: Any) -> float:
    readings = {"memory_total": 48e9, "memory_headroom": 28e9, "memory_pressure_level": 1.0, **courses}
    return center(judged(soak(swapout_bytes=burst, **readings))["swapout_bytes"])


def test_cold_pages_of_idle_programs_are_no_sign_of_short_memory() -> None:
    """650 MB written at pressure level 1 with 28 of 48 GB to be had: 0 B, and no finding."""
    samples = soak(swapout_bytes=burst, memory_total=48e9, memory_headroom=28e9, memory_pressure_level=1.0)

    reported = findings(HostSamples(samples, interval=1.0), level=0.95)

    assert 0.0 == swapped()
    assert "swapped_out" not in {finding.kind for finding in reported}


@pytest.mark.parametrize(
    "courses",
    [
        {"memory_pressure_level": lambda second: 2.0 if second == 300 else 1.0},
        {"memory_headroom": lambda second: 5e9 if second == 299 else 28e9},
        {"memory_pressure_level": None},
        {"memory_headroom": None},
        {"memory_total": None},
    ],
)
def test_swapping_under_pressure_counts_and_so_does_what_nobody_can_tell(courses: dict[str, Any]) -> None:
    """A warning, little memory, or a reading that is missing at either end of the rise: every byte counts."""
    assert PAGES == swapped(**courses)
