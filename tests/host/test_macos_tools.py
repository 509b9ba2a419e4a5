"""The tools of a Mac on PATH, well and unwell: stand-ins are small scripts, everything else is real."""

import json
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gatekeeper import host
from gatekeeper.core.clock import VirtualClock
from gatekeeper.core.records import HostSample, Reading
from gatekeeper.host.macos import notifyutil, powermetrics, sources
from gatekeeper.host.poller import Poller
from gatekeeper.host.sources import UNITS, Stream
from gatekeeper.report import host_table
from tests.builders import mac_tools
from tests.host.conftest import StandIn

PATIENCE = 20.0
"""Seconds after which something that must happen has not: far more than any of it takes."""


def prints(text: str) -> str:
    return f"printf %s {shlex.quote(text)}"


def whole_mac(stand_in: StandIn) -> None:
    """Put every tool of a healthy Mac on PATH."""
    stand_in("vm_stat", prints(mac_tools.vm_stat()))
    stand_in("sysctl", mac_tools.sysctl_script())
    stand_in("notifyutil", f"echo {notifyutil.KEY} 0")
    stand_in("ioreg", prints(mac_tools.ioreg()))
    stand_in(
        "pmset",
        "case \"$*\" in '-g batt') echo \"Now drawing from 'AC Power'\";; '-g') echo ' powermode 0';; "
        "*) echo 'Note: No CPU power status has been recorded';; esac",
    )
    share = "System-wide memory free percentage: 80%"
    stand_in(
        "memory_pressure",
        f"echo 'The system has 25769803776 (1572864 pages with a page size of 16384).'; echo '{share}'",
    )
    stand_in("ps", "echo ' 25.0 /usr/libexec/mdworker_shared'")
    line = "x [$2]: 64-bit    Footprint: 1000 B (16384 bytes per page)"
    stand_in("footprint", f'while [ $# -gt 1 ]; do [ "$1" = -p ] && echo "{line}"; shift; done')
    stand_in("sudo", 'shift; exec "$@"')
    stream(stand_in, "powermetrics", mac_tools.powermetrics(), separator="\\0")
    stream(stand_in, "macmon", json.dumps(mac_tools.macmon("0.8")), separator="\\n")


def stream(stand_in: StandIn, name: str, item: str, *, separator: str, times: str = "", after: str = "") -> None:
    """Put a tool on PATH that prints *item* again and again; `times` bounds it, `after` is what it does then."""
    count = "seq " + times if times else "yes"
    stand_in(name, f"{count} | while read -r _; do {prints(item)}; printf '{separator}'; sleep 0.05; done\n{after}")


def readings(streams: bool = True) -> dict[str, Reading]:
    with Poller(sources(lambda: [os.getpid()]), interval=1.0) as poller:
        poller.settle(streams=streams, limit=PATIENCE)
        poller.refresh(2.0)
        return poller.readings()


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def test_a_healthy_mac_serves_every_value(stand_in: StandIn) -> None:
    """
    With all tools on PATH each value of a Mac is ok, with its source, from the right tool.
    """
    whole_mac(stand_in)

    found = readings()

    assert {"oom_kills", "throttle_total", "throttle_events", "gpu_wired_limit", "cpu_speed_limit"} == {
        name for name, reading in found.items() if reading.status != "ok"
    }
    assert (found["memory_headroom"].source, found["memory_headroom"].value) == ("vm_stat", 355_000.0 * 16384)
    assert (found["package_power"].source, found["package_power"].value) == ("powermetrics", 11.50075)
    assert (found["fan_speed"].source, found["fan_speed"].value) == ("macmon", 1320.0)
    assert (found["power_source"].source, found["power_source"].value) == ("pmset -g batt", "ac")
    assert all(reading.unit == UNITS[name] for name, reading in found.items())


def test_no_tool_at_all_is_absence_everywhere(stand_in: StandIn) -> None:
    """
    Without any tool of a Mac every value is absent and none is a number.
    """
    stand_in("nothing", "exit 0")

    found = readings()

    assert {("absent", None)} == {(reading.status, reading.value) for reading in found.values()}


BROKEN = {
    "exits 1": ("echo 'it broke' >&2; exit 1", "absent"),
    "refuses": ("echo 'Operation not permitted' >&2; exit 1", "denied"),
    "prints garbage": ("head -c 4000 /dev/zero | tr '\\0' '\\377'", "parse_error"),
    "prints NULs": ("head -c 4000 /dev/zero", "parse_error"),
    "prints nothing": ("exit 0", "parse_error"),
    "dies of a signal": ("kill -9 $$", "absent"),
    "speaks German": ("echo 'Statistik des virtuellen Speichers: 1.234,00'", "parse_error"),
    "is no program": ("\nexit 127", "absent"),
}


@pytest.mark.parametrize("how", list(BROKEN))
def test_one_broken_tool_spoils_only_its_own_values(stand_in: StandIn, how: str) -> None:
    """
    Whatever vm_stat does, headroom is a status and never a number, and sysctl's values stand beside it.
    """
    whole_mac(stand_in)
    script, status = BROKEN[how]
    stand_in("vm_stat", script)

    found = readings()

    assert (status, None) == (found["memory_headroom"].status, found["memory_headroom"].value)
    assert (found["memory_pressure_level"].status, found["memory_pressure_level"].value) == ("ok", 1.0)


def test_a_hanging_tool_does_not_delay_the_others(stand_in: StandIn) -> None:
    """
    While vm_stat hangs the other values are fresh in every sample; headroom is stale, and nothing is left running.
    """
    whole_mac(stand_in)
    stand_in("vm_stat", 'echo $$ >> "$0.pids"; exec sleep 600')
    samples: list[HostSample] = []

    with Poller(sources(lambda: [os.getpid()]), interval=0.2) as poller:
        poller.settle(streams=False, limit=1.5)
        for _ in range(3):
            poller.refresh(0.2)
            samples.append(HostSample("", 0, poller.readings()))

    assert [sample.values["memory_headroom"].status for sample in samples] == ["stale"] * 3
    assert [sample.values["memory_pressure_level"].status for sample in samples] == ["ok"] * 3
    pids = (Path(os.environ["PATH"]) / "vm_stat.pids").read_text().split()
    assert not [pid for pid in pids if psutil.pid_exists(int(pid))]


def test_a_tool_slower_than_its_sample_serves_the_next(stand_in: StandIn) -> None:
    """
    A late answer is used by the sample after it, with its age.
    """
    whole_mac(stand_in)
    stand_in("vm_stat", f"sleep 0.4; {prints(mac_tools.vm_stat())}")

    with Poller(sources(tuple), interval=1.0) as poller:
        poller.refresh(0.05)
        first = poller.readings()["memory_headroom"]
        until(lambda: poller.readings()["memory_headroom"].status == "ok")
        second = poller.readings()["memory_headroom"]

    assert (first.status, first.value) == ("stale", None)
    assert second.age is not None


def test_virtual_minutes_do_not_run_real_tools_each_second(stand_in: StandIn) -> None:
    """
    Ten virtual minutes give six hundred samples from the few runs that their real time allows.
    """
    whole_mac(stand_in)
    stand_in("vm_stat", f'echo x >> "$0.calls"; {prints(mac_tools.vm_stat())}')
    clock, seen = VirtualClock(), list[HostSample]()

    with host.Sampler("macos", clock=clock, pids=tuple, record=seen.append):
        clock.sleep(600)

    calls = (Path(os.environ["PATH"]) / "vm_stat.calls").read_text().split()
    assert {"ok"} == {sample.values["memory_headroom"].status for sample in seen}
    assert len(seen) == 601
    assert len(calls) < 100


def test_tools_are_asked_in_the_c_locale(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A tool that would print a decimal comma to this user prints a point to us.
    """
    whole_mac(stand_in)
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LC_NUMERIC", "de_DE.UTF-8")
    comma, point = mac_tools.swapusage(point=","), mac_tools.swapusage()
    script = mac_tools.sysctl_script(vm__swapusage="SWAP").replace(
        "echo 'SWAP'", f'if [ "$LC_ALL" = C ] && [ -z "$LC_NUMERIC" ]; then echo "{point}"; else echo "{comma}"; fi'
    )
    stand_in("sysctl", script)

    assert ((found := readings()["swap_used"]).status, found.value) == ("ok", 1536.5 * 2**20)


@pytest.mark.parametrize(
    "said",
    [
        "sudo: a password is required",
        "sudo: a terminal is required to read the password; either use the -S option to read from standard input",
        "user is not allowed to execute '/usr/bin/powermetrics' as root on mac.",
    ],
)
def test_sudo_that_says_no_is_denial_and_is_asked_once(stand_in: StandIn, said: str) -> None:
    """
    A refusal makes power denied, is not repeated, and the hint carries the sudoers line.
    """
    whole_mac(stand_in)
    for name in ("macmon", "notifyutil"):
        stand_in(name, "exit 1")
    stand_in("sudo", f'echo x >> "$0.calls"; echo {shlex.quote(said)} >&2; exit 1')

    with Poller(sources(tuple), interval=1.0) as poller:
        until(lambda: poller.readings()["package_power"].status == "denied")
        for _ in range(3):
            poller.refresh(0.1)
        found = poller.readings()
    lacks = host.unavailable_metrics("macos")

    assert {"denied"} == {found[name].status for name in ("package_power", "gpu_power", "thermal_level")}
    assert powermetrics.sudoers_line() in lacks["power_mean"]
    calls = (Path(os.environ["PATH"]) / "sudo.calls").read_text().split()
    assert len(calls) == 2  # one poller each


def test_an_unknown_sampler_is_absence(stand_in: StandIn) -> None:
    """
    A system that lacks a sampler says so on either stream and lacks the values.
    """
    whole_mac(stand_in)
    stand_in("macmon", "exit 1")
    stand_in("powermetrics", "echo 'powermetrics: unrecognized sampler: gpu_power'; exit 64")

    with Poller(sources(tuple), interval=1.0) as poller:
        until(lambda: poller.readings()["package_power"].status == "absent")

        assert "unrecognized sampler" in poller.details()["powermetrics"]


def test_a_stream_that_dies_goes_stale_and_comes_back(stand_in: StandIn) -> None:
    """
    A powermetrics that dies in the middle leaves no old power standing, and is started again.
    """
    whole_mac(stand_in)
    stand_in("macmon", "exit 1")
    first, second = mac_tools.powermetrics(combined=1000.0), mac_tools.powermetrics(combined=2000.0)
    stand_in(
        "powermetrics",
        f'if [ -e "$0.died" ]; then {prints(second)}; exec sleep 600; fi\n{prints(first)}; touch "$0.died"; exit 139',
    )

    with Poller(sources(tuple), interval=1.0) as poller:
        until(lambda: poller.readings()["package_power"].value == 1.0)
        until(lambda: "ended with code 139" in poller.details().get("powermetrics", ""))
        until(lambda: poller.readings()["package_power"].value == 2.0)
        until(lambda: poller.readings()["package_power"].status == "stale")

        assert poller.readings()["package_power"].value is None


def test_a_stream_that_stops_speaking_is_started_again(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A hung powermetrics is noticed by its silence.
    """
    whole_mac(stand_in)
    monkeypatch.setattr("gatekeeper.host.poller.RETRY_PAUSES", (0.1,))
    stand_in("powermetrics", f'echo x >> "$0.calls"; {prints(mac_tools.powermetrics()[:700])}; exec sleep 600')
    calls = Path(os.environ["PATH"]) / "powermetrics.calls"

    impatient = [replace(one, silence=0.5) if isinstance(one, Stream) else one for one in sources(tuple)]

    with Poller(impatient, interval=1.0) as poller:
        until(lambda: calls.exists() and len(calls.read_text().split()) == 2)

        assert "silent" in poller.details()["powermetrics"]
        assert poller.readings()["cpu_power"].source == "macmon"


def test_a_stream_of_garbage_is_a_parse_error(stand_in: StandIn) -> None:
    """
    Lines that are not JSON yield no number, and good lines after them do.
    """
    whole_mac(stand_in)
    stand_in("sudo", "echo 'sudo: a password is required'; exit 1")
    good = prints(json.dumps(mac_tools.macmon("0.8")))
    stand_in("macmon", f"printf '\\377\\000{{\\n'; read -r _ < \"$0.go\"; {good}; echo; exec sleep 600")
    go = Path(os.environ["PATH"]) / "macmon.go"
    os.mkfifo(go)

    with Poller(sources(tuple), interval=1.0) as poller:
        until(lambda: poller.readings()["system_power"].status == "parse_error")
        go.write_text("go\n")
        until(lambda: poller.readings()["system_power"].value == 19.75)


def test_leaving_ends_every_process(stand_in: StandIn) -> None:
    """
    Streams and tools under way are gone when the poller is closed.
    """
    whole_mac(stand_in)
    for name in ("powermetrics", "macmon", "vm_stat"):
        stand_in(name, 'echo $$ >> "$0.pids"; exec sleep 600')
    folder = Path(os.environ["PATH"])
    files = [folder / f"{name}.pids" for name in ("powermetrics", "macmon", "vm_stat")]

    with Poller(sources(tuple), interval=1.0) as poller:
        poller.refresh(0.0)
        until(lambda: all(file.exists() and file.read_text().endswith("\n") for file in files))

    pids = [pid for file in files for pid in file.read_text().split()]
    assert not [pid for pid in pids if psutil.pid_exists(int(pid))]


def test_conditions_of_a_mac_name_the_machine_and_nobody(stand_in: StandIn) -> None:
    """
    Chip, memory, system, power and jobs are recorded; keys that could hold a serial number are never asked for.
    """
    whole_mac(stand_in)

    facts = host.conditions("macos")

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
        "booted_at": "2026-09-21T14:13:20Z",
        "heavy_processes": {"mdworker_shared": 0.25},
        "load_average": [1.1, 2.2, 3.3],
    }
    assert expected == {key: value for key, value in facts.items() if key != "uptime_s"}
    assert json.loads(json.dumps(facts)) == facts


def test_a_virtual_mac_is_told(stand_in: StandIn) -> None:
    """
    Its model name gives it away, and so does the hypervisor's key.
    """
    whole_mac(stand_in)
    stand_in("sysctl", mac_tools.sysctl_script(hw__model="VirtualMac2,1", kern__hv_vmm_present=None))

    assert host.conditions("macos")["virtual"] is True


def test_conditions_without_tools_are_unknown(stand_in: StandIn) -> None:
    """
    Nothing to ask leaves every fact None.
    """
    stand_in("nothing", "exit 0")

    facts = host.conditions("macos")

    assert {key: value for key, value in facts.items() if value is not None} == {"platform": "macos"}


def test_watch_writes_one_object_a_sample(stand_in: StandIn) -> None:
    """
    NDJSON: `at` and every value with value, unit, source, status and age; missing ones are null.
    """
    whole_mac(stand_in)
    stand_in("ioreg", "exit 1")
    lines: list[str] = []

    host.watch(2, 0.05, "macos", True, lines.append, lambda _: None, host_table.table)

    first, second = (json.loads(line) for line in lines)
    assert sorted(first) == ["at", "values"]
    assert set(UNITS) == set(second["values"])
    assert {"value", "unit", "source", "status", "age"} == set(first["values"]["memory_headroom"])
    assert (first["values"]["gpu_memory"]["value"], first["values"]["gpu_memory"]["status"]) == (None, "absent")


def test_watch_without_tools_hints_at_what_to_install(stand_in: StandIn) -> None:
    """
    A bare host gets a table without a number, and advice: macmon and the sudoers line.
    """
    stand_in("nothing", "exit 0")
    lines: list[str] = []
    hints: list[str] = []

    host.watch(1, 1.0, "macos", False, lines.append, hints.append, host_table.table)

    assert any("brew install macmon" in hint and powermetrics.sudoers_line() in hint for hint in hints)
    rows = lines[0].splitlines()[1:-1]
    assert {"absent"} == {next(word for word in row.split() if word in ("absent", "ok")) for row in rows}


def test_every_value_says_what_it_is_used_for() -> None:
    """
    The table explains every value a sample holds.
    """
    assert list(UNITS) == list(host_table.USES)


def test_caffeinate_is_held_for_this_process(stand_in: StandIn) -> None:
    """
    While a run lasts caffeinate watches our process id; afterwards it is gone. Elsewhere nothing is started.
    """
    log = stand_in("caffeinate", 'echo "$$ $*" > "$0.log"; exec sleep 600').with_name("caffeinate.log")

    with host.keep_awake("linux"):
        assert not log.exists()
    with host.keep_awake("macos"):
        until(lambda: log.exists() and log.read_text().endswith("\n"))
        pid, *arguments = log.read_text().split()
        assert psutil.pid_exists(int(pid))

    assert ["-i", "-m", "-s", "-w", str(os.getpid())] == arguments
    assert not psutil.pid_exists(int(pid))


@pytest.mark.parametrize(
    ("reading", "shown"),
    [
        (Reading(None, "B", "vm_stat", "stale"), "-"),
        (Reading(0.0, "B", "vm_stat", "ok"), "0 B"),
        (Reading(1.38e9, "Hz", "powermetrics", "ok"), "1380 MHz"),
        (Reading("ac", "", "pmset -g batt", "ok"), "ac"),
        (Reading(2.0, "1", "sysctl", "ok"), "2"),
    ],
)
def test_a_missing_value_is_shown_as_a_dash(reading: Reading, shown: str) -> None:
    """
    And a zero as a zero.
    """
    assert shown == host_table.figure(reading)


def test_the_table_says_what_went_wrong() -> None:
    """
    A row with a missing value shows the source's complaint instead of the use.
    """
    values = {
        "memory_headroom": Reading(None, "B", "vm_stat", "absent"),
        "swap_used": Reading(5e9, "B", "sysctl", "ok"),
    }

    lines = host_table.table(HostSample("2026-11-20T09:12:00Z", 0, values), {"vm_stat": "vm_stat: not found on PATH"})

    assert "vm_stat: not found on PATH" in lines.splitlines()[1]
    assert "5 GB" in lines.splitlines()[2]
    assert host_table.USES["swap_used"] in lines.splitlines()[2]
