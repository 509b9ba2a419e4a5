"""The page of a fleet: failures first, and a link to the report of each run."""

import re

from gatekeeper.core.system.run_directory import REPORT
from gatekeeper.fleet.fleet_document import fleet_document
from gatekeeper.report.html.document_page import render_page
from tests.builders.pages import fleet


def test_failures_come_first_and_runs_are_linked() -> None:
    """A failed run stands above one without a verdict, an open one, a promoted one and one that is not run."""
    text = render_page(fleet_document(fleet()))
    runs = text[text.index('id="runs"') :]

    pills = re.findall(r'class="pill (\w+)"', runs)
    assert ["failed", "failed", "open", "promoted", "excluded"] == pills
    reports = [f"{run}/{REPORT}" for run in ("failed", "promoted")]
    assert reports == re.findall(r'href="([^"#]+)"', text)
    assert [] == [reason for reason in ("no route to host studio", "16 GB needed") if reason not in runs]
