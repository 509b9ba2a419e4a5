"""The queue of each host on a real Dask cluster, with bodies that only wait."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.fleet.cells import Cell, taken
from gatekeeper.fleet.dispatch import run
from gatekeeper.fleet.task import Done, Task


def note(task: Task) -> Done:
    """Note when the cell began and ended."""
    with Path(task.runs, f"{task.cell}.began").open("a") as file:
        file.write(f"{time.monotonic()} ")
    time.sleep(0.1)
    Path(task.runs, f"{task.cell}.ended").write_text(str(time.monotonic()))
    return Done(task.cell, 0, "promoted")


def die_once(task: Task) -> Done:
    """Kill the worker the first time."""
    before = Path(task.runs, "killed")
    if not before.exists():
        before.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return note(task)


def fail_twice(task: Task) -> Done:
    """Lose the connection twice."""
    tries = Path(task.runs, "tries")
    count = int(tries.read_text()) if tries.exists() else 0
    tries.write_text(str(count + 1))
    return Done(task.cell, 3, error="lost", again=True) if count < 2 else Done(task.cell, 0, "promoted")


def carried_out(cells: list[Cell], folder: Path, **options: Any) -> dict[str, Done]:
    def task_of(cell: Cell) -> Task:
        return Task(cell.name, "", cell.host, "", str(folder), "")

    def ignore(*_what: object) -> None:
        pass

    given: dict[str, Any] = {"retries": 0, "pause_s": (0.0, 0.0)} | options
    return run(taken(cells), task_of, ignore, **given)


def test_a_host_has_one_cell_at_a_time_and_the_longest_first(tmp_path: Path) -> None:
    """
    Three cells on each of three hosts: those of a host follow each other by falling duration, hosts overlap.
    """
    cells = [Cell(f"s{number}", Path(), host, float(number)) for number in range(3) for host in "abc"]

    done = carried_out(cells, tmp_path, body=note)

    assert {one.name for one in cells} == done.keys()
    spans = {
        one.name: (
            float((tmp_path / f"{one.name}.began").read_text()),
            float((tmp_path / f"{one.name}.ended").read_text()),
        )
        for one in cells
    }
    for host in "abc":
        assert spans[f"s2@{host}"][1] <= spans[f"s1@{host}"][0]
        assert spans[f"s1@{host}"][1] <= spans[f"s0@{host}"][0]
    assert max(spans[f"s2@{host}"][0] for host in "abc") < max(spans[f"s0@{host}"][1] for host in "abc")


def test_a_killed_worker_repeats_its_cell(tmp_path: Path) -> None:
    """
    Kill -9 on the Dask worker in the middle of a cell: another takes its place and the cell is carried out.
    """
    done = carried_out([Cell("s", Path(), "a")], tmp_path, body=die_once)

    assert "promoted" == done["s@a"].outcome


def test_only_what_says_nothing_of_the_system_is_tried_again(tmp_path: Path) -> None:
    """
    A lost connection is tried again as often as allowed; then the cell ends with its error.
    """
    assert "promoted" == carried_out([Cell("s", Path(), "a")], tmp_path, body=fail_twice, retries=2)["s@a"].outcome
    (tmp_path / "tries").unlink()
    assert "lost" == carried_out([Cell("s", Path(), "a")], tmp_path, body=fail_twice, retries=1)["s@a"].error


def test_a_scheduler_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    """
    --scheduler with a wrong address ends the command before anything runs.
    """
    with pytest.raises(GatekeeperError, match="no Dask scheduler") as caught:
        carried_out([Cell("s", Path(), "a")], tmp_path, body=note, scheduler="tcp://127.0.0.1:9")
    assert "--scheduler" in caught.value.hint
