"""The facts of a host, and keeping it awake."""

import json
import os

import psutil
import pytest

from gatekeeper import host
from gatekeeper.core.system.system_names import this_platform
from tests.builders import mac_tools
from tests.builders.waiting import until
from tests.host.conftest import StandIn


@pytest.mark.usefixtures("healthy_mac")
def test_conditions_of_a_mac_name_the_machine_and_not_its_owner() -> None:
    """Chip, memory, system, power and jobs are recorded; keys that could hold a serial number are never read."""
    facts = host.facts("macos")

    expected = {
        "platform": "macos",
        "chip": "Apple M4",
        "machine": "Mac16,10",
        "cores": 10,
        "memory_bytes": 25769803776,
        "os": "26.1",
        "os_build": "25B70",
        "kernel": "25.1.0",
        "virtual": False,
        "translated": False,
        "gpu_wired_limit": None,
        "power_source": "ac",
        "power_mode": "automatic",
        "display": None,
        "booted_at": "2026-09-21T14:13:20Z",
        "heavy_processes": {"mdworker_shared": 0.25},
        "load_average": [1.1, 2.2, 3.3],
        "replayed": True,
    }
    assert expected == {key: value for key, value in facts.items() if key != "uptime_s"}
    assert json.loads(json.dumps(facts)) == facts


def test_a_virtual_mac_is_recognised(healthy_mac: StandIn) -> None:
    """It is recognised by its model name and by the hypervisor's key."""
    healthy_mac("sysctl", mac_tools.sysctl_script(hw__model="VirtualMac2,1", kern__hv_vmm_present=None))

    assert host.facts("macos")["virtual"] is True


def test_conditions_without_tools_are_unknown(stand_in: StandIn) -> None:
    """Without tools every fact is None."""
    stand_in("nothing", "exit 0")

    facts = host.facts("macos")

    assert {key: value for key, value in facts.items() if value is not None} == {"platform": "macos", "replayed": True}


def test_caffeinate_is_held_for_this_process(stand_in: StandIn) -> None:
    """During a run caffeinate watches our process id and ends with the run. On Linux nothing is started."""
    log = stand_in("caffeinate", 'echo "$$ $*" > "$0.log"; exec sleep 600').with_name("caffeinate.log")

    with host.keep_awake("linux"):
        assert not log.exists()
    with host.keep_awake("macos"):
        until(lambda: log.exists() and log.read_text().endswith("\n"))
        pid, *arguments = log.read_text().split()
        assert psutil.pid_exists(int(pid))

    assert ["-i", "-m", "-s", "-w", str(os.getpid())] == arguments
    assert not psutil.pid_exists(int(pid))


@pytest.mark.skipif(this_platform() != "linux", reason="facts of the running kernel")
def test_conditions_of_this_host_are_known() -> None:
    """Platform, memory, kernel and boot time are known on any Linux."""
    facts = host.facts()

    assert facts["platform"] == "linux"
    assert all(facts[key] is not None for key in ("memory_bytes", "kernel", "booted_at", "uptime_s", "cores"))
