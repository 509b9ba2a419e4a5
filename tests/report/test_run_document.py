"""What reports say of a run in text, Markdown and one line: as it was, safe to print, and never too long."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.verdict.run_verdict import Measured, Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Bounds, Check, Estimate, Finding, Missing, Outcome
from gatekeeper.report.commands.compare_document import headlines
from gatekeeper.report.data.compared_runs import ComparedRun, ComparedWorkload, RunComparison, WorkloadResult
from gatekeeper.report.data.decision import decide
from gatekeeper.report.data.objective_rows import show_measurement
from gatekeeper.report.data.workload_summary import speed_up
from gatekeeper.report.document_markdown import escape
from gatekeeper.report.phrases import about, against_plain, swept_speed
from gatekeeper.report.run_document import render_evidence, render_line, render_summary
from tests.builders.golden_words import lines_with, says
from tests.builders.page_data import DRAFTED, PAGE, RATIO, VERDICT, choice_of, like_golden, page_of, whole_case
from tests.report.html.test_page import HOSTILE, hostile

FAST = WorkloadVerdict(
    "easy", WorkloadOutcome.PROMOTED, DRAFTED, True, "it is faster", (), Measured({"throughput_ratio": RATIO})
)
PLAIN = WorkloadVerdict("hard", WorkloadOutcome.GRADED_BACK, {"draft": None}, False, "too slow", ())
PASSED = Check("throughput_ratio", "at_least", 1.16, Outcome.PASS, 1.31, 1.29, 1.33, 24, unit="1", because="", why="")
TTFT = Check("ttft", "at_most", 1.0, Outcome.PASS, 0.06, 0.059, 0.061, unit="s", because="", why="")


def test_each_report_is_as_it_was() -> None:
    """The evidence of -v, Markdown and the line of a run that failed in every way are the stored files."""
    like_golden("verdict.txt", render_evidence(decide(VERDICT)))
    like_golden("summary.md", render_summary(PAGE))
    like_golden("line.txt", render_line(decide(VERDICT)))


def test_text_of_a_server_cannot_control_the_terminal() -> None:
    """Escape sequences in a server's text are replaced; line ends stay."""
    said = replace(PLAIN, because="\x1b]0;mine\x07 gone")

    text = render_evidence(decide(Verdict("made", "demo", "abc", (said,))))

    assert "because \ufffd]0;mine\ufffd gone" == lines_with("because", text).strip()


def test_the_line_has_the_speed_or_what_is_missing() -> None:
    """Outcome, exit code and a demo's grade; then what to turn on and until when, or why nothing is proven."""
    promoted = decide(Verdict("made", "demo", "abc", (FAST, PLAIN)), policy='expires = "2026-12-22T15:00:00.000000Z"')
    cut_off = decide(Verdict("made", "demo", "abc", (replace(PLAIN, required=True),), incomplete="cut off"))

    says("reports", "the line of a promotion has the speed", render_line(promoted).removesuffix("\n"))
    says("reports", "what is missing is the reason", lines_with("made: graded back (exit", render_line(cut_off)))


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_text_stays_on_its_line(name: str, because: str) -> None:
    """The text of a server or a file adds no line, no control character, no page of text, and no cell of a table."""
    workload = replace(FAST, name=name, outcome=WorkloadOutcome.FAILED, because=because)
    line, cell = render_line(decide(Verdict("made", "demo", "abc", (workload,)))), escape(name)

    assert (1, "\n", True) == (len(line.splitlines()), line[-1], line[:-1].isprintable())
    assert len(line) <= len(name) + 300
    assert len(cell.splitlines()) <= 1
    assert "|" not in cell.replace("\\|", "")


def test_hostile_text_is_no_markup() -> None:
    """The text of a model or a canary opens no tag, no link, no cell and no line of its own."""
    text = render_summary(hostile())

    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert [] == [tag for tag in ("<script", "<img", HOSTILE.splitlines()[0][:9]) if tag in text]
    assert {line.replace("\\|", "").count("|") for line in tables} <= {4, 5, 7, 8, 9}


def test_it_fits_into_a_job_summary() -> None:
    """With thousands of findings it is cut below 1 MiB and says so: GitHub would drop all of it."""
    findings = tuple(Finding("made", f"number {number}", "x" * 590) for number in range(3000))
    page_data = page_of(whole_case())
    verdict = replace(page_data.verdict, findings=findings)

    text = render_summary(replace(page_data, verdict=verdict, decision=decide(verdict)))

    assert len(text.encode()) < 2**20
    says("reports", "it fits into a job summary", text.splitlines()[-1])
    assert "promoted" in text.splitlines()[0]


def test_speed_against_plain_is_the_soaks_or_else_the_sweeps_best() -> None:
    """A promoted route shows the soak's; a plain one shows the best of the sweep, labelled; else a dash."""
    swept = choice_of(Estimate(0.8, 0.7, 0.9, 8), Missing("too few", 3), Estimate(0.95, 0.9, 1.0, 8))
    speeds = [against_plain(speed_up(work)) for work in (FAST, replace(PLAIN, choice=swept), PLAIN)]

    assert ["1.31x [1.22, 1.38]", "0.95x [0.90, 1.00] (sweep)", "-"] == speeds


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "60 ms [59, 61]"),
        ({"center": 0.9, "lo": 0.8, "hi": 1.1}, "900 ms [800 ms, 1.1 s]"),
        ({"center": 0}, "0 ms"),
    ],
)
def test_a_unit_is_written_once(changes: dict[str, Any], text: str) -> None:
    """Centre and bounds in one unit name it once; in two units each keeps its own."""
    assert show_measurement(replace(TTFT, **changes)).startswith(text)


def test_an_interval_says_which_prompts_it_is_about() -> None:
    """These canaries, with the interval for prompts like them beside it; prompts like these; nothing for a count."""
    these = replace(PASSED, scope="frozen", population=Bounds(1.22, 1.41))

    says("reports", "an interval says which prompts it is about", about(these))
    assert "on these canaries" == about(replace(these, population=Bounds(None, 1.41)))
    assert ("for prompts like these", "") == (about(replace(PASSED, scope="population")), about(PASSED))


def test_each_swept_setting_says_whether_it_is_faster() -> None:
    """Faster or slower where the whole interval lies beside plain decoding; else not decided; a lack has its reason."""
    ratios = (Estimate(1.3, 1.2, 1.4, 8), Estimate(0.8, 0.7, 0.9, 8), Estimate(1.05, 0.95, 1.1, 8), Missing("no pairs"))
    speeds = [swept_speed(result).partition(",")[0] for result in choice_of(*ratios).results]

    assert ["faster", "slower", "not decided", "not measured"] == speeds


def test_a_run_that_decodes_plainly_is_named() -> None:
    """Speeds of drafting and of plain decoding are of two kinds: a comparison says which run decodes what plainly."""
    run = ComparedRun("a", "s", "2026-01-01T00:00:00Z", "promoted", "demo", None, "scripted")
    drafting, plain = WorkloadResult("promoted", {"draft": "d"}), WorkloadResult("unproven", {"draft": None})
    workloads = tuple(ComparedWorkload(name, (), drafting, b, ()) for name, b in (("x", plain), ("y", drafting)))

    (headline,) = headlines([RunComparison(run, run, (), (), (), workloads)])

    assert ["B", "decodes", "x", "plainly,"] == headline.split()[-7:-3]
