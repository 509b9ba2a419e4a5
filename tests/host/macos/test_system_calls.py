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
from gatekeeper.core.records import HostSample, Reading
from gatekeeper.core.system.environment_variables import GATEKEEPER_HOST_AS
from gatekeeper.core.system.system_names import is_real_mac
from gatekeeper.host import Sampler, macos
from gatekeeper.host.macos import facts, system_calls, vm_stat
from gatekeeper.host.macos.system_calls import ProcPidRusage
from gatekeeper.host.other_programs import held_by
from gatekeeper.host.process_tree import ProcessTree
from gatekeeper.host.sampling.poller import Poller
from gatekeeper.host.sources import Source, Status, Stream, Tool
from gatekeeper.host.tool_commands import Output
from tests.builders import mac_tools
from tests.builders.waiting import until
from tests.host.conftest import PATIENCE, StandIn


@pytest.fixture(scope="module")
def library_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mac_tools.build_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def library(library_file: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(library_file), use_errno=True)


def test_each_field_is_the_row_of_vm_stat(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every count has its own number in the library: each is read where the compiler put its field."""
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


def test_each_call_gives_its_values(library: ctypes.CDLL) -> None:
    """In base units, from their places in the structures; pages as vm_stat prints them. A limit of 0 is the default."""
    assert vm_stat.parse(Output(0, mac_tools.vm_stat().encode())) == system_calls.HostStatistics(library).read()
    assert system_calls.SysctlByName(library).read() == {
        "memory_pressure_level": 1.0,
        "swap_used": 1536.5 * 2**20,
        "memory_total": 25769803776.0,
        "gpu_wired_limit": Status.ABSENT,
    }
    assert {"thermal_level": 0.0} == system_calls.ThermalLevel(library).read()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as subject:
        footprint = ProcPidRusage(ProcessTree(lambda: [subject.pid]), library).read()
        subject.communicate()
    assert {"subject_footprint": 5e7} == footprint


def test_a_program_that_holds_memory_is_weighed_by_its_footprint(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU's memory is not resident on a Mac: a server of 4 GB would show a few megabytes."""
    monkeypatch.setattr(system_calls, "load_library", lambda: library)

    assert 5e7 == held_by(psutil.Process())


@pytest.mark.parametrize("trouble", ["torn", "short", "speculative"])
def test_counts_that_do_not_fit_together_are_no_numbers(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Counts of two instants, a structure that is shorter, fewer free pages than speculative ones: a parse error."""
    monkeypatch.setenv("STAND_IN", trouble)

    assert {Status.PARSE_ERROR} == {*system_calls.HostStatistics(library).read().values()}


def test_unknown_levels_and_keys_are_no_numbers(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pressure level 3 and a thermal level 30 do not exist; a key that this Mac lacks is absent; a limit counts."""
    monkeypatch.setenv("STAND_IN", "level")
    values, thermal = system_calls.SysctlByName(library).read(), system_calls.ThermalLevel(library).read()
    monkeypatch.setenv("STAND_IN", "no_key")

    assert (Status.PARSE_ERROR, 14000.0 * 2**20) == (values["memory_pressure_level"], values["gpu_wired_limit"])
    assert {"thermal_level": Status.PARSE_ERROR} == thermal
    assert system_calls.SysctlByName(library).read()["gpu_wired_limit"] is Status.ABSENT


def test_a_refusal_is_no_number(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that may not be read is denied, and so is another user's process; other calls raise what they returned."""
    monkeypatch.setenv("STAND_IN", "fails")

    assert {Status.DENIED} == {*system_calls.SysctlByName(library).read().values()}
    assert {"subject_footprint": Status.DENIED} == ProcPidRusage(ProcessTree(lambda: [os.getpid()]), library).read()
    for source in (system_calls.HostStatistics(library), system_calls.ThermalLevel(library)):
        with pytest.raises(OSError, match="code"):
            source.read()


@pytest.mark.parametrize(
    ("trouble", "state"), [("", "on"), ("dark", "asleep"), ("headless", "none"), ("fails", None), (None, None)]
)
def test_the_display_is_asked_of_the_window_server(
    library_file: Path, monkeypatch: pytest.MonkeyPatch, trouble: str | None, state: str | None
) -> None:
    """One of two displays that is awake is on; a refusal, or a system without the library, says nothing."""
    if trouble is not None:
        monkeypatch.setattr(facts, "CORE_GRAPHICS", str(library_file))
        monkeypatch.setenv("STAND_IN", trouble)

    assert state == facts.display()


def test_on_another_system_there_are_no_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The library is that of a Mac, or lies with the tools that stand in for a Mac's; else there is none."""
    assert (system_calls.load_library() is not None) == is_real_mac()
    monkeypatch.setenv(GATEKEEPER_HOST_AS, "macos")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert system_calls.load_library() is None
    mac_tools.build_library(tmp_path)
    assert system_calls.load_library() is not None


def sources() -> list[Source]:
    return macos.sources(lambda: [os.getpid()])


def read_once(healthy_mac: StandIn) -> tuple[dict[str, Reading], bool]:
    """Return the readings of one sample, and whether vm_stat was started for them."""
    started = Path(os.environ["PATH"]) / "started"
    healthy_mac("vm_stat", f"echo vm_stat >> {started}\n{mac_tools.healthy()['vm_stat']}")
    with Poller(sources(), interval=1.0) as poller:
        poller.settle(streams=False, limit=PATIENCE)
        poller.refresh(PATIENCE)
        return poller.readings(), started.exists()


def test_while_the_call_answers_vm_stat_is_not_started(healthy_mac: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every count of pages comes from the call, and so does each other value that is one."""
    monkeypatch.delenv("STAND_IN")

    readings, started = read_once(healthy_mac)

    names = (*vm_stat.PROVIDES, "memory_pressure_level", "swap_used", "thermal_level", "subject_footprint")
    calls = {"host_statistics64", "sysctlbyname", "notify_get_state", "proc_pid_rusage"}
    assert {("ok", True)} == {(readings[name].status, readings[name].source in calls) for name in names}
    assert not started


def test_where_the_call_fails_vm_stat_takes_over(healthy_mac: StandIn) -> None:
    """The counts of pages are there all the same, already in the first sample."""
    readings, started = read_once(healthy_mac)

    assert {("ok", "vm_stat")} == {(readings[name].status, readings[name].source) for name in vm_stat.PROVIDES}
    assert started


@pytest.mark.usefixtures("healthy_mac")
@pytest.mark.parametrize("trouble", ["every_fourth", "longer"])
def test_a_call_that_fails_now_and_then_loses_no_sample(monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    """The tool of a call that fails runs for the same sample; a kernel that answers with more words is called again."""
    monkeypatch.setenv("STAND_IN", trouble)
    patient = [
        replace(source, limit=PATIENCE) if isinstance(source, Tool) else source
        for source in sources()
        if not isinstance(source, Stream)
    ]

    # However busy the machine is, no tool is killed for its time and no reading is stale before the sample is read.
    with Poller(patient, interval=PATIENCE) as poller:
        samples = []
        for _ in range(9):
            poller.refresh(PATIENCE)
            samples.append(poller.readings())

    assert [{"ok"}] * 9 == [{sample[name].status for name in vm_stat.PROVIDES} for sample in samples]
    # Which calls fail depends on how many were made before: the library counts over all tests of a process.
    used = {sample["memory_headroom"].source for sample in samples}
    assert used == {"host_statistics64", *(("vm_stat",) if trouble == "every_fourth" else ())}


def test_a_sampler_starts_nothing_where_tokens_are_timed(healthy_mac: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process of ours makes the calls and starts the tools; ours starts no tool, and leaving ends that process."""
    monkeypatch.delenv("STAND_IN")
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
