"""Simulated servers that lie: what the verdict sees of it."""

from typing import Any

import pytest

from bench.rehearsal import Rehearsed, canaries, rehearse, slo
from gatekeeper.core.verdict import Check, Outcome

NO_LOGITS = ["arrivals", "token_count", "text", "rounds", "plain"]
ACCEPTS = {"metric": "acceptance_rate", "at_least": 0.1, "why": "nothing is said of speed or words"}


def certified(
    script: dict[str, Any], *objectives: dict[str, Any], seed: int = 3, count: int = 24, **changes: Any
) -> Rehearsed:
    """Certify a server of 1.5x whose script is changed by *script*."""
    written = {
        "workload": [{"name": "work", "canaries": "work.jsonl"}],
        "sweep": {"repeats": 1, "num_draft_tokens": [4]},
        "soak": {"duration": 60.0, "sentinel_share": 0.5},
        "objective": list(objectives) or [ACCEPTS],
        **changes,
    }
    honest = {"tokens": 41, "noise": {"answer": 0.05}, "ratio": 1.5}
    return rehearse(slo(**written), {"work": canaries("work", count)}, {**honest, **script}, seed)


def kinds(ran: Rehearsed) -> set[str]:
    return {one.kind for one in ran.verdict.findings}


def checked(ran: Rehearsed, metric: str) -> Check:
    return next(one for one in ran.verdict.workloads[0].checks if one.metric == metric)


@pytest.mark.parametrize("wording", ["other", "twice"])
@pytest.mark.parametrize("sight", [None, NO_LOGITS], ids=["logits", "no logits"])
def test_wrong_words_at_temperature_0_are_not_promoted(wording: str, sight: list[str] | None) -> None:
    """
    A draft that writes other words, or every word twice, is refused though no objective names agreement.
    """
    ran = certified({"wording": wording} | ({"sight": sight} if sight else {}))

    (step,) = ran.verdict.transitions
    assert ran.verdict.exit_code == 1
    assert "token_agreement: 0, below the required" in step.because


def test_wrong_words_that_are_allowed_are_told() -> None:
    """
    An SLO that relaxes agreement by naming it is taken at its word; a finding says which words differ.
    """
    named = {"metric": "token_agreement", "at_least": 0.0, "why": "we only want speed"}

    ran = certified({"wording": "other"}, named)

    (finding,) = ran.verdict.findings
    assert (0, "answers_differ") == (ran.verdict.exit_code, finding.kind)
    assert "24 of 24 canaries get other words" in finding.detail


@pytest.mark.parametrize(
    ("script", "found"),
    [
        pytest.param({"gap": 0.05}, set(), id="near-ties that the logits show"),
        pytest.param({"sight": NO_LOGITS}, {"answers_differ"}, id="late differences without logits"),
    ],
)
def test_an_honest_engine_with_near_ties_is_promoted(script: dict[str, Any], found: set[str]) -> None:
    """
    Verify passes may swap tokens that nearly tie: shown by logits, or late in an answer where there are none.
    """
    ran = certified({"agreement": 0.0, **script})

    assert (0, 1.0, found) == (ran.verdict.exit_code, checked(ran, "token_agreement").center, kinds(ran))


def test_a_few_canaries_of_many_show_no_agreement() -> None:
    """
    An implicit agreement needs twelve canaries in both arms: with fewer of many it is unproven, not passed.
    """
    brief = {"duration": 60.0, "max_duration": 60.0, "sentinel_share": 0.1}

    ran = certified({"token": "200 ms"}, count=48, soak=brief)

    check = checked(ran, "token_agreement")
    assert (3, Outcome.UNPROVEN) == (ran.verdict.exit_code, check.outcome)
    assert "too few to compare the words" in check.because


def test_equal_arms_are_not_promoted_where_no_ratio_is_promised() -> None:
    """
    A draft that gains nothing stays off, though the SLO bounds its acceptance alone.
    """
    assert not [seed for seed in range(5) if certified({"ratio": 1.0}, seed=seed).verdict.outcome == "promoted"]
