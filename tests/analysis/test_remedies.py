"""What was not proven, and what would prove it."""

from dataclasses import replace

import pytest

from gatekeeper.analysis.remedies import gaps, passes_at, remedy
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Doubt, Outcome
from tests.builders.slo import slo


def check(metric: str = "throughput_ratio", bound: str = "at_least", **interval: float) -> Check:
    return Check(metric, bound, 1.16, Outcome.UNPROVEN, unit="1", because="because", why="why", **interval)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("unproven", "says"),
    [
        # The lower side is 0.2 wide, the room 0.1: half the width takes four times the canaries.
        (check(center=1.26, lo=1.06, hi=1.5, n=12), "about 48 canaries instead of 12"),
        (check("footprint_growth", "at_most", center=1.06, lo=0.9, hi=1.31, n=65), "soak about 6.3 times as long"),
        (check("ttft_delta", "at_most", center=1.06, lo=0.9, hi=1.36, n=10), "about 90 canaries instead of 10"),
        (check(center=1.1, lo=1.0, hi=1.2, n=12), "change the setting or the bound"),
        (check(center=1.16, lo=1.0, hi=1.3, n=12), "too close to 1.16x"),
        (check(center=1.1601, lo=1.0, hi=1.3, n=12), "too close"),
        (check("memory_headroom"), "gatekeeper doctor"),
        (check("acceptance_window_min"), "three windows"),
        (check("token_agreement"), "soak longer"),
        (check("ttft"), "distinct canaries"),
        (check("throughput_ratio"), "remove the cause"),
        (replace(check("ttft"), because="this server does not report its first token"), "a server that reports it"),
        (replace(check(), because="too few canaries in both arms: 4, need 5"), "add canaries"),
    ],
)
def test_each_gap_has_its_remedy(unproven: Check, says: str) -> None:
    """An interval across its bound names the canaries that would carry it off; a missing value says where to look."""
    assert says in remedy(unproven)


@pytest.mark.parametrize(
    ("bound", "interval", "limit"),
    [
        ("at_most", {"lo": 0.135, "hi": 0.158}, 0.16),
        ("at_most", {"lo": 0.29, "hi": 0.29}, 0.29),
        ("at_least", {"lo": 1.2299, "hi": 1.5}, 1.2),
        ("at_least", {"lo": -0.123, "hi": 0.1}, -0.13),
        ("at_least", {"lo": 9.96e9, "hi": 9.96e9}, 9.9e9),
        ("at_most", {"lo": 0.0, "hi": 0.0}, 0.0),
        ("at_most", {}, None),
        ("at_least", {"lo": 0.0, "hi": 0.5}, None),
    ],
)
def test_the_bound_that_would_have_passed_is_rounded_to_the_safe_side(
    bound: str, interval: dict[str, float], limit: float | None
) -> None:
    """Two digits, upwards for a largest value and downwards for a smallest one."""
    assert limit == passes_at(check("ttft_delta", bound, **interval))


def verdict(**changes: object) -> Verdict:
    checks = (check(), replace(check(), outcome=Outcome.PASS), replace(check(), outcome=Outcome.FAIL))
    workload = WorkloadVerdict(
        "easy", WorkloadOutcome.UNPROVEN, {}, checks=checks, required=True, because="because of this"
    )
    return replace(Verdict("made", "certification", "abc", (workload,)), **changes)  # type: ignore[arg-type]


def test_only_what_is_not_proven_is_a_gap() -> None:
    """Kept and failed objectives are proven; what is open is named with its workload and its bound."""
    assert ["easy: throughput_ratio ≥ 1.16x"] == [gap.about for gap in gaps(slo(), verdict(), resumable=False)]


def test_the_runs_own_evidence_comes_first() -> None:
    """Records that do not suffice stand before all else, with the command that continues where the run can."""
    undecided = verdict(incomplete="cut off", host_checks=(check("memory_headroom"),), grade="demo")

    (run, promise, host, grade) = gaps(slo(), undecided, resumable=True)

    assert ("the run", "cut off", True) == (run.about, run.because, "--resume" in run.remedy)
    assert ("continue the run", "continue the run") == (promise.remedy, host.remedy)
    assert "the grade" == grade.about
    assert "certify again" == gaps(slo(), undecided, resumable=False)[0].remedy


def test_each_doubt_of_the_records_has_its_own_advice() -> None:
    """Doubts with one advice are one gap; another has a gap of its own."""
    doubts = Doubt("a is cut off"), Doubt("b is missing"), Doubt("another chip", "certify there")

    run = gaps(slo(), verdict(incomplete="of all these", doubts=doubts), resumable=False)[:2]

    restore = "restore the run from a copy, or certify again"
    expected = [("a is cut off; b is missing", restore), ("another chip", "certify there")]
    assert expected == [(gap.because, gap.remedy) for gap in run]


def test_an_outcome_that_no_check_explains_is_a_gap() -> None:
    """A workload that is unproven without an open objective says why itself."""
    bare = replace(verdict().workloads[0], checks=())

    (gap,) = gaps(slo(), verdict(workloads=(bare,)), resumable=False)

    assert ("easy: its outcome", "because of this") == (gap.about, gap.because)
