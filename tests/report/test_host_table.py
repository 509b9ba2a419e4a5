"""The table of `gatekeeper doctor --samples`."""

import pytest

from gatekeeper.core.records import HostSample, Reading
from gatekeeper.host.sources import UNITS
from gatekeeper.report import host_table
from tests.builders.golden_words import says


def test_every_value_says_what_it_is_used_for() -> None:
    """The table explains every value a sample holds."""
    assert list(UNITS) == list(host_table.USES)


@pytest.mark.parametrize(
    ("reading", "text"),
    [
        (Reading(None, "B", "vm_stat", "stale"), "-"),
        (Reading(0.0, "B", "vm_stat", "ok"), "0 B"),
        (Reading(1.38e9, "Hz", "powermetrics", "ok"), "1380 MHz"),
        (Reading("ac", "", "pmset -g batt", "ok"), "ac"),
        (Reading(2.0, "1", "sysctl", "ok"), "2"),
    ],
)
def test_a_missing_value_is_shown_as_a_dash(reading: Reading, text: str) -> None:
    """And a zero as a zero."""
    assert text == host_table.figure(reading)


def test_the_table_says_what_went_wrong() -> None:
    """A row with a missing value shows the source's complaint instead of the use."""
    values = {
        "memory_headroom": Reading(None, "B", "vm_stat", "absent"),
        "swap_used": Reading(5e9, "B", "sysctl", "ok"),
    }

    lines = host_table.table(HostSample("2026-11-20T09:12:00Z", 0, values), {"vm_stat": "vm_stat: not found on PATH"})

    says("reports", "the table says what went wrong", lines.splitlines()[1])
    assert "5 GB" in lines.splitlines()[2]
    assert host_table.USES["swap_used"] in lines.splitlines()[2]
