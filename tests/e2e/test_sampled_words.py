"""Whole runs above temperature 0 of a system that shows text alone: words are checked there too."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.builders.project_folder import ProjectFolder, canary_lines

AS_A_SERVER = ["arrivals", "token_count", "text", "claimed_rounds", "memory", "plain"]
SAMPLED: dict[str, Any] = {
    "sampling": {"temperature": 0.7, "max_tokens": 48},
    "workload": [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}],
    "objective": [{"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}],
    "soak": {"duration": "600 s"},
}
OPEN = {"canaries": {"easy-": {"acceptance": 0.9}}, "sight": AS_A_SERVER}


def certified(scripted: Callable[..., ProjectFolder], **truth: Any) -> dict[str, Any]:
    """Certify with the 33 canaries that the harm test needs above temperature 0, and return the workload."""
    project = scripted({**OPEN, **truth}, **SAMPLED)
    (project.path / "easy.jsonl").write_text(canary_lines("easy", 33))
    project.run("certify", "slo.toml", "--out", "run")
    (workload,) = project.verdict()["workloads"]
    return dict(workload)


def test_a_sound_draft_is_promoted_by_its_words_too(scripted: Callable[..., ProjectFolder]) -> None:
    """Answers that are drawn alike differ from each other by chance, and pass, with what would have been found."""
    workload = certified(scripted)

    checks = {check["metric"]: check for check in workload["checks"]}
    assert "promoted" == workload["outcome"]
    assert {"pass"} == {check["outcome"] for check in checks.values()}
    assert "found if" in checks["numerics_harm_p_value"]["because"]
    assert "found if" in checks["sampled_answers_p_value"]["because"]
    assert "truncation_rate" not in checks


@pytest.mark.parametrize(
    ("vice", "metric"),
    [
        ({"wording": "other"}, "sampled_answers_p_value"),
        ({"faults": [{"every": 2, "arm": "candidate", "fault": "short"}]}, "numerics_harm_p_value"),
    ],
    ids=["other words", "junk up to the limit"],
)
def test_a_draft_that_changes_words_is_graded_back(
    scripted: Callable[..., ProjectFolder], vice: dict[str, Any], metric: str
) -> None:
    """Other words, and answers that only end at their limit, are found without logits, and named."""
    workload = certified(scripted, **vice)

    assert "graded_back" == workload["outcome"]
    assert any(
        check["metric"] == metric and check["outcome"] == "fail"
        for step in workload["steps"]
        for check in step["checks"]
    )
