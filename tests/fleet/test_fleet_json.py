"""fleet.json: the worst exit code, and what is read back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gatekeeper.core.errors import InputError
from gatekeeper.fleet import fleet_json
from gatekeeper.fleet.cell_task import Done
from gatekeeper.fleet.cells import Cell
from gatekeeper.fleet.fleet_cell import CellVerdict, FleetCell, ended_cell
from gatekeeper.fleet.fleet_json import Fleet, worst_exit_code
from gatekeeper.fleet.host_pairs import compare_hosts

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("codes", "worst"), [([0, 0], 0), ([0, 3], 3), ([3, 1], 1), ([1, 2], 2), ([2, 4], 4), ([], 3)])
def test_the_worst_exit_code_is_the_fleets(codes: list[int], worst: int) -> None:
    """
    Our own error is worse than a failed objective, and that is worse than no proof; no run at all proves nothing.
    """
    assert worst == worst_exit_code(codes)


def test_a_cell_that_has_not_ended_is_no_proof() -> None:
    """
    While a run is open the fleet's exit code is 3, whatever the others say.
    """
    cells = [Cell("one", Path("one.toml"), host) for host in "ab"]
    done = FleetCell(cells[0], Done(cells[0].name, 0))
    excluded = FleetCell(replace(cells[1], excluded=("too small",)))

    assert 3 == Fleet("now", None, (done, FleetCell(cells[1]))).exit_code
    assert 0 == Fleet("now", "then", (done, excluded)).exit_code


def test_an_answer_is_read_as_it_was_written(tmp_path: Path) -> None:
    """
    A fleet with an excluded, an open and a measured cell, and two hosts compared, is the same after writing it.
    """
    run = str(ROOT / "tests" / "golden" / "runs" / "promoted")
    cells = [Cell("one", Path("one.toml"), host) for host in "abcd"]
    ended = tuple(ended_cell(cell, Done(cell.name, 0, "promoted", run)) for cell in cells[:2])
    excluded = FleetCell(replace(cells[3], excluded=("too small",)))
    pairs = compare_hosts([FleetCell(cell.cell, cell.done, of_one_chip(cell)) for cell in ended])
    fleet = Fleet("now", "then", (*ended, FleetCell(cells[2]), excluded), pairs)

    fleet_json.write(tmp_path, fleet)

    stored = fleet_json.read(tmp_path)
    assert stored is not None
    assert (1, 0.95) == (len(pairs), next(iter(ended[0].workloads.values())).confidence)
    assert fleet.document() == stored.document() == json.loads((tmp_path / fleet_json.FILE).read_text())


def of_one_chip(cell: FleetCell) -> CellVerdict:
    assert cell.verdict is not None
    return replace(cell.verdict, host_facts={**cell.verdict.host_facts, "chip": "M4"})


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"started": 1, "ended": null, "cells": [7], "alike": []}'])
def test_a_damaged_answer_is_named(tmp_path: Path, text: str) -> None:
    """
    A file that is no answer of a fleet is a mistake of whoever named the folder, with what to do.
    """
    (tmp_path / fleet_json.FILE).write_text(text)

    with pytest.raises(InputError, match=r"fleet\.json"):
        fleet_json.read(tmp_path)
