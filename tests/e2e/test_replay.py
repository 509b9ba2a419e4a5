"""Whole runs as on real chips: another kernel for several tokens, and engines with a defect on top of it."""

import sys
from typing import Any

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder

pytestmark = pytest.mark.mlx

PERTURBED = f"""\
import runpy
import sys

sys.path.insert(0, {str(ROOT)!r})
runpy.run_module("bench.exactness.perturbed", run_name="__main__", alter_sys=True)
"""
OTHER_KERNEL = ("-sbits=4", "-slogits=0.25")
"""Weights of four bits, and logits that depend on how many rows are read at once."""
LITTLE = ROOT / "models"
ALLOWED = [
    {"metric": "throughput_ratio", "at_least": 0.01},
    {"metric": "error_rate", "at_most": 1.0},
    {"metric": "truncation_rate", "at_most": 1.0},
    {"metric": "speculation_engaged", "at_least": 0.0},
]
"""What the little pair's speed and early ends are does not matter here."""


def certified(project: ProjectFolder, *defect: str, temperature: float = 0.0) -> dict[str, Any]:
    """Certify prose with the worker that has another kernel and a defect; return its verdict."""
    (project.path / "worker.py").write_text(PERTURBED)
    lines = (ROOT / "canaries" / "little" / "prose.jsonl").read_text().splitlines(keepends=True)
    (project.path / "prose.jsonl").write_text("".join(lines[:12]))
    project.write_slo(
        {
            "schema": 1,
            "name": "other-kernel",
            "subject": {
                "backend": "worker",
                "target": str(LITTLE / "little-target"),
                "drafts": [str(LITTLE / "little-draft")],
                "command": [sys.executable, "worker.py", "worker", "{target}", "{draft}", *OTHER_KERNEL, *defect],
            },
            "sampling": {"temperature": temperature, "max_tokens": 64},
            "workload": [{"name": "prose", "canaries": "prose.jsonl"}],
            "sweep": {"repeats": 1, "budget": 5, "num_draft_tokens": [4]},
            "soak": {"duration": "4 s", "max_duration": "120 s", "baseline_share": 0.5, "baseline_drift": 0.9},
            "fallback": {"ladder": ["autoregressive"]},
            "objective": [{**objective, "why": "this test is about words"} for objective in ALLOWED],
        }
    )
    project.run("certify", "slo.toml", "--out", "run")
    return project.verdict()


@pytest.mark.nightly  # tests/backends/test_reading_again.py reads answers of this kernel again, without a whole run
def test_numerics_of_another_kernel_are_promoted(project: ProjectFolder) -> None:
    """Most answers differ from plain decoding's, each token is the target's choice in its own pass: the draft is
    promoted.
    """
    verdict = certified(project)

    workload = verdict["workloads"][0]
    checks = {check["metric"]: check for check in workload["checks"]}
    assert "promoted" == workload["outcome"], workload
    assert ("pass", 1.0) == (checks["replay_agreement"]["outcome"], checks["replay_agreement"]["center"])


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param("unverified:0.02", marks=pytest.mark.nightly),
        pytest.param("shifted:0.02", marks=pytest.mark.nightly),
        pytest.param("stale:0.02", marks=pytest.mark.nightly),
        pytest.param("dropped:0.02", marks=pytest.mark.nightly),
    ],
)
def test_a_defect_is_graded_back_under_another_kernel(project: ProjectFolder, defect: str) -> None:
    """What an engine does wrong in one of fifty rounds is found, although numerics change most answers anyway."""
    verdict = certified(project, f"-sdefect={defect}")

    assert "graded_back" == verdict["workloads"][0]["outcome"]
    assert "replay_agreement" in str(verdict["transitions"])


@pytest.mark.nightly
@pytest.mark.parametrize(("defect", "outcome"), [("", "promoted"), ("shortcut:0.02", "graded_back")])
def test_a_greedy_shortcut_is_graded_back_above_temperature_0(
    project: ProjectFolder, defect: str, outcome: str
) -> None:
    """Where the best token stands in for the drawn one in 2 % of tokens, what the target drew in its passes shows it; a
    draft without the shortcut is promoted.
    """
    verdict = certified(project, *([f"-sdefect={defect}"] if defect else []), temperature=0.7)

    assert outcome == verdict["workloads"][0]["outcome"], verdict
    assert bool(defect) == ("sampled_tokens_p_value" in str(verdict["transitions"]))
