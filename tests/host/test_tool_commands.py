"""Running the host's tools side by side."""

import os
from pathlib import Path

import psutil
import pytest

from gatekeeper.host.tool_commands import Killed, Output, Result, run, run_all
from tests.host.conftest import StandIn


@pytest.mark.slow
def test_each_command_is_reported_as_soon_as_it_ends(stand_in: StandIn) -> None:
    """One that cannot start first, then quick, then slow; one that hangs is killed at its limit."""
    stand_in("slow", "sleep 0.3; echo slow; echo late >&2; exit 3")
    stand_in("quick", "echo quick")
    stand_in("hangs", "exec sleep 600")
    results: dict[int, Result] = {}

    run_all([(["slow"], 20.0), (["quick"], 20.0), (["hangs"], 2.0), (["missing"], 1.0)], results.__setitem__)

    assert [3, 1, 0, 2] == list(results)
    assert isinstance(results[3], FileNotFoundError)
    assert Output(0, b"quick\n") == results[1]
    assert Output(3, b"slow\n", b"late\n") == results[0]
    assert results[2] is Killed.TIMEOUT


def test_a_command_that_cannot_start_has_no_output(stand_in: StandIn) -> None:
    """A missing tool is None, a tool that fails is its output."""
    stand_in("fails", "exit 1")

    assert (None, Output(1, b"")) == (run(["missing"]), run(["fails"]))


def test_a_command_that_prints_without_end_is_killed(stand_in: StandIn) -> None:
    """It is killed long before its time limit, on either stream, and the commands beside it are read to their end."""
    stand_in("endless", 'echo $$ > "$0.pid"; exec yes')
    stand_in("complains", "exec yes >&2")
    stand_in("quick", "sleep 0.5; echo quick")
    results: dict[int, Result] = {}

    run_all([(["endless"], 60.0), (["complains"], 60.0), (["quick"], 60.0)], results.__setitem__)

    assert {0: Killed.TOO_MUCH_OUTPUT, 1: Killed.TOO_MUCH_OUTPUT, 2: Output(0, b"quick\n")} == results
    assert not psutil.pid_exists(int((Path(os.environ["PATH"]) / "endless.pid").read_text()))
    assert run(["endless"]) is None
