"""The system calls of a Mac, against a library that has their real layouts; the compiler checks those."""

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from gatekeeper.core.clock import SystemClock
from gatekeeper.core.records import HostSample
from gatekeeper.core.system.environment_variables import GATEKEEPER_HOST_AS
from gatekeeper.core.system.system_names import is_real_mac
from gatekeeper.host import Sampler, macos
from gatekeeper.host.macos import facts, sysctl, system_calls, vm_stat
from gatekeeper.host.macos.footprint import ProcPidRusage
from gatekeeper.host.other_programs import held_by
from gatekeeper.host.sampling.poller import Poller
from gatekeeper.host.sources import Status, Stream, Tool
from gatekeeper.host.tool_commands import Output
from tests.builders import mac_tools
from tests.builders.waiting import until
from tests.host.conftest import PATIENCE, StandIn

TOOLS = ("vm_stat", "sysctl", "notifyutil", "footprint")
"""The tools whose values the calls give."""


@pytest.fixture(scope="module")
def library_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = mac_tools.build_library(tmp_path_factory.mktemp("library"))
    if path is None:
        pytest.skip("no C compiler here")
    return path


@pytest.fixture
def library(library_file: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(library_file), use_errno=True)


def test_each_field_is_the_row_of_vm_stat(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Every count has its own number in the library: each is read where the compiler put its field.
    """
    read: list[tuple[dict[str, int], int]] = []

    def keep(*parts: Any) -> dict[str, float]:
        read.append(parts)
        return {}

    monkeypatch.setattr(vm_stat, "values_of", keep)

    system_calls.HostStatistics(library).read()

    ((rows, page),) = read
    assert rows == {name: mac_tools.VM_STAT_ROWS[name] for name in rows}
    assert {part for parts in vm_stat.PAGES.values() for part in parts} <= rows.keys()
    assert page == 16384


def test_calls_and_commands_give_the_same(library: ctypes.CDLL) -> None:
    """
    The same state of the machine gives the same values in the same unit, by either way.
    """
    text = "".join(f"{mac_tools.SYSCTL[key]}\n" for key in sysctl.KEYS)

    assert vm_stat.parse(Output(0, mac_tools.vm_stat().encode())) == system_calls.HostStatistics(library).read()
    assert sysctl.parse(Output(0, text.encode())) == system_calls.SysctlByName(library).read()
    assert {"thermal_level": 0.0} == system_calls.ThermalLevel(library).read()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as subject:
        footprint = ProcPidRusage(lambda: [subject.pid], library).read()
        subject.communicate()
    assert {"subject_footprint": 5e7} == footprint


def test_a_program_that_holds_memory_is_weighed_by_its_footprint(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The GPU's memory is not resident on a Mac: a server of 4 GB would show a few megabytes.
    """
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)

    assert 5e7 == held_by(psutil.Process())


@pytest.mark.parametrize("trouble", ["torn", "short", "speculative"])
def test_counts_that_do_not_fit_together_are_no_numbers(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """
    Counts of two instants, a structure that is shorter, fewer free pages than speculative ones: a parse error.
    """
    monkeypatch.setenv("STAND_IN", trouble)

    assert {Status.PARSE_ERROR} == {*system_calls.HostStatistics(library).read().values()}


def test_unknown_levels_and_keys_are_no_numbers(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A pressure level 3 and a thermal level 30 do not exist; a key that this Mac lacks is absent; a limit counts.
    """
    monkeypatch.setenv("STAND_IN", "level")
    values, thermal = system_calls.SysctlByName(library).read(), system_calls.ThermalLevel(library).read()
    monkeypatch.setenv("STAND_IN", "no_key")

    assert (Status.PARSE_ERROR, 14000.0 * 2**20) == (values["memory_pressure_level"], values["gpu_wired_limit"])
    assert {"thermal_level": Status.PARSE_ERROR} == thermal
    assert system_calls.SysctlByName(library).read()["gpu_wired_limit"] is Status.ABSENT


def test_a_refusal_is_no_number(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A key that may not be read is denied, and so is another user's process; other calls raise what they returned.
    """
    monkeypatch.setenv("STAND_IN", "fails")

    assert {Status.DENIED} == {*system_calls.SysctlByName(library).read().values()}
    assert {"subject_footprint": Status.DENIED} == ProcPidRusage(lambda: [os.getpid()], library).read()
    for source in (system_calls.HostStatistics(library), system_calls.ThermalLevel(library)):
        with pytest.raises(OSError, match="code"):
            source.read()


@pytest.mark.parametrize(
    ("trouble", "state"), [("", "on"), ("dark", "asleep"), ("headless", "none"), ("fails", None), (None, None)]
)
def test_the_display_is_asked_of_the_window_server(
    library_file: Path, monkeypatch: pytest.MonkeyPatch, trouble: str | None, state: str | None
) -> None:
    """
    One of two displays that is awake is on; a refusal, or a system without the library, says nothing.
    """
    if trouble is not None:
        monkeypatch.setattr(facts, "CORE_GRAPHICS", str(library_file))
        monkeypatch.setenv("STAND_IN", trouble)

    assert state == facts.display()


def test_on_another_system_there_are_no_calls() -> None:
    """
    The tools alone are the sources where the library has no such call.
    """
    assert system_calls.has_calls(ctypes.CDLL(None)) == (is_real_mac())
    if not is_real_mac():
        assert [] == [source for source in macos.sources(tuple) if isinstance(source, Tool) and source.fallback]


def counted(healthy_mac: StandIn) -> Path:
    """Let each tool that a call replaces write its name when it is started; return the file."""
    file = Path(os.environ["PATH"]) / "started"
    for name in TOOLS:
        healthy_mac(name, f"echo {name} >> {file}\n{mac_tools.healthy()[name]}")
    return file


def sources_of(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    monkeypatch.delenv(GATEKEEPER_HOST_AS, raising=False)
    return macos.sources(lambda: [os.getpid()])


def test_while_calls_answer_their_tools_are_not_started(
    healthy_mac: StandIn, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Every value that the tools give comes from a call, and none of these tools runs; a limit of 0 has no value.
    """
    started = counted(healthy_mac)
    healthy_mac("sysctl", f'[ "$2" = iogpu.wired_limit_mb ] || echo sysctl >> {started}; echo 0')

    with Poller(sources_of(library, monkeypatch), interval=1.0) as poller:
        poller.settle(streams=False, limit=PATIENCE)
        poller.refresh(1.0)
        poller.refresh(1.0)
        readings = poller.readings()

    names = (*vm_stat.PROVIDES, "memory_pressure_level", "swap_used", "thermal_level", "subject_footprint")
    calls = {"host_statistics64", "sysctlbyname", "notify_get_state", "proc_pid_rusage"}
    assert {("ok", True)} == {(readings[name].status, readings[name].source in calls) for name in names}
    assert not started.exists()


def test_where_calls_fail_the_tools_take_over(
    healthy_mac: StandIn, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The values are there all the same, from the tools, already in the first sample.
    """
    monkeypatch.setenv("STAND_IN", "fails")
    started = counted(healthy_mac)

    with Poller(sources_of(library, monkeypatch), interval=1.0) as poller:
        poller.settle(streams=False, limit=PATIENCE)
        poller.refresh(1.0)
        readings = poller.readings()

    assert {*TOOLS} == {*started.read_text().split()}
    assert (readings["memory_headroom"].source, readings["memory_headroom"].status) == ("vm_stat", "ok")
    assert {
        ("thermal_level", "notifyutil"),
        ("swap_used", "sysctl vm.swapusage"),
        ("subject_footprint", "footprint"),
    } <= {(name, reading.source) for name, reading in readings.items() if reading.status == "ok"}


@pytest.mark.usefixtures("healthy_mac")
@pytest.mark.parametrize("trouble", ["every_fourth", "longer"])
def test_calls_that_fail_now_and_then_lose_no_sample(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """
    The tool of a call that fails runs for the same sample; a kernel that answers with more words is called again.
    """
    monkeypatch.setenv("STAND_IN", trouble)
    names = {*vm_stat.PROVIDES, *sysctl.KEYS.values(), "thermal_level", "subject_footprint"} - {"gpu_wired_limit"}
    sources = [
        replace(source, limit=PATIENCE) if isinstance(source, Tool) else source
        for source in sources_of(library, monkeypatch)
        if not isinstance(source, Stream)
    ]

    # However busy the machine is, no tool is killed for its time and no reading is stale before the sample is read.
    with Poller(sources, interval=PATIENCE) as poller:
        samples = []
        for _ in range(9):
            poller.refresh(PATIENCE)
            samples.append(poller.readings())

    assert [{"ok"}] * 9 == [{sample[name].status for name in names} for sample in samples]
    from_tools = {sample[name].source for name in names for sample in samples} & {*TOOLS}
    # Which calls fail depends on how many were made before: the library counts over all tests of a process.
    assert from_tools <= {"vm_stat", "notifyutil", "footprint"}
    assert bool(from_tools) == (trouble == "every_fourth")


def test_at_most_one_program_is_started_a_second(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    While the calls answer, the programs that run once a period are at most sixty a minute together.
    """
    tools = [source for source in sources_of(library, monkeypatch) if isinstance(source, Tool) and not source.fallback]

    assert tools
    assert sum(1 / max(tool.period, 1.0) for tool in tools) <= 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="it loads the library into a child by LD_PRELOAD")
def test_a_sampler_starts_nothing_where_tokens_are_timed(
    healthy_mac: StandIn, library_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    One process of ours makes the calls and starts the tools; ours starts no tool, and leaving ends that process.
    """
    monkeypatch.setenv("LD_PRELOAD", str(library_file))
    monkeypatch.delenv(GATEKEEPER_HOST_AS)
    healthy_mac("ioreg", f'echo $PPID >> "$0.parents"; {mac_tools.prints(mac_tools.ioreg())}')
    parents, samples = Path(os.environ["PATH"]) / "ioreg.parents", list[HostSample]()
    before = {process.pid for process in psutil.Process().children()}

    with Sampler(
        "macos", clock=SystemClock(), pids=lambda: [os.getpid()], record=samples.append, interval=0.2
    ) as sampler:
        assert until(lambda: len(samples) >= 3)
        (helper,) = [process for process in psutil.Process().children() if process.pid not in before]

    values = samples[-1].values
    assert sampler.fault is None
    assert {str(helper.pid)} == {*parents.read_text().split()}
    assert not helper.is_running()
    assert (values["memory_headroom"].source, values["memory_headroom"].value) == (
        "host_statistics64",
        355_000.0 * 16384,
    )
    assert (values["subject_footprint"].source, values["gpu_memory"].source) == ("proc_pid_rusage", "ioreg")
    assert all(sample.took_ns > 0 for sample in samples)
