"""The page of stored runs: every run has its place on the charts, and a link to its report."""

import re
from dataclasses import replace

from gatekeeper.report.commands.history_document import history_document
from gatekeeper.report.data.compared_runs import ComparedFigure
from gatekeeper.report.data.run_history import HistoryRun, HistoryWorkload, RunHistory, SloHistory
from gatekeeper.report.html.document_page import render_page
from tests.builders.page_data import DRAFTED

FAST = HistoryWorkload("promoted", DRAFTED, {}, ComparedFigure(1.31, 1.22, 1.38), 1.16)
NIGHT = HistoryRun(
    run="runs/night",
    at="2026-01-01T03:00:00Z",
    outcome="promoted",
    grade="certification",
    trouble=None,
    footprint_peak=None,
    host="Apple M4, 24 GB",
    failed=(),
    workloads={"easy": FAST},
)
OPEN = replace(
    NIGHT, run="runs/open", outcome="unproven", workloads={"easy": replace(FAST, outcome="unproven", speed=None)}
)


def page(*runs: HistoryRun) -> str:
    return render_page(history_document(RunHistory((SloHistory("made", runs, None),))))


def test_a_run_without_a_speed_is_on_the_axis() -> None:
    """An unproven night has no speed to draw: its sign stands at the axis; runs of one day are labelled by times."""
    evening, tomorrow = (replace(OPEN, at=f"2026-01-0{day}T21:00:00Z") for day in (1, 2))
    labels = [re.findall(r">(01-0\d[^<]*)</text>", page(NIGHT, later_run)) for later_run in (evening, tomorrow)]

    assert ["unproven"] == re.findall(r'<text class="outcome (\w+)"', page(NIGHT, OPEN))
    assert [["01-01 03:00", "01-01 21:00"], ["01-01", "01-02"]] == labels


def test_each_run_is_linked() -> None:
    """The newest run comes first; each has a link to its report, and the first one has nothing before it."""
    text = page(NIGHT, OPEN)

    assert ["runs/open/report.html", "runs/night/report.html"] == re.findall(r'href="([^#"]+)"', text)
    assert text.index(">nothing<") < text.index(">the first run<")
