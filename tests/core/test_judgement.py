"""The verdict of a run, and rounding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Estimate, Outcome, round_figure


@pytest.mark.parametrize(
    ("outcomes", "required", "host", "incomplete", "word", "code"),
    [
        (["promoted"], True, None, None, "promoted", 0),
        (["promoted", "graded_back"], False, None, None, "promoted", 0),
        (["promoted", "graded_back"], True, None, None, "graded_back", 1),
        (["promoted", "unproven"], False, None, None, "unproven", 3),
        (["failed", "unproven"], False, None, None, "failed", 1),
        (["graded_back", "unproven"], True, None, None, "graded_back", 1),
        (["promoted"], True, Outcome.FAIL, None, "failed", 1),
        (["promoted"], True, Outcome.UNPROVEN, None, "unproven", 3),
        (["promoted"], True, Outcome.PASS, None, "promoted", 0),
        (["promoted"], True, None, "cut off", "unproven", 3),
        ([], True, None, None, "unproven", 3),
    ],
)
def test_the_outcome_of_a_run(
    outcomes: list[str], host: Outcome | None, incomplete: str | None, word: str, code: int, *, required: bool
) -> None:
    """The contract's order: failed, then graded back, then unproven, else promoted; no workload at all is unproven."""
    checks = () if host is None else (Check("memory_headroom", "at_least", 1.0, host, unit="B", because="b", why="w"),)
    workloads = tuple(
        WorkloadVerdict(str(at), WorkloadOutcome(outcome), {}, required, "b", ()) for at, outcome in enumerate(outcomes)
    )

    verdict = Verdict("s", "demo", "m", workloads, checks, incomplete=incomplete)

    assert (word, code) == (verdict.outcome, verdict.exit_code)


@given(st.floats(-1e12, 1e12))
def test_rounding_is_stable_and_close(value: float) -> None:
    """Six significant digits, once and for all."""
    assert round_figure(value) == round_figure(round_figure(value))
    assert pytest.approx(value, rel=1e-5) == round_figure(value)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_rounding_keeps_the_order(values: list[float]) -> None:
    """A rounded interval is an interval."""
    lo, center, hi = sorted(values)

    near = Estimate(center, lo, hi, 1).round_figures()

    assert near.lo <= near.center <= near.hi
