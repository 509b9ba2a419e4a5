"""What a reader would have to guess is said in plain words: likelihoods, counts of tries, servers without a draft."""

import io
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import setting
from gatekeeper.report.commands.admit_text import admit_text
from gatekeeper.report.data.progress import Progress
from gatekeeper.report.data.workload_summary import summary_of
from gatekeeper.report.document_text import render_text
from gatekeeper.report.terminal.progress_lines import plain_lines
from gatekeeper.versus.versus_document import versus_document
from gatekeeper.versus.versus_result import ComparedSide, MetricComparison, VersusResult
from tests.builders.page_data import PAGE, event
from tests.builders.slo import generation, steady


@pytest.mark.parametrize(
    ("nats", "words"),
    [
        (0.0, "tokens as likely as without the draft"),
        (0.0198, "tokens 2 % less likely than without the draft"),
        (-0.0198, "tokens 2 % more likely than without the draft"),
    ],
)
def test_a_likelihood_is_a_share(nats: float, words: str) -> None:
    """A change of the log-likelihood is shown as how much less likely a token is, which needs no unit."""
    workload = PAGE.verdict.workloads[0]
    figures = {**workload.measured.figures, "nll_delta": Estimate(nats, nats, nats, 9)}
    read = replace(workload, measured=replace(workload.measured, figures=figures))

    assert words in (summary_of(read).quality or "")


@pytest.mark.parametrize(
    ("failed", "words"), [(0, "no finished run of this is known"), (2, "at least 2 of 3 finished")]
)
def test_a_count_of_none_is_no_lower_bound(failed: int, words: str) -> None:
    """'At least 0' says nothing; a count that may be too small says so, with the reason."""
    tries = {"finished": 3, "not_passed": failed, "at_least": True, "because": "the record was lost"}
    document: dict[str, Any] = {
        "exit_code": 0, "reason": "admitted", "because": "it passed", "run": "r", "slo": "s", "next": "deploy it",
        "checks": (), "passed_over": (), "tries": tries,
    }  # fmt: skip

    assert f"  tries       {words}" in admit_text(document)
    assert "(the record was lost)" in admit_text(document)


def test_acceptance_of_one_side_is_not_called_unmeasured() -> None:
    """Where one system drafts and the other does not, its acceptance was measured, and there is nothing to compare."""
    accepted = {"acceptance_rate": Estimate(0.789, 0.7, 0.8, 9)}
    plain_side = ComparedSide("A", "A", {}, None, setting(draft=None), {}, None)
    drafting_side = replace(plain_side, label="B", name="B", measured=accepted)
    missing = MetricComparison("acceptance_rate", Missing("no answer has a value for it"), "not measured")

    result = VersusResult("s", "w", 0.95, plain_side, drafting_side, (), (missing,), None, (), 20.0, 1, None)
    lines = [" ".join(line.split()) for line in render_text(versus_document(result)).splitlines()]

    assert "B: B: 78.9 % of drafted tokens accepted" in lines
    assert "acceptance_rate - only B shows that it drafts, so there is nothing to compare" in lines


@pytest.mark.parametrize(
    ("draft", "words"), [(None, "tok/s plain"), ("as-served", "tok/s as served"), ("heavy", "tok/s drafting")]
)
def test_a_server_without_a_draft_does_not_draft(draft: str | None, words: str) -> None:
    """The progress of versus times servers with and without a draft: the word is that of the setting."""
    now, file = [0.0], io.StringIO()
    observe = plain_lines(Progress(lambda: now[0]), file, lambda: now[0])
    observe(event(0, "begin", run="r", slo="s", workloads=("easy",), expected={}))
    for second in range(1, 9):
        now[0] = float(second)
        answer = replace(generation(steady(0.02, 20)), setting=setting(draft=draft), workload="easy", trial="b")
        observe(event(second, "answer", generation=answer, answered=second, of=8))

    (line,) = [line for line in file.getvalue().splitlines() if "easy" in line]
    assert words in line
