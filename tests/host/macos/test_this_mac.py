"""The sources of the Mac that runs this test: no stand-in, no capture."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gatekeeper import host
from gatekeeper.core.system.system_names import is_real_mac
from gatekeeper.host.sampling import raw_readings
from tests.builders import mac_tools

pytestmark = pytest.mark.skipif(not is_real_mac(), reason="it reads the tools of a real Mac")

GIB = float(1 << 30)
RANGES: dict[str, tuple[float, float]] = {
    "memory_total": (4 * GIB, 2048 * GIB),
    "memory_headroom": (64e6, 2048 * GIB),
    "memory_wired": (64e6, 2048 * GIB),
    "memory_compressed": (0.0, 2048 * GIB),
    "memory_uncompressed_demand": (256e6, 8192 * GIB),
    "memory_pressure_level": (1.0, 4.0),
    "memory_counted": (2 * GIB, 2048 * GIB),
    "swap_used": (0.0, 2048 * GIB),
    "swapin_bytes": (0.0, 1e15),
    "swapout_bytes": (0.0, 1e15),
    "thermal_level": (0.0, 4.0),
    "subject_footprint": (10e6, 8 * GIB),
    "background_cpu": (0.0, 1024.0),
}
"""What a value may be on any Mac, in its base unit: those that need neither root nor a further program."""


@pytest.fixture(scope="module", autouse=True)
def own_tools() -> Iterator[None]:
    """Leave the Mac that all other tests describe out of PATH."""
    folders = os.environ["PATH"].split(os.pathsep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join(folder for folder in folders if Path(folder).name != mac_tools.MINI))
        yield


@pytest.fixture(scope="module")
def readings(own_tools: None) -> list[dict[str, Any]]:
    del own_tools
    return raw_readings.raw_readings()


@pytest.mark.parametrize("name", sorted(RANGES))
def test_every_source_without_root_gives_a_plausible_value(readings: list[dict[str, Any]], name: str) -> None:
    """Each value that a stock Mac has is read, by every source that offers it and runs, and lies where it can."""
    values = [reading["values"][name] for reading in readings if name in reading["values"]]

    low, high = RANGES[name]
    assert values, [reading for reading in readings if name in reading["missing"]]
    assert [] == [value for value in values if not low <= value <= high]


def test_no_parser_meets_an_unknown_output(readings: list[dict[str, Any]]) -> None:
    """Whatever this version of macOS prints is read, or the value is absent or denied."""
    assert {} == {
        reading["source"]: (reading["missing"], reading.get("out"))
        for reading in readings
        if "parse_error" in reading["missing"].values()
    }


def test_sizes_fit_together(readings: list[dict[str, Any]]) -> None:
    """Headroom and wired memory are parts of the machine's memory; swap-ins are counted since it was started."""
    values: dict[str, float] = {}
    for reading in reversed(readings):
        values |= reading["values"]

    assert values["memory_headroom"] + values["memory_wired"] < values["memory_total"]
    assert values["memory_total"] == host.facts()["memory_bytes"]


def test_the_calls_answer_and_agree_with_vm_stat(readings: list[dict[str, Any]]) -> None:
    """What a system call and vm_stat both give is the same, but for what changed between the two."""
    values_by_name: dict[str, list[float]] = {}
    for reading in readings:
        for name, value in reading["values"].items():
            values_by_name.setdefault(name, []).append(value)
    calls = {reading["source"] for reading in readings if reading["values"] and "argv" not in reading}

    assert {"host_statistics64", "sysctlbyname", "notify_get_state", "proc_pid_rusage"} <= calls
    for name in ("memory_headroom", "memory_wired", "memory_uncompressed_demand", "swapin_bytes", "swapout_bytes"):
        assert values_by_name[name][1] == pytest.approx(values_by_name[name][0], rel=0.2, abs=512e6), name


def test_the_facts_of_the_machine_are_known() -> None:
    """Chip, model, version and build, whether it is virtual, what it runs on: all that a report compares."""
    facts = host.facts()

    assert facts["platform"] == "macos"
    assert (facts["chip"] or "").startswith("Apple")
    assert [] == [
        name
        for name in ("machine", "os", "os_build", "virtual", "power_source", "booted_at")
        if not facts[name] and facts[name] is not False
    ]
    assert os.cpu_count() == facts["cores"]
