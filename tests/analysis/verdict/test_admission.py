"""What a stored run must be before it counts for a deploy."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.verdict import admission
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.errors import NoProofError
from gatekeeper.core.judgement import Check, Outcome

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = 86400.0
days = st.floats(0.01, 4000, allow_nan=False)


def refused(call: Any, *words: Any, **more: Any) -> str | None:
    try:
        call(*words, **more)
    except NoProofError as error:
        return error.reason
    return None


@given(days, days, days, st.none() | days)
def test_no_age_ever_prolongs(issued: float, ended: float, valid: float, most: float | None) -> None:
    """A run counts no longer than its SLO grants, than the caller allows, and than its records are old."""
    times = {"issued": NOW - timedelta(days=issued), "ended": NOW - timedelta(days=ended)}

    until = admission.expiry(**times, valid_for=valid * DAY, max_age=None if most is None else most * DAY)

    assert until <= min(times.values()) + timedelta(seconds=valid * DAY)
    assert most is None or until <= min(times.values()) + timedelta(seconds=most * DAY)
    assert until <= admission.expiry(**times, valid_for=valid * DAY, max_age=None)


def test_a_validity_beyond_the_calendar_is_no_crash() -> None:
    """Ten thousand years are simply the end of the calendar."""
    until = admission.expiry(issued=NOW, ended=NOW, valid_for=1e13, max_age=None)

    assert 9999 == until.year


@pytest.mark.parametrize(
    ("until", "issued", "expected"),
    [
        (NOW + timedelta(seconds=1), NOW - timedelta(days=1), None),
        (NOW, NOW - timedelta(days=1), "expired"),
        (NOW + timedelta(days=9), NOW + timedelta(minutes=4), None),
        (NOW + timedelta(days=9), NOW + timedelta(minutes=6), "not_yet_valid"),
    ],
)
def test_the_last_moment_is_too_late(until: datetime, issued: datetime, expected: str | None) -> None:
    """A run counts until its last moment and not in it; one from the future has a wrong clock."""
    assert expected == refused(admission.in_time, until, issued, NOW)


def check(outcome: Outcome) -> Check:
    return Check("swap_growth", "at_most", 0, outcome, unit="B", because="it grew", why="no swap")


def verdict(*outcomes: str, required: bool = True, host: tuple[Check, ...] = (), **more: Any) -> Verdict:
    workloads = [
        WorkloadVerdict(
            f"w{at}", WorkloadOutcome(outcome), {"draft": None}, checks=(), required=required, because=f"so {at}"
        )
        for at, outcome in enumerate(outcomes)
    ]
    return Verdict("made", more.pop("grade", "certification"), "abc", tuple(workloads), host, **more)


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (verdict("promoted"), None),
        (verdict("promoted", "graded_back", required=False), None),
        (verdict("promoted", "graded_back"), "w1: graded back: so 1"),
        (verdict("failed", "promoted"), "w0: failed: so 0"),
        (verdict("promoted", host=(check(Outcome.FAIL),)), "host: swap_growth: it grew"),
    ],
)
def test_broken_promises_are_named(ended: Verdict, reason: str | None) -> None:
    """A run that may not be deployed names the objectives it failed, the host's included."""
    assert reason == admission.describe_failure(ended)


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (verdict("promoted"), None),
        (verdict("failed"), None),  # a failed objective is proven
        (verdict("unproven"), "unproven"),
        (verdict("promoted", incomplete="soak-1.jsonl: cut off"), "unproven"),
        (verdict("promoted", host=(check(Outcome.UNPROVEN),)), "unproven"),
        (verdict(), "unproven"),
    ],
)
def test_unproven_is_no_proof(ended: Verdict, expected: str | None) -> None:
    """Whatever leaves a verdict unproven, nothing at all included, refuses it."""
    assert expected == refused(admission.require_proof, ended)


def test_a_demo_is_told_from_a_certification() -> None:
    """Only who asks for a demo gets one."""
    demo = verdict("promoted", grade="demo")

    assert ["demo", None, None] == [
        refused(admission.long_enough, demo, demo=False),
        refused(admission.long_enough, demo, demo=True),
        refused(admission.long_enough, verdict("promoted"), demo=False),
    ]
