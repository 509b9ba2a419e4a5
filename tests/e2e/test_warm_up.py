"""A first token that comes too late, and the warm-up that the SLO allows instead: measured, judged and required."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.project_folder import ProjectFolder

Scripted = Callable[..., ProjectFolder]

EASY = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "required"}]
BOUND = {"metric": "ttft_delta", "at_most": 0.08, "why": "people wait for the first token"}
OR_WARM = {**BOUND, "or_with": "warm-up"}
LATE = {"prefill": "200 ms", "draft_prefill": "40 ms"}
"""A first token that comes a fifth later with a draft."""
WORTH_IT = {**LATE, "cold": {"start": "1 s", "pause": "80 ms"}}
"""A pause costs more than the draft does."""


def check_of(verdict: dict[str, Any], metric: str = "ttft_delta") -> dict[str, Any]:
    (check,) = [check for check in verdict["workloads"][0]["checks"] if check["metric"] == metric]
    return dict(check)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[:-1]]


@pytest.mark.parametrize(
    ("truth", "objective", "times"),
    [
        pytest.param(WORTH_IT, BOUND, 1, id="no warm-up is allowed"),
        pytest.param(LATE, OR_WARM, 2, id="a warm-up saves nothing"),
    ],
)
def test_a_late_first_token_turns_drafting_off(
    scripted: Scripted, truth: dict[str, Any], objective: dict[str, Any], times: int
) -> None:
    """Without `or_with`, or where a warmed first token is as late: code 1, and the check says so of each."""
    project = scripted(truth, workload=EASY, objective=[objective])

    project.run("certify", "slo.toml", "--out", "run", code=1)

    verdict = project.verdict()
    assert "graded_back" == verdict["workloads"][0]["outcome"]
    assert times == verdict["transitions"][-1]["because"].count("above the allowed +8 %")


def test_a_warm_up_that_makes_up_for_it_passes_and_is_required(finished: Scripted) -> None:
    """Warmed drafting is in time: it passes, and policy.toml requires the warm-up."""
    project = finished(WORTH_IT, workload=EASY, objective=[OR_WARM])

    check, policy = check_of(project.verdict()), (project.path / "run" / "policy.toml").read_text()
    (route,) = tomllib.loads(policy)["route"]
    foreseen = project.run("plan", "slo.toml", "--json", code=0).document["expected_answers"]["pauses"]
    assert ("pass", "warm-up") == (check["outcome"], check["passed_with"])
    parts = ("above the allowed +8 %; ", "; warmed, ", "; median time to first")
    assert all(part in check["because"] for part in parts)
    assert (True, 10.0) == (route["warm_up"], route["warm_up_after"])
    assert "# An obligation " in policy
    assert foreseen == len(records(project.path / "run" / "pauses-1.jsonl")) - 2
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document


def test_an_objective_on_what_a_draft_adds_after_a_pause_has_it_measured(scripted: Scripted) -> None:
    """The pass runs because an objective names it, and the bound decides."""
    after_pause = {"metric": "ttft_after_pause_delta", "at_most": 0.5, "why": "a reader pauses"}
    project = scripted(WORTH_IT, workload=EASY, objective=[after_pause])

    project.run("certify", "slo.toml", "--out", "run", code=0)

    check = check_of(project.verdict(), "ttft_after_pause_delta")
    assert "pass" == check["outcome"]
    assert 0.2 <= check["center"] <= 0.28  # 90 of 380 ms
    assert 21 == len([line for line in records(project.path / "run" / "pauses-1.jsonl") if line["arm"] == "plain"])


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, lambda path: path.write_text(path.read_text().partition("\n")[2])],
    ids=["deleted", "short"],
)
def test_a_missing_measurement_is_unproven(finished: Scripted, damage: Callable[[Path], object]) -> None:
    """With the requests after pauses gone or one of them missing, and new checksums, the run is unproven."""
    project = finished(WORTH_IT, workload=EASY, objective=[OR_WARM])
    shutil.copytree(project.path / "run", project.path / "copy")
    damage(project.path / "copy" / "pauses-1.jsonl")
    RunDirectory(project.path / "copy").write_checksums()

    judged = project.run("judge", "copy", "--json", code=3).document

    assert "pauses-1.jsonl" in judged["incomplete"]
    assert ("unproven", "unproven") == (judged["workloads"][0]["outcome"], check_of(judged)["outcome"])


def test_an_interrupted_pass_is_continued(finished: Scripted) -> None:
    """What was recorded is not requested again, and a request that only warms goes before the rest."""
    project = finished(WORTH_IT, workload=EASY, objective=[OR_WARM])
    run = project.path / "run"
    lines = (run / "pauses-1.jsonl").read_text().splitlines(keepends=True)
    for name in ("SHA256SUMS", "verdict.json", "policy.toml", "junit.xml"):
        (run / name).unlink()
    for name in ("events.jsonl", "host.jsonl"):
        (run / name).write_text("".join((run / name).read_text().splitlines(keepends=True)[:-1]))
    (run / "pauses-1.jsonl").write_text("".join(lines[:10]))

    project.run("certify", "slo.toml", "--out", "run", "--resume", code=0)

    answers = records(run / "pauses-1.jsonl")
    assert lines[:10] == (run / "pauses-1.jsonl").read_text().splitlines(keepends=True)[:10]
    assert ("warmup", len(lines)) == (answers[10]["role"], len(answers))
    assert "pass" == check_of(project.verdict())["outcome"]
