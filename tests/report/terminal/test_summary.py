"""The summary at the end of a run: the decision, whole on one screen, and its explanations before it."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gatekeeper.analysis.verdict.run_verdict import AbandonedStep, Measured, Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Estimate, Outcome
from gatekeeper.report import run_document
from gatekeeper.report.data.decision import Decision, decide
from gatekeeper.report.terminal import summary
from tests.builders.golden_words import says
from tests.builders.page_data import CHECKS, DRAFTED, VERDICT, check, like_golden

POLICY = 'expires = "2026-12-22T15:00:00.000000Z"\n'
FIGURES = {
    name: Estimate(center, center * 0.9, center * 1.1, 24)
    for name, center in (
        ("throughput_ratio", 1.9),
        ("decode_throughput", 302.0),
        ("plain_decode_throughput", 159.0),
        ("acceptance_rate", 0.93),
    )
}
SOAKED = Measured(FIGURES)
JSON = WorkloadVerdict("json", WorkloadOutcome.PROMOTED, DRAFTED, True, "it is faster", CHECKS[:1], measured=SOAKED)
LATE = check("ttft_delta", "at_most", 0.08, Outcome.FAIL, 0.146, 0.135, 0.158)
EASY = WorkloadVerdict(
    "easy",
    WorkloadOutcome.GRADED_BACK,
    {"draft": None},
    True,
    "drafting off",
    (),
    measured=Measured({"decode_throughput": FIGURES["plain_decode_throughput"]}),
    steps=(AbandonedStep("soak-1", DRAFTED, WorkloadOutcome.FAILED, "too late", (LATE,), measured=SOAKED),),
)

OPEN = WorkloadVerdict("json", WorkloadOutcome.UNPROVEN, {"draft": None}, True, "too few answers", ())


def shown(decision: Decision, width: int = 80, height: int | None = 23, details: str = "") -> str:
    console = Console(width=width, record=True, file=io.StringIO(), highlight=False, markup=False)
    summary.show_on(console, decision, run=Path("runs/one"), slo="slos/a.toml", height=height, details=details)
    return console.export_text()


def test_the_summary_is_as_it_was() -> None:
    """With the explanations before it: no table row is broken, no word is cut, later lines of a paragraph are
    indented.
    """
    like_golden(
        "summary.txt",
        shown(decide(VERDICT, policy=POLICY), height=None, details=run_document.render_evidence(decide(VERDICT))),
    )


def test_the_decision_comes_first_and_the_next_step_last() -> None:
    """What to turn on, by how much and from which speed to which; then the figures; then where things are."""
    lines = shown(decide(Verdict("made", "certification", "f", (JSON,)), policy=POLICY)).splitlines()

    says("reports", "the decision comes first and the next step last (3)", "\n".join(lines[:5]))
    says("reports", "the decision comes first and the next step last (1)", lines[-2])
    says("reports", "the decision comes first and the next step last (2)", lines[-1])


@pytest.mark.parametrize(
    ("verdict", "certified", "row"),
    [
        (Verdict("made", "certification", "f", (EASY,)), False, "✕ easy: speculation required: drafting is off"),
        (
            Verdict("made", "certification", "f", (OPEN, replace(OPEN, name="easy"))),
            False,
            "? json and easy: speculation required: not decided: too few answers",
        ),
        (
            Verdict("made", "certification", "f", (JSON,), incomplete="chip is 'AMD EPYC'"),
            False,
            "? run: evidence complete: does not suffice: chip is 'AMD EPYC'",
        ),
        (Verdict("made", "demo", "f", (JSON,)), True, "? run: grade certification: demo: a demo is not a certificate"),
    ],
)
def test_what_decides_the_exit_code_is_a_row(verdict: Verdict, certified: bool, row: str) -> None:
    """Drafting that is not granted, evidence that is missing, a demo where it does not do: with a remedy."""
    decision = decide(verdict)

    lines = shown(decision.requiring_certificate() if certified else decision, 120).splitlines()

    assert any(line.startswith(row) for line in lines)
    assert any(line.strip().startswith(("what to do: ", "advice: ")) for line in lines)


def crowded(workloads: int, objectives: int) -> Decision:
    """Return a run of many workloads, each with many objectives that failed."""
    failed_checks = tuple(
        replace(LATE, metric=metric, threshold=0.01 * number, because="a reason of many words " * 5)
        for number in range(objectives)
        for metric in ("ttft_delta",)
    )
    workload_verdicts = tuple(
        replace(JSON, name=f"workload-{number}", outcome=WorkloadOutcome.FAILED, checks=failed_checks)
        for number in range(workloads)
    )
    return decide(Verdict("made", "certification", "f", workload_verdicts))


@pytest.mark.parametrize(("workloads", "objectives"), [(1, 1), (1, 9), (3, 3), (5, 5), (12, 4)])
@pytest.mark.parametrize(("width", "height"), [(80, 23), (200, 49), (60, 23)])
def test_it_fits_on_one_screen(workloads: int, objectives: int, width: int, height: int) -> None:
    """Details go first, then objectives and workloads beyond the first ones, each counted; the next step always
    stays.
    """
    lines = shown(crowded(workloads, objectives), width, height).splitlines()

    rows = sum(max(1, -(-len(line) // width)) for line in lines)
    objectives_shown = sum("workload-0: ttft_delta" in line for line in lines)
    assert rows <= height
    assert lines[-1].startswith("next: ")
    assert objectives_shown == objectives or any("more objective" in line for line in lines)
    says("reports", "it fits on one screen", lines[0])
    assert (
        shown(crowded(workloads, objectives), summary.UNBROKEN, None).count("why it matters") == workloads * objectives
    )


@pytest.mark.parametrize("width", [40, 55, 80, 120])
def test_a_narrow_summary_leaves_out_columns_only(width: int) -> None:
    """No line is wider than the terminal, but for paths and commands, which can be copied; the text below never
    changes.
    """
    lines = shown(decide(VERDICT, policy=POLICY), width, None).splitlines()
    copied = ("report: ", "run: ", "policy: ", "next: ")

    heads = next(line for line in lines if line.startswith("workload")).split()
    assert width >= max(len(line) for line in lines if not line.startswith(copied))
    assert ["workload", "drafting", "against"] == heads[:3]
    assert ("checks" in heads, "acceptance" in heads) == (width >= 80, width > 80)


def test_a_summary_prints_hostile_text_as_it_is() -> None:
    """A reason with markup of the terminal library neither fails the command nor controls the terminal."""
    bad = Check(
        "ttft", "at_most", 0.2, Outcome.FAIL, 1, 1, 1, 5,
        unit="s", because="[/nothing] \x1b]0;mine\x07", why="[bold]why[/]",
    )  # fmt: skip
    workload = WorkloadVerdict(
        "a\x1b[2J", WorkloadOutcome.FAILED, {"draft": None}, checks=(bad,), required=True, because="[/]"
    )

    text = shown(decide(Verdict("made", "demo", "abc", (workload,))))

    assert (True, True, False) == ("[/nothing]" in text, "[bold]why[/]" in text, "\x1b" in text)


def test_a_stored_run_ends_with_the_decision_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`judge` and `report` of an older run show the screen of `certify`, after the details of -v: whole lines in a
    pipe,
    wrapped on a terminal, with the run's name in each command, because it need not be the newest.
    """
    decision = decide(Verdict("made", "certification", "f", (EASY,)), policy=POLICY)
    text = f"  {'word ' * 40}\n"

    summary.show(decision, run=Path("runs/one"), slo="SLO.toml", details=text, newest=False)
    piped = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    summary.show(decision, run=Path("runs/one"), slo="SLO.toml", details=text, newest=False)
    on_terminal = capsys.readouterr().out

    assert piped.startswith(text.rstrip())
    says("reports", "a stored run ends with the decision on a terminal", on_terminal)
    assert max(map(len, on_terminal.splitlines())) <= 80
