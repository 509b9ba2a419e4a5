"""A first token that comes too late, and the warm-up that the SLO allows instead: measured, judged and required."""

import json
import shutil
import tomllib
from collections.abc import Callable
from itertools import pairwise
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


def certified(scripted: Scripted, truth: dict[str, Any], objective: dict[str, Any], code: int) -> dict[str, Any]:
    project = scripted(truth, workload=EASY, objective=[objective])
    project.run("certify", "slo.toml", "--out", "run", code=code)
    return project.verdict()


def check_of(verdict: dict[str, Any]) -> dict[str, Any]:
    (ttft_check,) = [check for check in verdict["workloads"][0]["checks"] if check["metric"] == "ttft_delta"]
    return dict(ttft_check)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[:-1]]


def test_a_late_first_token_fails_without_the_key(scripted: Scripted) -> None:
    """Without `or_with` a first token that comes too late turns drafting off, whatever a warm-up would save."""
    verdict = certified(scripted, WORTH_IT, BOUND, 1)

    assert "graded_back" == verdict["workloads"][0]["outcome"]
    assert "above the allowed +8 %" in verdict["transitions"][-1]["because"]


def test_a_warm_up_that_makes_up_for_it_passes_and_is_required(finished: Scripted) -> None:
    """Warmed drafting comes no later than plain decoding after a pause: it passes, and policy.toml requires the
    warm-up.
    """
    project = finished(WORTH_IT, workload=EASY, objective=[OR_WARM])

    ttft_check, policy = check_of(project.verdict()), (project.path / "run" / "policy.toml").read_text()
    (route,) = tomllib.loads(policy)["route"]
    assert ("pass", "warm-up") == (ttft_check["outcome"], ttft_check["passed_with"])
    assert all(
        part in ttft_check["because"] for part in ("above the allowed +8 %; ", "; warmed, ", "; median time to first")
    )
    assert (True, 10.0) == (route["warm_up"], route["warm_up_after"])
    assert "# An obligation " in policy
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document


def test_an_objective_on_what_a_draft_adds_after_a_pause_has_it_measured(scripted: Scripted) -> None:
    """After a pause the first token comes a quarter later with the draft, by 90 of 380 ms: the pass runs because the
    objective names it, whatever the first tokens in the soak, and the bound decides.
    """
    after_pause = {"metric": "ttft_after_pause_delta", "at_most": 0.5, "why": "a reader pauses"}
    project = scripted(WORTH_IT, workload=EASY, objective=[after_pause])

    project.run("certify", "slo.toml", "--out", "run", code=0)

    (check,) = (
        check for check in project.verdict()["workloads"][0]["checks"] if check["metric"] == after_pause["metric"]
    )
    assert "pass" == check["outcome"]
    assert 0.2 <= check["center"] <= 0.28
    assert 21 == len([line for line in records(project.path / "run" / "pauses-1.jsonl") if line["arm"] == "plain"])


def test_each_request_of_the_pass_is_recorded(finished: Scripted) -> None:
    """Both arms answer once after a start, and each canary of the pass once after a pause and once right after
    another.
    """
    project = finished(WORTH_IT, workload=EASY, objective=[OR_WARM])
    foreseen = project.run("plan", "slo.toml", "--json", code=0).document

    answers = records(project.path / "run" / "pauses-1.jsonl")

    for arm in ("plain", "candidate"):
        arm_answers = [answer for answer in answers if answer["arm"] == arm]
        assert ["loaded"] + ["idle", "following"] * (len(arm_answers) // 2) == [
            answer["role"] for answer in arm_answers
        ]
        idle, following = (
            {answer["canary"] for answer in arm_answers if answer["role"] == role} for role in ("idle", "following")
        )
        assert idle == following
        gaps = [later["answer"]["sent_ns"] - earlier["answer"]["ended_ns"] for earlier, later in pairwise(arm_answers)]
        assert [10, 0] * (len(gaps) // 2) == [round(gap / 1e9) for gap in gaps]
    assert foreseen["expected_answers"]["pauses"] == len(answers) - 2


def test_a_warm_up_that_does_not_make_up_for_it_fails(scripted: Scripted) -> None:
    """Where a pause costs nothing, a warm-up saves nothing: the first token stays too late, and the check says both."""
    verdict = certified(scripted, LATE, OR_WARM, 1)

    because = verdict["transitions"][-1]["because"]
    assert "graded_back" == verdict["workloads"][0]["outcome"]
    assert 2 == because.count("above the allowed +8 %")


def test_a_first_token_in_time_needs_no_warm_up(scripted: Scripted) -> None:
    """Where the bound is kept as it is, no pause is waited for, and the policy requires nothing."""
    project = scripted({"prefill": "200 ms"}, workload=EASY, objective=[{**OR_WARM, "at_most": 0.5}])

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert "passed_with" not in check_of(project.verdict())
    assert [] == [*(project.path / "run").glob("pauses-*")]
    assert "warm_up = true" not in (project.path / "run" / "policy.toml").read_text()


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
    assert "warmup" == answers[10]["role"]
    assert len(lines) - 1 + 1 == len(answers)
    assert "pass" == check_of(project.verdict())["outcome"]
