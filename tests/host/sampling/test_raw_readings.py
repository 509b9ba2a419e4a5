"""What each source printed, and what was made of it."""

from typing import Any

import pytest

from gatekeeper.core.system.environment_variables import GATEKEEPER_HOST_AS
from gatekeeper.host.sampling import raw_readings
from tests.builders import mac_tools
from tests.host.conftest import PATIENCE, StandIn


@pytest.fixture
def as_mac(healthy_mac: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the stand-ins for this host's tools; its streams end after one sample, so that no test waits for more."""
    monkeypatch.setenv(GATEKEEPER_HOST_AS, "macos")
    monkeypatch.setattr(raw_readings, "STREAM_S", PATIENCE)
    healthy_mac("powermetrics", mac_tools.prints(mac_tools.powermetrics()))
    healthy_mac("macmon", mac_tools.prints(mac_tools.macmon_line("0.8").decode()))


def by_source() -> dict[str, list[dict[str, Any]]]:
    readings: dict[str, list[dict[str, Any]]] = {}
    for reading in raw_readings.raw_readings():
        readings.setdefault(reading["source"], []).append(reading)
    return readings


@pytest.mark.usefixtures("as_mac")
def test_every_tool_of_a_mac_is_shown_with_what_its_parser_made_of_it() -> None:
    """Text, exit code and command line of each tool and stream, its values, and the facts of the manifest."""
    readings = by_source()

    assert {
        "vm_stat",
        "sysctlbyname",
        "notify_get_state",
        "powermetrics",
        "ioreg",
        "macmon",
        "ps",
        "facts",
    } <= readings.keys()
    (vm_stat,), (facts,), (powermetrics,) = (readings[name] for name in ("vm_stat", "facts", "powermetrics"))
    assert vm_stat["out"] == mac_tools.vm_stat()
    assert (["vm_stat"], 0, {}) == (vm_stat["argv"], vm_stat["code"], vm_stat["missing"])
    assert vm_stat["values"]["swapin_bytes"] == 321 * 16384
    assert facts["values"]["machdep.cpu.brand_string"] == "Apple M4"
    assert "</plist>" in powermetrics["out"]
    assert powermetrics["values"]["gpu_power"] == pytest.approx(9.10025)


@pytest.mark.usefixtures("as_mac")
def test_a_tool_that_is_missing_fails_or_prints_anything_is_a_reading_too(healthy_mac: StandIn) -> None:
    """Its values are missing with their status, its text is kept, and the other tools are read."""
    healthy_mac("vm_stat", "echo what is this")
    healthy_mac("pmset", "echo no >&2; exit 3")
    healthy_mac("ioreg", "exec sleep 60").unlink()

    readings = by_source()

    assert {"parse_error"} == {*readings["vm_stat"][0]["missing"].values()}
    assert readings["vm_stat"][0]["out"] == "what is this\n"
    (pmset,) = readings["pmset -g"]
    assert ({"power_mode": "absent"}, "no\n") == (pmset["missing"], pmset["err"])
    assert {"absent"} == {*readings["ioreg"][0]["missing"].values()}
    assert readings["ps"][0]["values"]


@pytest.mark.usefixtures("as_mac")
def test_what_the_user_runs_is_not_shown(healthy_mac: StandIn) -> None:
    """Of ps, only programs of the system are kept; how many others there are is said."""
    healthy_mac(
        "ps", "echo ' 1.0 /System/Library/mds'; echo '50.0 /Applications/Diary.app/Contents/MacOS/Diary'; echo '0.1 x'"
    )

    (ps,) = by_source()["ps"]

    assert "mds" in ps["out"]
    assert "Diary" not in ps["out"]
    assert "(2 further" in ps["out"]
