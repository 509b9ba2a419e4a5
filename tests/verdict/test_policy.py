"""What may be deployed."""

from typing import Any

import pytest

from gatekeeper.terms.outcome import Check, Outcome, Verdict, WorkloadVerdict
from gatekeeper.verdict.policy import policy
from tests.verdict.made import objective, slo

SETTING = {"draft": "heavy", "num_draft_tokens": 4}


def ended(name: str, outcome: str, **more: Any) -> WorkloadVerdict:
    knobs = SETTING if outcome == "promoted" else {"draft": None}
    return WorkloadVerdict(name, outcome, knobs, (), required=False, because=f"{name} is {outcome}", **more)


def written(*workloads: WorkloadVerdict, host: tuple[Check, ...] = (), **changes: Any) -> dict[str, Any]:
    verdict = Verdict("made", "certification", "abc", workloads, host)
    return policy(slo(**changes), verdict, verdict_sha256="def", issued="now", expires="later")


def test_only_promoted_workloads_speculate() -> None:
    """
    A route per workload; one that was graded back decodes plainly, and so does everything unknown.
    """
    found = written(ended("easy", "promoted"), ended("hard", "graded_back"))

    assert [("easy", True, SETTING), ("hard", False, {})] == [
        (one["workload"], one["speculation"], one["setting"]) for one in found["route"]
    ]
    assert {"speculation": False} == found["default"]


@pytest.mark.parametrize("outcome", ["graded_back", "failed", "unproven"])
def test_nothing_else_turns_speculation_on(outcome: str) -> None:
    """
    Every other outcome is off, with its reason and without a guard.
    """
    found = written(ended("easy", outcome))

    assert [(False, f"easy is {outcome}")] == [(one["speculation"], one["because"]) for one in found["route"]]
    assert [] == found["guard"]


def test_a_host_that_failed_turns_every_route_off() -> None:
    """
    Memory that ran out does not ask which workload it was.
    """
    failed = Check("memory_headroom", "at_least", 1e10, Outcome.FAIL, "B", "short", "it must fit")

    found = written(ended("easy", "promoted"), host=(failed,))

    assert [False] == [one["speculation"] for one in found["route"]]


@pytest.mark.parametrize(("hi", "warm"), [(0.05, False), (0.08, False), (0.2, True)])
def test_a_wider_ttft_asks_for_a_warm_up(hi: float, *, warm: bool) -> None:
    """
    More than 8 % on TTFT needs an explicit warm-up policy.
    """
    found = written(ended("easy", "promoted", measured={"ttft_delta": {"center": 0.0, "lo": 0.0, "hi": hi}}))

    assert warm == found["route"][0].get("warm_up", False)


def test_promises_become_guards() -> None:
    """
    What can be watched in production is guarded with its own bound, over the acceptance window, errors always.
    """
    promises = [
        objective("acceptance_window_min", at_least=0.4, workloads=["easy"]),
        objective("memory_headroom", at_least="10 GB"),
        objective("itl_p95", at_most=0.045),
    ]

    found = written(ended("easy", "promoted"), objective=promises)

    assert [
        {"metric": "acceptance_rate", "at_least": 0.4, "for": 120.0, "workloads": ["easy"]},
        {"metric": "memory_headroom", "at_least": 1e10, "for": 120.0},
        {"metric": "error_rate", "at_most": 0.0, "for": 120.0},
    ] == found["guard"]


def test_the_policy_says_what_it_rests_on() -> None:
    """
    The digests of the manifest and the verdict, the grade and both dates travel with it.
    """
    found = written(ended("easy", "promoted"))

    names = ("schema", "slo", "grade", "manifest_sha256", "verdict_sha256", "issued", "expires")
    assert (1, "made", "certification", "abc", "def", "now", "later") == tuple(found[name] for name in names)
