"""One objective has one value: what the golden runs measured, compared in every format."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from gatekeeper.analysis.metrics.timing import FASTEST
from gatekeeper.core.document import text_of
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.slo import parse
from gatekeeper.core.system.inputs import find_slo_file
from gatekeeper.report import github_annotations, junit, run_document
from gatekeeper.report.data.objective_rows import show_measurement
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.html import page
from gatekeeper.report.phrases import against_plain, routing
from gatekeeper.report.terminal import summary
from gatekeeper.run.stored.stored_page import load_page_data
from gatekeeper.run.stored.stored_policy import stored_policy
from tests.builders.project_folder import ROOT
from tests.report.html.test_page import Document

RUNS = sorted(path.name for path in (ROOT / "tests" / "golden" / "runs").iterdir())
INTERVAL = re.compile(r"[-+]?[\d.]+(?:x| ?[^\W\d]\S*| %)? \[[-+\d.?][^\]]*, [^\]]+\]")
each_run = pytest.mark.parametrize("name", RUNS)


def run_of(name: str) -> Path:
    return ROOT / "tests" / "golden" / "runs" / name


@cache
def data_of(name: str) -> PageData:
    return load_page_data(run_of(name))


def checks_of(data: PageData) -> list[tuple[str, Check]]:
    """Return the checks with a value, each with what it is about."""
    groups = [(workload.name, workload.checks) for workload in data.verdict.workloads]
    groups.append(("host", data.verdict.host_checks))
    return [(name, check) for name, checks in groups for check in checks if check.center is not None]


def known_intervals(data: PageData) -> set[str]:
    """Return every interval that a report without details may show: those of checks and of the speed of a workload."""
    steps = [step for workload in data.verdict.workloads for step in workload.steps]
    checks = [check for _, check in checks_of(data)]
    checks += [check for step in steps for check in (*step.checks, *step.host_checks)]
    texts = [show_measurement(check) for check in checks] + [
        against_plain(workload.speed) for workload in data.decision.workloads
    ]
    texts += [routing(data.verdict), *(workload.because for workload in data.verdict.workloads)]
    return {interval for text in texts for interval in INTERVAL.findall(text)}


def screen_of(name: str, capsys: pytest.CaptureFixture[str], details: str = "") -> str:
    summary.show(data_of(name).decision, run=run_of(name), slo="SLO.toml", details=details)
    return capsys.readouterr().out


def annotations_of(name: str) -> str:
    file, text = find_slo_file(run_of(name), None)
    return github_annotations.render(data_of(name).decision, parse(text, str(file)), text, str(file))


@pytest.mark.whole
@each_run
def test_every_format_shows_the_value_of_a_check(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The page, Markdown, the text with -v and JUnit show each check as verdict.json has it, with its interval."""
    data = data_of(name)
    details = run_document.render_evidence(data.decision, stored_policy(run_of(name)))
    text, summarised = screen_of(name, capsys, details), run_document.render_summary(data).replace("\\", "")
    page_text = Document(page.render(data)).text
    suites = ET.fromstring(junit.render(data.verdict))  # noqa: S314 (our own)

    for about, check in checks_of(data):
        value = show_measurement(check)
        assert re.search(rf"{check.metric}[^\n]*{re.escape(value)}", text), (about, check.metric)
        assert re.search(rf"{about}[^\n]*{check.metric}[^\n]*{re.escape(value)}", summarised), (about, check.metric)
        assert f"{value}, n = {check.n}" in page_text, (about, check.metric)
        figures = [properties(case) for case in suites.iterfind(f"testsuite[@name='{about}']/testcase")]
        assert [check.center, check.lo, check.hi] in [
            [float(case[key]) for key in ("center", "lo", "hi")] for case in figures if "center" in case
        ], (about, check.metric)


def properties(case: ET.Element) -> dict[str, str]:
    return {entry.get("name", ""): entry.get("value", "") for entry in case.iter("property")}


@each_run
def test_what_blocks_has_the_same_value_wherever_it_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The screen, the line, JUnit's messages and the annotations of an objective that failed or is open."""
    data = data_of(name)
    screen, line = screen_of(name, capsys), run_document.render_line(data.decision)
    notes, cases = annotations_of(name), ET.fromstring(junit.render(data.verdict))  # noqa: S314 (our own)
    messages = [element.get("message", "") for kind in ("failure", "error") for element in cases.iter(kind)]
    intervals = known_intervals(data)

    for row in (row for row in data.decision.rows if row.blocking and row.check.center is not None):
        value = show_measurement(row.check)
        assert re.search(rf"{row.about}: {row.check.metric}[^\n]*{re.escape(value)}", screen)
        assert re.search(rf"{row.check.metric}[^\n]*{re.escape(value)}", notes.replace("%25", "%"))
        assert any(value in message for message in messages)
    for text in (screen, line, notes.replace("%25", "%"), *messages):
        assert set(INTERVAL.findall(text)) <= intervals


@each_run
def test_no_text_of_a_run_has_an_exponent(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Speeds, sizes and shares are written out in the screen, with -v too, in Markdown, the line and the
    annotations.
    """
    data = data_of(name)
    texts = [
        screen_of(name, capsys, run_document.render_evidence(data.decision)),
        run_document.render_summary(data),
        annotations_of(name),
    ]

    assert [] == [exponent for text in texts for exponent in re.findall(r"\b\d[\d.]*e[+-]\d+", text)]


def test_the_golden_runs_are_of_every_outcome() -> None:
    """What is compared holds promoted, graded back, failed and unproven runs, and objectives of each outcome."""
    outcomes = {str(data_of(name).verdict.outcome) for name in RUNS}
    checks = {check.outcome for name in RUNS for _, check in checks_of(data_of(name))}
    documents: list[Any] = [text_of(data_of(name).verdict) for name in RUNS]

    assert {"promoted", "graded_back", "failed", "unproven"} <= outcomes
    assert set(Outcome) == checks
    assert all(documents)


def test_no_sentence_shows_an_exponent_or_a_speed_that_no_machine_has() -> None:
    """What the program says, as far as it is stored: numbers are written out, and no stream decodes 5,000 tokens a
    second.
    """
    files = (ROOT / "tests" / "golden" / "words").glob("*.toml")
    sentences = [text for file in files for text in tomllib.loads(file.read_text()).values()]
    speeds = [float(speed) for text in sentences for speed in re.findall(r"\b([\d.]+) tok/s", text)]

    assert [] == [text for text in sentences if re.search(r"\b\d[\d.]*e[+-]?\d+\b", text)]
    assert max(speeds) < FASTEST
