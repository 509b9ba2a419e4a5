"""The summary in Markdown: tables that nothing breaks, and never longer than a job page takes."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.judgement import Finding
from gatekeeper.report import markdown
from gatekeeper.report.document_markdown import escape
from tests.builders.golden_words import says
from tests.builders.page_data import PAGE, like_golden, page_of, whole_case
from tests.report.html.test_page import HOSTILE, hostile


def test_the_summary_is_as_it_was() -> None:
    """Verdict, table of workloads, checks, steps down the ladder: compared with a stored file."""
    like_golden("summary.md", markdown.render(PAGE))


def test_open_checks_are_shown_and_passed_ones_are_folded() -> None:
    """A check without a measurement is in a visible table; passed ones are in a folded one."""
    text = markdown.render(page_of(replace(whole_case(), host_samples=())))

    assert text.index("### What failed or is not proven") < text.index("| ? unproven | host |")
    assert text.index("| ? unproven | host |") < text.index("<details>") < text.index("| ✓ pass | easy |")


def test_hostile_text_is_no_markup() -> None:
    """The text of a model or a canary opens no tag, no link, no cell and no line of its own."""
    text = markdown.render(hostile())

    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert "<script" not in text
    assert "<img" not in text
    assert HOSTILE.splitlines()[0][:9] not in text
    assert {line.replace("\\|", "").count("|") for line in tables} <= {4, 7, 8, 9}


@given(st.text(max_size=60))
def test_any_text_stays_on_its_line(text: str) -> None:
    """A cell is one line, and every bar in it is escaped."""
    cell = escape(text)

    assert 1 >= len(cell.splitlines())
    assert "|" not in cell.replace("\\|", "")


def test_it_fits_into_a_job_summary() -> None:
    """With thousands of findings it is cut below 1 MiB and says so: GitHub would drop all of it."""
    page_data = page_of(whole_case())
    findings = tuple(Finding("made", f"number {number}", "x" * 590) for number in range(3000))

    text = markdown.render(replace(page_data, verdict=replace(page_data.verdict, findings=findings)))

    assert len(text.encode()) < 2**20
    says("reports", "it fits into a job summary", text.splitlines()[-1])
    assert "promoted" in text.splitlines()[0]
