"""Other programs that use the processor."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from gatekeeper.host.other_programs import (
    OtherPrograms,
    ProcessorUse,
    _by_process,
    memory_holders,
    other_programs,
    processor_use,
    used_between,
)
from tests.builders.waiting import until

SPIN = "import time\nbegun = time.monotonic()\nwhile time.monotonic() - begun < 60: pass"


@pytest.fixture
def spinner(tmp_path: Path) -> str:
    """A program with a name of its own that keeps a core busy."""
    program = tmp_path / "spinner"
    program.symlink_to(Path(sys.executable).resolve())
    return str(program)


@pytest.fixture
def spinning(spinner: str) -> Iterator[str]:
    """It runs, and this process did not start it."""
    words = [spinner, "-S", "-c", SPIN]
    script = f"import subprocess; print(subprocess.Popen({words!r}, stdout=subprocess.DEVNULL).pid)"
    pid = int(subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout)
    yield Path(spinner).name
    os.kill(pid, signal.SIGKILL)


def test_a_busy_program_is_named(spinning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that another process started is named with what it uses, which counts with all others."""
    # On a busy machine three others use more, and this one is hardly given a turn.
    module = import_module("gatekeeper.host.other_programs")
    monkeypatch.setattr(module, "NAMED", 10_000)
    monkeypatch.setattr(module, "LEAST_CORES", 0.0)
    before = processor_use()
    until(lambda: spinning in dict(used_between(before, processor_use()).busiest))

    used_by_others = used_between(before, processor_use())

    assert used_by_others.cores >= dict(used_by_others.busiest)[spinning] > 0


def test_what_this_process_started_is_no_other_program(spinner: str) -> None:
    """The system under test is a child of gatekeeper, and is left out."""
    with subprocess.Popen([spinner, "-S", "-c", SPIN]) as child:
        names = dict(other_programs().busiest)
        child.kill()

    assert "spinner" not in names


def test_what_this_process_started_and_that_ended_is_no_other_program() -> None:
    """A system under test that is started and ended during a stage used its time for this run."""
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    before = processor_use()

    subprocess.run([sys.executable, "-S", "-c", spin], check=True)

    assert processor_use().own_s - before.own_s >= 0.3


def test_a_program_counts_for_what_it_used_between_two_looks() -> None:
    """Also one that began in between; one that also ended has no name, but its time is in the sum of all cores."""
    before = ProcessorUse(100.0, 50.0, 7.0, frozenset({1, 2}), {1: ("us", 7.0), 2: ("server", 4.0), 3: ("mds", 900.0)})
    names = {1: ("us", 8.0), 2: ("server", 9.0), 3: ("mds", 904.0), 4: ("cc", 2.0), 5: ("idle", 0.1)}
    after = ProcessorUse(110.0, 66.0, 8.0, frozenset({1}), names)

    used_by_others = used_between(before, after)

    assert (1.5, (("mds", 0.4), ("cc", 0.2))) == (used_by_others.cores, used_by_others.busiest)


@pytest.mark.parametrize(
    ("cores", "total", "busy"), [(0.4, 2, False), (0.6, 2, True), (0.9, 10, False), (1.2, 10, True)]
)
def test_a_machine_is_busy_above_half_a_core_and_a_tenth_of_its_cores(cores: float, total: int, busy: bool) -> None:
    """Both: a large machine has room for what a small one has not."""
    assert busy == OtherPrograms(cores, total, ()).busy


def test_a_program_that_holds_memory_is_named(spinner: str) -> None:
    """Of the programs of others the largest are named with their size; this process and its children are left out."""
    with subprocess.Popen([spinner, "-S", "-c", SPIN]) as child:
        holders = memory_holders()
        child.kill()

    assert 1 <= len(holders.split(", ")) <= 5
    assert "spinner" not in holders


@pytest.mark.skipif(sys.platform != "linux", reason="the names come from another tool there")
def test_a_program_named_in_two_lines_prints_none_of_its_own(tmp_path: Path) -> None:
    """Any user of the machine may start a program whose name has a line break: it is shown on one line."""
    program = tmp_path / "two\nlines"
    program.symlink_to(Path(sys.executable).resolve())
    with subprocess.Popen([str(program), "-S", "-c", SPIN]) as child:
        name, _ = _by_process()[child.pid]
        child.kill()

    assert "two lines" == name
