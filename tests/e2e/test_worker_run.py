"""Whole runs on a program with the worker protocol: the manual's example, and ones that fail."""

import json
import shutil
import sys
import tomllib
from typing import Any

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder, canary_lines
from tests.builders.real_pair import records

EXAMPLE = ROOT / "integrations" / "example_worker.py"

DIES = """
    answered = Path("run/soak-1.jsonl")
    if answered.exists() and answered.read_text().count("\\n") > 3 and bool(request["setting"]["draft"]) is DRAFTING:
        if not Path("died").exists():
            Path("died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""
"""A worker ends itself once, in the soak, at its next answer with the draft or at the next without."""


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
            "soak": {"duration": "2 s", "max_duration": "60 s", "baseline_share": 0.5, "baseline_drift": 0.9},
            "objective": [
                {"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"},
                {"metric": "acceptance_rate", "at_least": 0.5, "why": "the draft is always right"},
            ],
        }
    )
    return project


def test_the_example_is_certified(project: ProjectFolder) -> None:
    """The manual's example is promoted: its times, tokens and rounds are enough for every objective."""
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


@pytest.mark.nightly
def test_a_worker_with_impossible_times_is_never_promoted(project: ProjectFolder) -> None:
    """Impossible times are faults of the answers, and a run of them proves nothing."""
    echoing(project)
    worker = project.path / "my_worker.py"
    worker.write_text(worker.read_text().replace("time.monotonic_ns()", "1"))

    done = project.run("certify", "slo.toml", "--out", "run")

    assert 1 == done.code
    written = "".join(path.read_text() for path in (project.path / "run").glob("*.jsonl"))
    assert "times out of order" in written


@pytest.mark.parametrize("command", [["./my_worker.py"], [sys.executable, "-c", "raise SystemExit(5)"]])
def test_a_program_that_is_no_worker_is_said_first(project: ProjectFolder, command: list[str]) -> None:
    """Exit code 2 before anything is measured, with what happened to the program."""
    done = echoing(project, command=command).run("certify", "slo.toml", "--out", "run", code=2)

    assert "not executable" in done.err or "exit code 5" in done.err


@pytest.mark.parametrize("command", [("plan",), ("certify", "--out", "run"), ("try",), ("versus", "slo.toml", "--")])
def test_options_that_a_worker_is_not_sent_are_refused(project: ProjectFolder, command: tuple[str, ...]) -> None:
    """A canary with a response format, which the protocol has no field for: another request would be measured."""
    echoing(project)
    prompts = project.path / "lines.jsonl"
    first, *others = prompts.read_text().splitlines()
    shaped = json.dumps(json.loads(first) | {"response_format": {"type": "json_object"}})
    prompts.write_text("\n".join([shaped, *others]))

    refused = project.run(*command, "slo.toml", code=2)

    assert "sets response_format, which backend worker does not send" in refused.err
    assert not (project.path / "run" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("drafting", "end"),
    [
        pytest.param(True, (0, "graded_back"), id="with the draft"),
        pytest.param(False, (3, "unproven"), id="plain", marks=pytest.mark.nightly),
    ],
)
def test_a_worker_that_dies_in_the_soak_is_a_fault_and_not_promoted(
    project: ProjectFolder, *, drafting: bool, end: tuple[int, str]
) -> None:
    """A lost answer of the draft grades it back; one of the baseline leaves it unproven."""
    echoing(project)
    worker = project.path / "my_worker.py"
    begin = '    send(begin=request["ask"])\n'
    text = worker.read_text().replace(begin, begin + DIES.replace("DRAFTING", str(drafting)), 1)
    imports = "import os\nimport signal\nfrom pathlib import Path\n"
    worker.write_text(text.replace("import json\n", f"import json\n{imports}", 1))
    slo = tomllib.loads((project.path / "slo.toml").read_text())
    slo["workload"][0]["speculation"] = "optional"
    slo["sweep"]["num_draft_tokens"] = [2]
    project.write_slo(slo)

    done = project.run("certify", "slo.toml", "--out", "run")

    soak = records(project.path / "run" / "soak-1.jsonl")
    (fault,) = (record for record in soak if record["answer"]["fault"])
    assert "signal 9" in fault["answer"]["fault"]
    assert ("candidate" if drafting else "plain") == fault["arm"]
    assert fault is not soak[-1]
    assert end == (done.code, project.verdict()["workloads"][0]["outcome"]), done.err
    steps = [step for step in project.verdict()["transitions"] if "error_rate" in step["because"]]
    assert drafting == bool(steps)
