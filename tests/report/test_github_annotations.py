"""GitHub's annotations on the lines of an SLO file."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.verdict.run_verdict import AbandonedStep, Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Finding, Outcome
from gatekeeper.core.text import printable_error
from gatekeeper.report import github_annotations
from gatekeeper.report.data.decision import decide
from tests.builders.golden_words import lines_with, says
from tests.builders.page_data import like_golden
from tests.builders.slo import objective, slo

SLO = slo(
    objective("throughput_ratio", at_least=1.16),
    objective("ttft", at_most=0.2),
    objective("memory_headroom", at_least=10e9),
)
TEXT = """schema = 1
name = "made"

[[workload]]
name = "easy"
canaries = "easy.jsonl"

[[objective]]
metric = "throughput_ratio"
at_least = 1.16

[[objective]]
metric = "ttft"
at_most = "200 ms"

[[objective]]
metric = "memory_headroom"
at_least = "10 GB"
"""


def check(metric: str, bound: str, threshold: float, outcome: Outcome) -> Check:
    return Check(metric, bound, threshold, outcome, unit="1", because=f"{metric} says 50%,\nno", why="it was promised")


CHECKS = (
    check("throughput_ratio", "at_least", 1.16, Outcome.PASS),
    check("ttft", "at_most", 0.2, Outcome.UNPROVEN),
    check("error_rate", "at_most", 0.0, Outcome.FAIL),
)


def verdict(outcome: str = "failed", *, required: bool = True) -> Verdict:
    easy = WorkloadVerdict("easy", WorkloadOutcome(outcome), {"draft": None}, required, "because of this", CHECKS)
    host = (check("memory_headroom", "at_least", 10e9, Outcome.FAIL),)
    return Verdict("made", "demo", "abc", (easy,), host, (Finding("odd", "host: a, b", "seen", "look"),))


def shown(judged: Verdict) -> list[tuple[str, int]]:
    """Return the kind and the line of each command."""
    text = github_annotations.render(decide(judged), SLO, TEXT, "slos/made.toml")
    commands = [re.match(r"::(\w+) file=slos/made.toml,line=(\d+),title=[^:]*::", line) for line in text.splitlines()]
    return [(match.group(1), int(match.group(2))) for match in commands if match is not None]


def test_each_failed_check_has_the_line_of_its_objective() -> None:
    """Fails come first, then what is unproven, then findings; an implicit objective has its workload's line."""
    assert [("error", 5), ("error", 17), ("error", 13), ("warning", 1)] == shown(verdict())


def test_an_optional_workload_that_steps_back_is_a_notice() -> None:
    """It may decode plainly, so no error is shown for it; one that requires speculation is an error, at the line of its
    objective on the ratio, which no setting of the sweep reached.
    """

    def back(*, required: bool) -> Verdict:
        stepped_back = verdict("graded_back", required=required)
        return replace(stepped_back, workloads=(replace(stepped_back.workloads[0], checks=()),))

    assert ("notice", 5) in shown(back(required=False))
    assert ("error", 9) in shown(back(required=True))


@pytest.mark.parametrize(("required", "kind"), [(True, "error"), (False, "notice")])
def test_an_objective_that_settings_given_up_broke_has_its_line(kind: str, *, required: bool) -> None:
    """The workload decodes plainly now; the annotation stands at the objective that drafting broke, with its
    figures.
    """
    late = replace(check("ttft", "at_most", 0.2, Outcome.FAIL), unit="s", center=0.3, lo=0.28, hi=0.312)
    step = AbandonedStep(
        "soak-1", {"draft": "heavy", "num_draft_tokens": 4}, WorkloadOutcome.FAILED, "too late", (late,)
    )
    stepped_back = verdict("graded_back", required=required)
    given_up = replace(
        stepped_back, workloads=(replace(stepped_back.workloads[0], checks=(), steps=(step,)),), host_checks=()
    )

    text = github_annotations.render(decide(given_up), SLO, TEXT, "slos/made.toml")

    assert (kind, 13) in shown(given_up)
    annotation = lines_with("while drafting", text)
    title, _, body = annotation.removeprefix(f"::{kind} file=slos/made.toml,line=13,title=").partition("::")
    says("reports", "an objective that settings given up broke has its line: title", title)
    says(
        "reports",
        "an objective that settings given up broke has its line: figures",
        body.split("%0Ait was promised")[0],
    )


def test_an_outcome_without_an_open_check_is_an_error() -> None:
    """A workload that is unproven although no check is open ends the job, so it is an error at its line; where the
    whole
    run is incomplete, that is said once.
    """
    unproven = verdict("unproven")
    bare = replace(
        unproven, workloads=(replace(unproven.workloads[0], checks=CHECKS[:1]),), host_checks=(), findings=()
    )

    assert [("error", 5)] == shown(bare)
    assert [] == shown(replace(bare, workloads=(replace(bare.workloads[0], outcome=WorkloadOutcome.PROMOTED),)))
    assert [("error", 1)] == shown(replace(bare, incomplete="cut off"))


def test_the_commands_are_as_they_were() -> None:
    """Compared with a stored file: percent signs, line ends, colons and commas are escaped where they must be."""
    like_golden(
        "annotations.txt", github_annotations.render(decide(verdict("graded_back")), SLO, TEXT, "slos/made.toml")
    )


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_one_command(message: str, title: str) -> None:
    """Whatever is said, the command is one line without control characters, and reads back as what was said."""
    line = github_annotations.command("error", message, "a.toml", 3, title)
    head, _, body = line.removeprefix("::error ").partition("::")
    read = dict(pair.split("=", 1) for pair in head.split(","))

    def undone(text: str) -> str:
        for code, char in (("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(code, char)
        return text

    assert "\n" not in line
    assert "\r" not in line
    assert not {char for char in line if not char.isprintable()}
    printable = [printable_error("\n".join(text.splitlines())) for text in (title, message)]
    assert printable == [undone(read["title"]), undone(body)]
