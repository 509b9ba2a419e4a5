"""fleet.json: the worst exit code, what is read back, and what a terminal and a job's page show."""

import re
from pathlib import Path

import pytest

from gatekeeper.core.errors import InputError
from gatekeeper.core.system.run_directory import REPORT
from gatekeeper.fleet import fleet_record
from gatekeeper.fleet.cell_task import CellResult, CellWorkload
from gatekeeper.fleet.fleet_document import fleet_document
from gatekeeper.fleet.fleet_record import FleetRecord, worst_exit_code
from gatekeeper.report.document_markdown import escape, render_markdown
from gatekeeper.report.document_text import render_text
from gatekeeper.report.html.document_page import render_page
from tests.builders.fleet import make_fleet_cell
from tests.builders.pages import fleet

WORKLOADS = (
    CellWorkload(name="json", outcome="promoted", because="faster", ratio=(1.5, 1.4, 1.6)),
    CellWorkload(name="chat", outcome="graded_back", because="slower", ratio=None),
)
PROMOTED = CellResult(exit_code=0, outcome="promoted", grade="demo", workloads=WORKLOADS, run="run")
LOST = CellResult(exit_code=3, error="no route to b", hint="wake it up")
RECORD = FleetRecord(
    started="now",
    ended="then",
    cells=(
        make_fleet_cell("one@a", result=PROMOTED),
        make_fleet_cell("one@b", result=LOST),
        make_fleet_cell("one@c", excluded=("too small",)),
    ),
    policies={"one": "none, not proven: one@b"},
)


@pytest.mark.parametrize(("codes", "worst"), [([0, 0], 0), ([0, 3], 3), ([3, 1], 1), ([1, 2], 2), ([2, 4], 4), ([], 3)])
def test_the_worst_exit_code_is_the_fleets(codes: list[int], worst: int) -> None:
    """Our own error is worse than a failed objective, and that is worse than no proof; no run at all proves nothing."""
    assert worst == worst_exit_code(codes)


def test_a_cell_that_has_not_ended_is_no_proof() -> None:
    """While a run is open the fleet's exit code is 3, whatever the others say; a cell that is not run says nothing."""
    done, is_open = make_fleet_cell("one@a", result=PROMOTED), make_fleet_cell("one@b")

    assert 3 == FleetRecord(started="now", cells=(done, is_open)).exit_code
    assert 0 == FleetRecord(started="now", cells=(done, make_fleet_cell("one@b", excluded=("small",)))).exit_code


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"started": 1, "ended": null, "cells": [7]}'])
def test_a_damaged_answer_is_named(tmp_path: Path, text: str) -> None:
    """A file that is no answer of a fleet is a mistake of whoever named the folder, with what to do."""
    (tmp_path / fleet_record.FILE).write_text(text)

    with pytest.raises(InputError, match=r"fleet\.json"):
        fleet_record.read_record(tmp_path)


def test_one_table_says_what_became_of_each_run() -> None:
    """A row for each run, the reason of a lost one, the policy, and the exit code in the first line of either."""
    document = fleet_document(RECORD)
    written, page = render_text(document), render_markdown(document)

    answer = "2 runs: 1 promoted, 1 no verdict (exit code 3)"
    assert answer == written.splitlines()[0]
    assert f"## ? {escape(answer)}" == page.splitlines()[0]
    for words in ("json 1.50x [1.40x, 1.60x]", "chat graded back", "no route to b; wake it up", "not proven: one@b"):
        assert words.replace("x,", ",").replace("x]", "]") in written
    assert "no route to b; wake it up" in page


def test_failures_come_first_and_runs_are_linked() -> None:
    """A failed run stands above one without a verdict, an open one, a promoted one and one that is not run."""
    text = render_page(fleet_document(fleet()))
    runs = text[text.index('id="runs"') :]

    pills = re.findall(r'class="pill (\w+)"', runs)
    assert ["failed", "failed", "open", "promoted", "excluded"] == pills
    reports = [f"{run}/{REPORT}" for run in ("failed", "promoted")]
    assert reports == re.findall(r'href="([^"#]+)"', text)
    assert [] == [reason for reason in ("no route to host studio", "16 GB needed") if reason not in runs]
