"""Reading all sources of a Mac, with working and broken tools. The tools are small scripts, all else is real."""

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gatekeeper import host
from gatekeeper.core.records import HostSample, Reading
from gatekeeper.host.macos import powermetrics, sources, vm_stat
from gatekeeper.host.sampling.capabilities import value_hints
from gatekeeper.host.sampling.poller import Poller
from gatekeeper.host.sources import UNITS, DirectSource, Source, Stream, Tool, Values
from gatekeeper.host.tool_commands import Output
from tests.builders import mac_tools
from tests.builders.golden_words import lines_with, says
from tests.builders.mac_tools import prints
from tests.builders.waiting import until
from tests.host.conftest import PATIENCE, StandIn


def impatient(source: Source) -> Source:
    """Shorten the time that a source may take, for tests in which one hangs."""
    if isinstance(source, Tool):
        return replace(source, limit=1.0)
    return replace(source, silence=0.5) if isinstance(source, Stream) else source


def readings(streams: bool = True) -> dict[str, Reading]:
    with Poller(sources(lambda: [os.getpid()]), interval=1.0) as poller:
        poller.settle(streams=streams, limit=PATIENCE)
        poller.refresh(2.0)
        return poller.readings()


@pytest.mark.usefixtures("healthy_mac")
def test_a_healthy_mac_serves_every_value() -> None:
    """With all tools on PATH each value of a Mac is ok, with its source, from the right tool."""
    values = readings()

    assert {"oom_kills", "throttle_total", "throttle_events", "gpu_wired_limit"} == {
        name for name, reading in values.items() if reading.status != "ok"
    }
    assert (values["memory_headroom"].source, values["memory_headroom"].value) == ("vm_stat", 355_000.0 * 16384)
    assert (values["package_power"].source, values["package_power"].value) == ("powermetrics", 11.50075)
    assert (values["fan_speed"].source, values["fan_speed"].value) == ("macmon", 1320.0)
    assert (values["power_source"].source, values["power_source"].value) == ("pmset -g batt", "ac")
    assert all(reading.unit == UNITS[name] for name, reading in values.items())


def replayed(healthy_mac: StandIn, macmon: str | None = None, powermetrics: str | None = None) -> dict[str, Reading]:
    """Return the readings of a Mac on which one of the two streams prints this sample, and the other is missing."""
    for name, sample in (("macmon", macmon), ("powermetrics", powermetrics)):
        healthy_mac(name, f"{prints(sample)}; echo; exec sleep 600" if sample else "echo unrecognized >&2; exit 1")
    with Poller(sources(tuple), interval=1.0) as poller:
        poller.settle(streams=True, limit=PATIENCE)
        poller.refresh(0.5)
        return poller.readings()


def test_a_package_power_without_its_processor_is_absent(healthy_mac: StandIn) -> None:
    """Under load on macOS 27 the processor's counter in macmon reads 0, so all_power is the GPU alone and no package
    power; the GPU's and the whole machine's stay readings.
    """
    line = json.dumps(mac_tools.macmon("0.8", cpu=0.0, gpu=47.5, system=92.0))
    healthy_mac("ioreg", prints(mac_tools.ioreg(busy=99)))

    values = replayed(healthy_mac, macmon=line)

    absent = ("absent", None, "macmon")
    assert [absent, absent] == [
        (reading.status, reading.value, reading.source) for reading in (values["cpu_power"], values["package_power"])
    ]
    assert (47.5, 92.0, 0.99) == tuple(values[name].value for name in ("gpu_power", "system_power", "gpu_active"))


@pytest.mark.parametrize("version", ["0.5", "0.6", "0.8"])
@pytest.mark.parametrize("active", [0.0, 0.21])
def test_a_processor_at_0_watts_is_absent_whatever_the_gpu_does(
    healthy_mac: StandIn, version: str, active: float
) -> None:
    """Before 0.8 macmon shows a busy GPU as 21 % active: the processor that runs it draws power all the same."""
    line = mac_tools.macmon(version, cpu=0.0, gpu=47.5, system=92.0)
    line |= {"gpu_usage": [1296, active]} | ({"gpu_active_ratio": active} if version == "0.8" else {})

    values = replayed(healthy_mac, macmon=json.dumps(line))

    assert ["absent", "absent", "ok"] == [values[f"{name}_power"].status for name in ("cpu", "package", "system")]


def test_an_idle_gpu_at_0_watts_and_0_hertz_is_a_reading(healthy_mac: StandIn) -> None:
    """Where the GPU rests, 0 Hz and 0 W are true, and the package power is the processor's."""
    sample = mac_tools.powermetrics(cpu=10806.6, gpu=0.0, combined=10806.6, mhz=0.0, idle=1.0)

    values = replayed(healthy_mac, powermetrics=sample)

    names = ("gpu_active", "gpu_power", "gpu_frequency", "cpu_power", "package_power")
    assert [("ok", value) for value in (0.0, 0.0, 0.0, 10.8066, 10.8066)] == [
        (values[name].status, values[name].value) for name in names
    ]


def test_a_busy_gpu_at_0_watts_and_0_hertz_is_absent(healthy_mac: StandIn) -> None:
    """The same zeros at full activity are counters that do not work, and the package power lacks the GPU."""
    sample = mac_tools.powermetrics(gpu=0.0, combined=2400.5, mhz=0.0, idle=0.03)

    values = replayed(healthy_mac, powermetrics=sample)

    absent = {name for name in ("gpu_power", "gpu_frequency", "package_power") if values[name].status == "absent"}
    assert {"gpu_power", "gpu_frequency", "package_power"} == absent
    assert (0.97, 2.4005) == (values["gpu_active"].value, values["cpu_power"].value)


class Fixed(DirectSource):
    """A source with these values, whatever happens."""

    def __init__(self, name: str, **values: float) -> None:
        self.name, self.provides, self._values = name, tuple(values), values

    def read(self) -> Values:
        return dict(self._values)


def test_a_dead_counter_shows_by_the_activity_of_another_source() -> None:
    """A source of power alone reads 0 W for the GPU that ioreg reports as busy: absent, and the reason is told."""
    power = Fixed("counters", cpu_power=2.0, gpu_power=0.0, package_power=2.0)
    with Poller([power, Fixed("ioreg", gpu_active=0.9)], interval=1.0) as poller:
        poller.refresh(0.0)
        values, details = poller.readings(), poller.details()

    assert ["ok", "absent", "absent"] == [values[name].status for name in power.provides]
    says(
        "host",
        "a dead counter shows by the activity of another source (1)",
        lines_with("counters: package_power left", details["package_power"]),
    )
    (hint,) = [
        hint_line for hint_line in value_hints("macos", values, details) if hint_line.startswith("package_power: ")
    ]
    says("host", "a dead counter shows by the activity of another source (2)", hint)


@pytest.mark.parametrize(("counted", "status"), [(23.4e9, "ok"), (5.9e9, "parse_error"), (94e9, "parse_error")])
def test_pages_that_are_not_the_memory_of_the_machine_are_no_sizes(counted: float, status: str) -> None:
    """A page size wrong by a factor of four shows against the size of the memory."""
    pages = Fixed("vm_stat", **dict.fromkeys(vm_stat.PROVIDES, 1e9) | {"memory_counted": counted})
    with Poller([pages, Fixed("sysctl", memory_total=24e9, swap_used=1e9)], interval=1.0) as poller:
        poller.refresh(0.0)
        values, details = poller.readings(), poller.details()

    assert {status} == {values[name].status for name in vm_stat.PROVIDES}
    assert {"ok"} == {values[name].status for name in ("memory_total", "swap_used")}
    hints = [line for line in value_hints("macos", values, details) if line.startswith("memory_headroom")]
    assert (status != "ok") == any("Rosetta" in hint for hint in hints)
    assert (status != "ok") == ("of 24 GB of memory" in details.get("memory_headroom", ""))


BROKEN = {
    "exits 1": ("echo 'it broke' >&2; exit 1", "absent"),
    "refuses": ("echo 'Operation not permitted' >&2; exit 1", "denied"),
    "prints garbage": ("head -c 4000 /dev/zero | tr '\\0' '\\377'", "parse_error"),
    "prints NULs": ("head -c 4000 /dev/zero", "parse_error"),
    "prints nothing": ("exit 0", "parse_error"),
    "prints without end": ("exec yes", "parse_error"),
    "dies of a signal": ("kill -9 $$", "absent"),
    "speaks German": ("echo 'Statistik des virtuellen Speichers: 1.234,00'", "parse_error"),
    "is no program": ("\nexit 127", "absent"),
}


@pytest.mark.parametrize("how", list(BROKEN))
def test_one_broken_tool_spoils_only_its_own_values(healthy_mac: StandIn, how: str) -> None:
    """Whatever vm_stat does, headroom is a status and never a number, and the pressure level is ok."""
    script, status = BROKEN[how]
    healthy_mac("vm_stat", script)

    values = readings()

    assert (status, None) == (values["memory_headroom"].status, values["memory_headroom"].value)
    assert (values["memory_pressure_level"].status, values["memory_pressure_level"].value) == ("ok", 1.0)


@pytest.mark.slow
def test_a_hanging_tool_does_not_delay_the_others(healthy_mac: StandIn) -> None:
    """While vm_stat hangs the other values are fresh, headroom is stale, and nothing is left running."""
    healthy_mac("vm_stat", 'echo $$ >> "$0.pids"; exec sleep 600')
    samples: list[HostSample] = []

    with Poller(list(map(impatient, sources(lambda: [os.getpid()]))), interval=0.2) as poller:
        poller.settle(streams=False, limit=1.5)
        for _ in range(3):
            poller.refresh(0.2)
            samples.append(HostSample("", 0, poller.readings()))

    assert [sample.values["memory_headroom"].status for sample in samples] == ["stale"] * 3
    assert [sample.values["memory_pressure_level"].status for sample in samples] == ["ok"] * 3
    pids = (Path(os.environ["PATH"]) / "vm_stat.pids").read_text().split()
    assert not [pid for pid in pids if psutil.pid_exists(int(pid))]


def test_tools_run_in_the_c_locale(healthy_mac: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that would print commas to this user prints points to us."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LC_NUMERIC", "de_DE.UTF-8")
    ours, theirs = mac_tools.vm_stat(), mac_tools.vm_stat().replace(".", ",")
    in_c = f'if [ "$LC_ALL" = C ] && [ -z "$LC_NUMERIC" ]; then {prints(ours)}; else {prints(theirs)}; fi'
    healthy_mac("vm_stat", in_c)

    assert ((reading := readings()["memory_headroom"]).status, reading.value) == ("ok", 355_000.0 * 16384)


@pytest.mark.parametrize(
    "message",
    [
        "sudo: a password is required",
        "sudo: a terminal is required to read the password; either use the -S option to read from standard input",
        "user is not allowed to execute '/usr/bin/powermetrics' as root on mac.",
    ],
)
def test_a_refusal_by_sudo_is_final(healthy_mac: StandIn, monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """A refusal makes power denied, sudo is not started again, and the hint carries the sudoers line."""
    healthy_mac("macmon", "exit 1")
    monkeypatch.setenv("STAND_IN", "fails")
    healthy_mac("sudo", f'echo x >> "$0.calls"; echo {shlex.quote(message)} >&2; exit 1')

    with Poller(sources(tuple), interval=1.0) as poller:
        until(lambda: poller.readings()["package_power"].status == "denied")
        for _ in range(3):
            poller.refresh(0.1)
        values = poller.readings()
    missing = host.survey("macos")[1]

    assert {"denied"} == {values[name].status for name in ("package_power", "gpu_power", "thermal_level")}
    assert powermetrics.sudoers_line() in missing["power_mean"]
    calls = (Path(os.environ["PATH"]) / "sudo.calls").read_text().split()
    assert len(calls) == 2  # one poller each


def test_an_unknown_sampler_is_absence(healthy_mac: StandIn) -> None:
    """Its error may be on either stream; the values are absent, and no permission would help."""
    healthy_mac("macmon", "exit 1")
    healthy_mac("powermetrics", "echo 'powermetrics: unrecognized sampler: gpu_power'; exit 64")

    with Poller(sources(tuple), interval=1.0) as poller:
        until(lambda: poller.readings()["package_power"].status == "absent")

        assert "unrecognized sampler" in poller.details()["powermetrics"]
    hint = host.survey("macos")[1]["power_mean"]
    assert ("macmon" in hint, "visudo" in hint) == (True, False)


@pytest.mark.slow
def test_a_stream_that_dies_goes_stale_and_comes_back(healthy_mac: StandIn) -> None:
    """The last power of a powermetrics that died goes stale, and it is restarted."""
    healthy_mac("macmon", "exit 1")
    first, second = mac_tools.powermetrics(combined=1000.0), mac_tools.powermetrics(combined=2000.0)
    healthy_mac(
        "powermetrics",
        f'if [ -e "$0.died" ]; then {prints(second)}; exec sleep 600; fi\n{prints(first)}; touch "$0.died"; exit 139',
    )

    with Poller(sources(tuple), interval=1.0) as poller:
        until(lambda: poller.readings()["package_power"].value == 1.0)
        until(lambda: "exited with code 139" in poller.details().get("powermetrics", ""))
        until(lambda: poller.readings()["package_power"].value == 2.0)
        until(lambda: poller.readings()["package_power"].status == "stale")

        assert poller.readings()["package_power"].value is None


def test_a_silent_stream_is_started_again(healthy_mac: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A powermetrics that prints no reading is restarted."""
    monkeypatch.setattr("gatekeeper.host.sampling.poller.RETRY_PAUSES", (0.1,))
    healthy_mac("powermetrics", f'echo x >> "$0.calls"; {prints(mac_tools.powermetrics()[:700])}; exec sleep 600')
    calls = Path(os.environ["PATH"]) / "powermetrics.calls"

    with Poller(list(map(impatient, sources(tuple))), interval=1.0) as poller:
        until(lambda: calls.exists() and len(calls.read_text().split()) == 2)

        assert "no reading for" in poller.details()["powermetrics"]
        assert poller.readings()["cpu_power"].source == "macmon"


def test_a_stream_of_garbage_is_a_parse_error(healthy_mac: StandIn) -> None:
    """Lines that are not JSON yield no number, and good lines after them do."""
    healthy_mac("sudo", "echo 'sudo: a password is required'; exit 1")
    good = prints(json.dumps(mac_tools.macmon("0.8")))
    healthy_mac("macmon", f"printf '\\377\\000{{\\n'; read -r _ < \"$0.go\"; {good}; echo; exec sleep 600")
    go = Path(os.environ["PATH"]) / "macmon.go"
    os.mkfifo(go)

    with Poller(sources(tuple), interval=1.0) as poller:
        until(lambda: poller.readings()["system_power"].status == "parse_error")
        go.write_text("go\n")
        until(lambda: poller.readings()["system_power"].value == 19.75)


def test_leaving_ends_every_process(healthy_mac: StandIn) -> None:
    """Closing the poller ends streams and running tools, without waiting for the tools' time limits."""
    for name in ("powermetrics", "macmon", "vm_stat"):
        healthy_mac(name, 'echo $$ >> "$0.pids"; exec sleep 600')
    folder = Path(os.environ["PATH"])
    files = [folder / f"{name}.pids" for name in ("powermetrics", "macmon", "vm_stat")]

    patient = [replace(source, limit=600.0) if isinstance(source, Tool) else source for source in sources(tuple)]
    with Poller(patient, interval=1.0) as poller:
        poller.refresh(0.0)
        until(lambda: all(file.exists() and file.read_text().endswith("\n") for file in files))

    pids = [pid for file in files for pid in file.read_text().split()]
    assert not [pid for pid in pids if psutil.pid_exists(int(pid))]


def test_a_parser_with_a_bug_is_an_error(stand_in: StandIn) -> None:
    """An exception that no parser should raise reaches the caller; it is not a missing value."""
    stand_in("odd", "exit 0")

    def parse(_: Output) -> Values:
        raise ZeroDivisionError("bug")

    with Poller([Tool("odd", ("swap_used",), lambda: ["odd"], parse)], interval=1.0) as poller:
        poller.refresh(PATIENCE)

        with pytest.raises(ZeroDivisionError, match="bug"):
            poller.refresh(PATIENCE)
