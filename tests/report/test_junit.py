"""The verdict as JUnit XML, as CI systems read it."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gatekeeper.analysis.verdict.run_verdict import AbandonedStep, Measured, Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.report import junit
from tests.builders.page_data import VERDICT, like_golden

SOAKED = Measured(soak_seconds=2000 / 3)


def check(outcome: Outcome, metric: str = "throughput_ratio", because: str = "[1.2, 1.3]", why: str = "pays") -> Check:
    return Check(metric, "at_least", 1.16, outcome, 1.25, 1.2, 1.3, 12, unit="1", because=because, why=why)


def workload(outcome: str, *checks: Check, required: bool = True) -> WorkloadVerdict:
    return WorkloadVerdict("easy", WorkloadOutcome(outcome), {"draft": "heavy"}, required, "because of this", checks)


def read(*workloads: WorkloadVerdict, host: tuple[Check, ...] = (), incomplete: str | None = None) -> ET.Element:
    return ET.fromstring(junit.render(Verdict("made", "demo", "abc", workloads, host, incomplete=incomplete)))  # noqa: S314


def counts(root: ET.Element) -> tuple[str | None, ...]:
    return tuple(root.get(name) for name in ("tests", "failures", "errors"))


def tags(case: ET.Element) -> list[str]:
    """Return what is wrong with a case."""
    return [child.tag for child in case if child.tag != "properties"]


def test_pass_fail_and_unproven() -> None:
    """A pass has no child, a fail is <failure>, an unproven is <error>, with reason and why; nothing is ever
    <skipped>.
    """
    root = read(
        workload("failed", check(Outcome.PASS), check(Outcome.FAIL, "ttft"), check(Outcome.UNPROVEN, "itl_p95"))
    )

    kinds = {str(case.get("name")).split()[0]: tags(case) for case in root.iter("testcase")}
    assert {"outcome": ["failure"], "throughput_ratio": [], "ttft": ["failure"], "itl_p95": ["error"]} == kinds
    assert [] == list(root.iter("skipped"))
    assert ("4", "2", "1") == counts(root) == counts(root[0])
    assert "pays" in "".join(root.itertext())


@pytest.mark.parametrize(
    ("outcome", "required", "expected"),
    [
        ("promoted", True, []),
        ("graded_back", False, []),
        ("graded_back", True, ["failure"]),
        ("failed", False, ["failure"]),
        ("unproven", False, ["error"]),
    ],
)
def test_the_outcome_of_a_workload_is_a_case(outcome: str, expected: list[str], *, required: bool) -> None:
    """CI is red exactly where the exit code is: an optional workload may decode plainly."""
    root = read(workload(outcome, required=required))

    assert expected == [tag for case in root.iter("testcase") for tag in tags(case)]


GIVEN_UP = tuple(
    AbandonedStep(
        f"soak-{number}",
        {"draft": "heavy", "num_draft_tokens": length},
        WorkloadOutcome.FAILED,
        "too late",
        (failed_check,),
        measured=SOAKED,
    )
    for number, length, failed_check in (
        (1, 4, replace(check(Outcome.FAIL, "ttft_delta", "+30 %"), bound="at_most", threshold=0.08, lo=0.28, hi=0.32)),
        (2, 2, replace(check(Outcome.FAIL, "ttft_delta", "+14 %"), bound="at_most", threshold=0.08, lo=0.13, hi=0.158)),
    )
)


def test_an_objective_that_no_setting_met_is_a_failed_case_with_its_figures() -> None:
    """A workload that requires speculation fell back: the objective is one failure, with the closest setting's figures,
    every setting that was tried, and the bound that would have passed. The time of the suite is that of all soaks.
    """
    root = read(replace(workload("graded_back", check(Outcome.PASS)), steps=GIVEN_UP, measured=SOAKED))

    (case,) = [testcase for testcase in root.iter("testcase") if str(testcase.get("name")).endswith(" while drafting")]
    figures = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
    text = "".join(case.itertext())
    assert ["failure"] == tags(case)
    assert ("0.158", "0.08") == (figures["hi"], figures["threshold"])
    assert "num_draft_tokens 2" in str(figures["setting"])
    assert ("+30 %" in text, "passes at \u2264 +16 %" in text) == (True, True)
    assert ("3", "2", "0") == counts(root)
    assert {"2000"} == {element.get("time") for element in (root, *root)}


@pytest.mark.parametrize(("outcome", "required"), [("promoted", True), ("graded_back", False)])
def test_an_objective_that_a_lower_step_met_is_no_failure(outcome: str, *, required: bool) -> None:
    """CI is red exactly where the exit code is: a setting given up for a better one fails nothing."""
    root = read(replace(workload(outcome, check(Outcome.PASS), required=required), steps=GIVEN_UP))

    assert ("2", "0", "0") == counts(root)


ANY_TEXT = st.text(st.characters(), max_size=40)
FORBIDDEN = "\x00\x0b\x1b\x1f\ud800\udfff\ufffe\uffff"


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
@example(FORBIDDEN, FORBIDDEN, FORBIDDEN)
def test_any_text_makes_a_document(because: str, why: str, name: str) -> None:
    """Quotes, brackets, control characters, half a surrogate pair: whatever is said or named never breaks the file."""
    named_workload = replace(workload("failed", check(Outcome.FAIL, because=because, why=why)), name=name)
    root = read(named_workload, incomplete=f"why: {because}")

    assert ("3", "2", "1") == counts(root)
    junit.render(Verdict("made", "demo", "abc", (named_workload,), incomplete=f"why: {because}")).encode()


def test_the_document_is_as_it_was() -> None:
    """A run with every outcome, as CI systems read it, is the stored file; two checks of one metric have two names."""
    root = read(workload("promoted", check(Outcome.PASS), check(Outcome.PASS)), incomplete="tab\tand \U0001f600")
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]

    like_golden("junit.xml", junit.render(VERDICT))
    assert len(names) == len(set(names))
    assert "tab\tand \U0001f600" == next(root.iter("error")).text


def test_no_number_is_missing() -> None:
    """Every suite says how many cases it has, and how many failed, were in error or skipped, and has the time of its
    soaks, which its cases add up to. Two workloads of one soak do not make the run longer. No time stands for an
    unknown one.
    """
    soaked = replace(workload("promoted", check(Outcome.PASS)), measured=Measured(soak_seconds=600.0))
    second = replace(soaked, name="other")
    root = read(soaked, second, host=(check(Outcome.PASS, "memory_headroom"),))

    for suite in (root, *root):
        numbers = [suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")]
        assert [] == [number for number in numbers if number is None or not number.isdigit()]
    assert {"600"} == {element.get("time") for element in (root, *root)}
    for suite in root:
        expected = {"host": 0.0}.get(str(suite.get("name")), 600.0)
        assert expected == sum(float(case.get("time", "nan")) for case in suite.iter("testcase"))
    assert {None} == {element.get("time") for element in read(workload("promoted", check(Outcome.PASS))).iter()}
