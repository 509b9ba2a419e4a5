"""Whole runs as on real chips: another kernel for several tokens, and engines with a defect on top of it."""

import sys
from typing import Any

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder

# A whole run of real models; tests/backends/test_reading_again.py reads answers of this kernel again without one.
pytestmark = [pytest.mark.mlx, pytest.mark.nightly]

PERTURBED = f"""\
import runpy
import sys

sys.path.insert(0, {str(ROOT)!r})
runpy.run_module("bench.exactness.perturbed", run_name="__main__", alter_sys=True)
"""
OTHER_KERNEL = ("-sbits=4", "-slogits=0.25")
"""Weights of four bits, and logits that depend on how many rows are read at once."""
ALLOWED: dict[str, dict[str, Any]] = {
    "throughput_ratio": {"at_least": 0.01},
    "error_rate": {"at_most": 1.0},
    "truncation_rate": {"at_most": 1.0},
    "speculation_engaged": {"at_least": 0.0},
}
"""What the little pair's speed and early ends are does not matter here."""
DEFECTS = [
    *(("", 0.0, ""), ("", 0.7, ""), ("shortcut:0.02", 0.7, "sampled_tokens_p_value")),
    *((f"{defect}:0.02", 0.0, "replay_agreement") for defect in ("unverified", "shifted", "stale", "dropped")),
]
"""What the engine does wrong in one of fifty rounds, the temperature, and which check finds it."""


@pytest.mark.parametrize(("defect", "temperature", "metric"), DEFECTS)
def test_a_defect_is_graded_back_under_another_kernel(
    project: ProjectFolder, defect: str, temperature: float, metric: str
) -> None:
    """A sound engine is promoted although numerics change most answers; one with a defect is graded back for it."""
    (project.path / "worker.py").write_text(PERTURBED)
    lines = (ROOT / "canaries" / "little" / "prose.jsonl").read_text().splitlines(keepends=True)
    (project.path / "prose.jsonl").write_text("".join(lines[:12]))
    command = [sys.executable, "worker.py", "worker", "{target}", "{draft}", *OTHER_KERNEL]
    project.write_slo(
        {
            "schema": 1,
            "name": "other-kernel",
            "subject": {
                "backend": "worker",
                "target": str(ROOT / "models" / "little-target"),
                "drafts": [str(ROOT / "models" / "little-draft")],
                "command": [*command, f"-sdefect={defect}"] if defect else command,
            },
            "sampling": {"temperature": temperature, "max_tokens": 64},
            "workload": [{"name": "prose", "canaries": "prose.jsonl"}],
            "sweep": {"repeats": 1, "budget": 5, "num_draft_tokens": [4]},
            "soak": {"duration": "4 s", "max_duration": "120 s", "baseline_share": 0.5, "baseline_drift": 0.9},
            "fallback": {"ladder": ["autoregressive"]},
            "objective": [{"metric": name, "why": "about words", **bound} for name, bound in ALLOWED.items()],
        }
    )

    project.run("certify", "slo.toml", "--out", "run")

    verdict = project.verdict()
    workload = verdict["workloads"][0]
    assert ("graded_back" if defect else "promoted") == workload["outcome"], workload
    assert metric in str(verdict["transitions"])
    if not defect and not temperature:
        checks = {check["metric"]: check for check in workload["checks"]}
        assert ("pass", 1.0) == (checks["replay_agreement"]["outcome"], checks["replay_agreement"]["center"])
