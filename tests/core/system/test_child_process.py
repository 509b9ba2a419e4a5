"""Ending a child process and its group."""

import signal
import subprocess
import sys

import psutil
import pytest

from gatekeeper.core.system.child_process import end, exit_reason
from tests.builders.waiting import until

CHILD = "import signal, subprocess, sys; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); "
"""Starts a child of its own in its group, and says which."""


def started(code: str) -> tuple[subprocess.Popen[bytes], int]:
    process = subprocess.Popen([sys.executable, "-S", "-c", CHILD + code], stdout=subprocess.PIPE, process_group=0)
    assert process.stdout is not None
    with process.stdout as output:
        return process, int(output.readline())


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("code", "grace", "status"),
    [
        ("signal.pause()", 20.0, -signal.SIGTERM),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()", 0.0, -signal.SIGKILL),
        ("sys.exit(3)", 20.0, 3),
    ],
)
def test_a_process_ends_with_its_group(code: str, grace: float, status: int) -> None:
    """SIGTERM where there is a grace, SIGKILL where there is none; a second call changes nothing."""
    process, child = started(code)
    if status > 0:
        process.wait()

    statuses = [end(process, grace=grace), end(process, grace=grace)]

    assert [status, status] == statuses
    until(lambda: not runs(child), "what was killed is gone")


def test_a_stopped_process_ends_politely() -> None:
    """A stopped process takes its SIGTERM, because it is continued first."""
    process, _ = started("signal.pause()")
    process.send_signal(signal.SIGSTOP)

    assert -signal.SIGTERM == end(process, grace=20)


@pytest.mark.parametrize(("status", "words"), [(-9, "signal 9"), (137, "signal 9"), (3, "exit code 3")])
def test_endings_are_named(status: int, words: str) -> None:
    """An exit status is written as a person would say it, whether a signal came directly or through a parent."""
    assert words == exit_reason(status)
