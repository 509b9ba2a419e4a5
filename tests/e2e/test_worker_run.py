"""Whole runs on a program with the worker protocol: the manual's example, and ones that fail."""

import json
import shutil
import sys
from typing import Any

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder, canary_lines

EXAMPLE = ROOT / "tests" / "backends" / "example_worker.py"


def echoing(project: ProjectFolder, **subject: Any) -> ProjectFolder:
    """Write an SLO for the example worker, next to a copy of it; *subject* changes its [subject]."""
    shutil.copy(EXAMPLE, project.path / "my_worker.py")
    canaries = [json.loads(line) for line in canary_lines("line", 8).splitlines()]
    for canary in canaries:
        canary["messages"][0]["content"] = canary["expect"]["equals"]
    (project.path / "lines.jsonl").write_text("".join(json.dumps(canary) + "\n" for canary in canaries))
    models = ROOT / "models"
    project.write_slo(
        {
            "schema": 1,
            "name": "echo",
            "subject": {
                "backend": "worker",
                "target": str(models / "little-target"),
                "drafts": [str(models / "little-draft")],
                "command": [sys.executable, "my_worker.py", "{target}", "{draft}"],
                **subject,
            },
            "workload": [{"name": "lines", "canaries": "lines.jsonl"}],
            "sweep": {"repeats": 1, "budget": 6, "num_draft_tokens": [1, 2]},
            "soak": {"duration": "2 s", "max_duration": "60 s", "sentinel_share": 0.5, "sentinel_drift": 0.9},
            "objective": [
                {"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"},
                {"metric": "acceptance_rate", "at_least": 0.5, "why": "the draft is always right"},
                {"metric": "token_agreement", "at_least": 1, "why": "it must be lossless"},
            ],
        }
    )
    return project


def test_the_example_is_certified(project: ProjectFolder) -> None:
    """
    The manual's example is promoted: its times, tokens and rounds are enough for every objective.
    """
    echoing(project)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    verdict = project.verdict()
    assert "promoted" == verdict["outcome"]
    checked = {check["metric"]: check["outcome"] for check in verdict["workloads"][0]["checks"]}
    for metric in ("throughput_ratio", "acceptance_rate", "token_agreement"):
        assert "pass" == checked[metric]
    assert verdict == project.run("judge", "run", "--json", code=0).document
    manifest = (project.path / "run" / "manifest.json").read_text()
    assert "file my_worker.py" in manifest


def test_a_worker_with_impossible_times_is_never_promoted(project: ProjectFolder) -> None:
    """
    Impossible times are faults of the answers, and a run of them proves nothing.
    """
    echoing(project)
    worker = project.path / "my_worker.py"
    worker.write_text(worker.read_text().replace("time.monotonic_ns()", "1"))

    done = project.run("certify", "slo.toml", "--out", "run")

    assert 1 == done.code
    written = "".join(path.read_text() for path in (project.path / "run").glob("*.jsonl"))
    assert "times out of order" in written


@pytest.mark.parametrize("command", [["./my_worker.py"], [sys.executable, "-c", "raise SystemExit(5)"]])
def test_a_program_that_is_no_worker_is_said_first(project: ProjectFolder, command: list[str]) -> None:
    """
    Exit code 2 before anything is measured, with what happened to the program.
    """
    done = echoing(project, command=command).run("certify", "slo.toml", "--out", "run", code=2)

    assert "not executable" in done.err or "exit code 5" in done.err


def test_what_a_worker_does_not_see_is_said_first(project: ProjectFolder) -> None:
    """
    An objective about rounds with a worker that shows none is an error before the first token.
    """
    echoing(project)
    worker = project.path / "my_worker.py"
    worker.write_text(worker.read_text().replace('"rounds", "plain"', '"plain"'))

    done = project.run("plan", "slo.toml", code=2)

    assert "backend worker does not show: rounds" in done.out + done.err
    assert not (project.path / "logs").exists()
