"""The verdict as plain lines and in one line."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.verdict.run_verdict import Measured, Transition, Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Finding, Outcome
from gatekeeper.report import plain_text
from gatekeeper.report.data.decision import decide
from tests.builders.golden_words import lines_with, says
from tests.builders.page_data import DRAFTED, RATIO, VERDICT, like_golden


def render(verdict: Verdict, policy: str | None = None) -> str:
    return plain_text.render(decide(verdict, policy=policy))


def render_line(verdict: Verdict, policy: str | None = None) -> str:
    return plain_text.render_line(decide(verdict, policy=policy))


MEASURED = Measured({"throughput_ratio": RATIO})
FAST = WorkloadVerdict("easy", WorkloadOutcome.PROMOTED, DRAFTED, True, "it is faster", (), measured=MEASURED)
PLAIN = WorkloadVerdict("hard", WorkloadOutcome.GRADED_BACK, {"draft": None}, False, "too slow", ())


def check(outcome: Outcome) -> Check:
    return Check(
        "throughput_ratio", "at_least", 1.16, outcome, 1.31, 1.22, 1.38, 24,
        unit="1", because="the reason", why="the why",
    )  # fmt: skip


def workload(outcome: str, *checks: Check, **more: Any) -> WorkloadVerdict:
    knobs = {"draft": "org/heavy", "num_draft_tokens": 4} if outcome == "promoted" else {"draft": None}
    return WorkloadVerdict(
        "easy", WorkloadOutcome(outcome), knobs, checks=checks, required=True, because="because of this", **more
    )


def test_a_promotion_is_a_few_lines() -> None:
    """Each workload with its setting, figures and checks; the decision itself is the screen that follows."""
    verdict = Verdict("made", "certification", "abc", (workload("promoted", check(Outcome.PASS), measured=MEASURED),))

    says("reports", "a promotion is a few lines", render(verdict))


def test_a_check_that_does_not_pass_has_the_why_of_its_objective() -> None:
    """Fail and unproven come with the objective's `why`, a pass without."""
    checks = (check(Outcome.FAIL), check(Outcome.UNPROVEN), check(Outcome.PASS))

    text = render(Verdict("made", "demo", "abc", (workload("failed", *checks),)))

    assert 2 == text.count(": the why\n")
    assert ("FAIL" in text, "unproven" in text, "because because of this" in text) == (True, True, True)


def test_steps_host_checks_and_findings_are_shown() -> None:
    """Transitions, host checks, findings and missing evidence are all in the summary."""
    step = Transition("now", "easy", {"draft": "org/heavy", "num_draft_tokens": 4}, {"draft": None}, "too slow")
    finding = Finding("quantisation_mismatch", "heavy", "other weights", "try another")
    verdict = Verdict(
        "made",
        "demo",
        "abc",
        (workload("graded_back"),),
        (check(Outcome.FAIL),),
        (finding,),
        (step,),
        incomplete="cut off",
    )

    text = render(verdict)

    for expected in (
        "easy: graded back, plain decoding",
        "\nhost\n  FAIL",
        "\neasy: heavy, draft length 4 -> plain decoding (too slow)",
        "\nquantisation mismatch, heavy: other weights\n  try another",
    ):
        assert expected in text


def test_a_whole_run_is_as_it_was() -> None:
    """Every line of a run that ended: compared with a stored file."""
    like_golden("verdict.txt", render(VERDICT))


def test_text_of_a_server_cannot_control_the_terminal() -> None:
    """Escape sequences in a server's text are replaced; line ends stay."""
    hostile = replace(workload("failed"), because="\x1b]0;mine\x07 gone")

    text = render(Verdict("made", "demo", "abc", (hostile,)))

    says(
        "reports",
        "text of a server cannot control the terminal, plain text (1)",
        lines_with("because �]0;mine�", text),
    )


def test_the_line_of_a_run_is_as_it_was() -> None:
    """A run that failed in every way: compared with a stored file."""
    like_golden("line.txt", render_line(VERDICT))


def test_the_line_of_a_promotion_has_the_speed() -> None:
    """Outcome, exit code and a demo's grade, then what to turn on, by how much, and until when."""
    verdict = Verdict("made", "demo", "abc", (FAST, PLAIN))

    line = render_line(verdict, 'expires = "2026-12-22T15:00:00.000000Z"')
    says("reports", "the line of a promotion has the speed", line.removesuffix("\n"))
    assert line.endswith("\n")


def test_what_is_missing_is_the_reason() -> None:
    """An incomplete run is named as such, also where a required route was graded back."""
    line = render_line(Verdict("made", "demo", "abc", (replace(PLAIN, required=True),), incomplete="cut off"))

    says("reports", "what is missing is the reason", lines_with("made: graded back (exit", line))
    assert line.endswith("; not proven: cut off\n")


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_text_stays_on_one_line(name: str, because: str) -> None:
    """The text of a server or a file adds no line, no control character and no page of text."""
    verdict = Verdict(
        "made", "demo", "abc", (replace(FAST, name=name, outcome=WorkloadOutcome.FAILED, because=because),)
    )

    line = render_line(verdict)

    assert (1, "\n") == (len(line.splitlines()), line[-1])
    assert line[:-1].isprintable()
    assert len(line) <= len(name) + 300
