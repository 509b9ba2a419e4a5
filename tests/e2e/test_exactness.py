"""Whole runs whose answers are not plain decoding's: near-ties, forced passes, and words above temperature 0."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.records import Forced, Generation
from gatekeeper.core.system.record_files import read_records, records_of
from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.project_folder import ProjectFolder, canary_lines

Scripted = Callable[..., ProjectFolder]

EASY = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]
NEAR_TIES = {"agreement": 0.7, "gap": 0.02}
SHOWN = {"visible_harm": 0.7}
"""The share of degenerate answers that a dozen canaries show, in which words may differ."""


def because(project: ProjectFolder, metric: str) -> str:
    """Return what the first check of *metric* says, wherever it ended: in a workload or in a step down."""
    verdict = project.verdict()
    checks = [
        check["because"] for work in verdict["workloads"] for check in work["checks"] if check["metric"] == metric
    ]
    steps = [transition["because"] for transition in verdict["transitions"] if metric in transition["because"]]
    return str(next(iter([*checks, *steps])))


def workload(project: ProjectFolder) -> Any:
    return project.verdict()["workloads"][0]


def judged_without(project: ProjectFolder, file: str, damage: Callable[[Path], object]) -> Any:
    """Damage a file of the run, write its checksums anew, and judge it: code 3."""
    damage(project.path / "run" / file)
    RunDirectory(project.path / "run").write_checksums()
    return project.run("judge", "run", "--json", code=3).document


def test_other_tokens_at_a_near_tie_are_promoted(finished: Scripted) -> None:
    """Canaries that part where the target's logits nearly tie agree; the check has count, gap and tolerance."""
    project = finished(NEAR_TIES, workload=EASY, **SHOWN)

    first = json.loads((project.path / "run" / "near_ties-1.jsonl").read_text().splitlines()[0])
    assert "promoted" == workload(project)["outcome"]
    assert all(word in because(project, "token_agreement") for word in ("near-tie", "gap at most 0.02", "0.125"))
    assert (len(first["shared"]), 0.02) == (first["position"], first["gap"])
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document


def test_other_tokens_where_the_target_is_sure_are_not(scripted: Scripted) -> None:
    """Where the target clearly prefers its own token, the parting is not explained and the draft is graded back."""
    project = scripted({"agreement": 0.7, "gap": 1.5}, workload=EASY)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert "graded_back" == workload(project)["outcome"]
    assert "its own token by 1.5" in because(project, "token_agreement")


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, lambda path: path.write_text(path.read_text().partition("\n")[2])],
    ids=["deleted", "short"],
)
def test_damaged_near_ties_never_help(finished: Scripted, damage: Callable[[Path], object]) -> None:
    """With the near-ties gone or one of them missing, and new checksums, a run that they carried is unproven."""
    judged = judged_without(finished(NEAR_TIES, workload=EASY, **SHOWN), "near_ties-1.jsonl", damage)

    assert "unproven" == judged["workloads"][0]["outcome"]
    assert "near_ties-1.jsonl" in judged["incomplete"]


# Words compared by teacher forcing

SIGHT = ["arrivals", "token_count", "text", "token_ids", "rounds", "memory", "plain", "logits", "forced"]
WORDS = [
    {"metric": "token_agreement", "at_least": 1.0, "why": "no other word"},
    {"metric": "task_pass_delta", "at_least": 0.0, "why": "no worse answer"},
]


def forcing(finished: Scripted, truth: dict[str, Any], *, sight: list[str] = SIGHT) -> ProjectFolder:
    """Certify the words of forty canaries, of which the sweep sends eight and the soak pairs a fifth."""
    sweep, soak = {"repeats": 1, "budget": 8, "num_draft_tokens": [4]}, {"duration": "150 s", "max_duration": "1 h"}
    return finished(
        {**truth, "sight": sight}, canaries=canary_lines("easy", 40), workload=EASY, objective=WORDS, sweep=sweep,
        soak=soak,
    )  # fmt: skip


def outcomes(project: ProjectFolder) -> dict[str, tuple[str, float | None]]:
    return {check["metric"]: (check["outcome"], check["center"]) for check in workload(project)["checks"]}


def passes(project: ProjectFolder) -> list[Forced]:
    return list(read_records(project.path / "run" / "forced_check-1.jsonl", records_of(Forced)).records)


def plain_answers(project: ProjectFolder) -> int:
    return (project.path / "run" / "soak-1.jsonl").read_text().count('"arm":"plain"')


def test_forced_passes_stand_in_for_plain_answers(finished: Scripted) -> None:
    """Far fewer canaries are decoded plainly, and the same objectives pass on all of them; without the file, none."""
    forced, plainly = forcing(finished, {}), forcing(finished, {}, sight=SIGHT[:-1])

    assert ("promoted", ("pass", 1.0)) == (workload(plainly)["outcome"], outcomes(forced)["token_agreement"])
    for metric in ("token_agreement", "task_pass_delta"):
        assert outcomes(plainly)[metric] == outcomes(forced)[metric]
    assert 0 < plain_answers(forced) < 0.8 * plain_answers(plainly)
    assert not any(forced_pass.parted for forced_pass in passes(forced) if forced_pass.altered is None)
    assert 3 == sum(forced_pass.altered is not None for forced_pass in passes(forced))
    assert not (forced.path / "run" / "plain_words-1.jsonl").exists()
    assert forced.verdict() == forced.run("judge", "run", "--json", code=0).document
    judged = judged_without(forced, "forced_check-1.jsonl", Path.unlink)
    assert "forced_check-1.jsonl: missing" in judged["incomplete"]
    assert "in both arms" in judged["workloads"][0]["because"]


@pytest.mark.parametrize(("gap", "outcome"), [(0.01, "promoted"), (3.0, "graded_back")])
def test_answers_that_part_are_decoded_plainly(finished: Scripted, gap: float, outcome: str) -> None:
    """Each canary at which the target parts from the draft gets a plain answer; a near-tie agrees, nothing else."""
    project = forcing(finished, {"agreement": 0.7, "gap": gap})

    parted = {each.canary for each in passes(project) if each.parted and each.altered is None}
    *words, _ = map(json.loads, (project.path / "run" / "plain_words-1.jsonl").read_text().splitlines())
    assert outcome == workload(project)["outcome"]
    assert parted
    assert parted == {word["canary"] for word in words}


def test_an_interrupted_check_continues(finished: Scripted) -> None:
    """A run that was killed amid its forced passes makes the missing ones and gives the same verdict."""
    project = forcing(finished, {"agreement": 0.7, "gap": 0.01})
    before, passes_before = workload(project)["checks"], passes(project)
    run = project.path / "run"
    for name, kept in (("forced_check-1.jsonl", slice(5)), ("events.jsonl", slice(-1))):
        (run / name).write_text("".join((run / name).read_text().splitlines(keepends=True)[kept]))
    for name in ("plain_words-1.jsonl", "near_ties-1.jsonl", "verdict.json", "SHA256SUMS"):
        (run / name).unlink()

    project.run("certify", "slo.toml", "--out", "run", "--resume", code=0)

    again = [(forced_pass.canary, forced_pass.parted) for forced_pass in passes(project)]
    assert [(forced_pass.canary, forced_pass.parted) for forced_pass in passes_before] == again
    assert before == workload(project)["checks"]


# Above temperature 0, of a system that shows text alone

VICES: dict[str, tuple[dict[str, Any], str]] = {
    "sound": ({}, ""),
    "other words": ({"wording": "other"}, "sampled_answers_p_value"),
    "junk up to the limit": (
        {"faults": [{"every": 2, "arm": "candidate", "fault": "short"}]}, "numerics_harm_p_value"
    ),
}  # fmt: skip


@pytest.mark.parametrize("vice", VICES)
def test_words_are_judged_above_temperature_0_too(scripted: Scripted, vice: str) -> None:
    """Answers drawn alike pass, with what would have been found; other words and junk are found without logits."""
    truth, failed = VICES[vice]
    as_a_server = ["arrivals", "token_count", "text", "claimed_rounds", "memory", "plain"]
    project = scripted(
        {"canaries": {"easy-": {"acceptance": 0.9}}, "sight": as_a_server, **truth},
        sampling={"temperature": 0.7, "max_tokens": 48}, workload=EASY, soak={"duration": "600 s"},
        objective=[{"metric": "throughput_ratio", "at_least": 1.16, "why": "it must pay"}],
    )  # fmt: skip
    (project.path / "easy.jsonl").write_text(canary_lines("easy", 33))  # so many the harm test needs

    project.run("certify", "slo.toml", "--out", "run")

    ended = workload(project)
    checks = {check["metric"]: check for part in (ended, *ended["steps"]) for check in part["checks"]}
    assert ("graded_back" if failed else "promoted") == ended["outcome"]
    assert "truncation_rate" not in {check["metric"] for check in ended["checks"]}
    if failed:
        assert "fail" == checks[failed]["outcome"]
    else:
        assert {"pass"} == {check["outcome"] for check in checks.values()}
        for metric in ("numerics_harm_p_value", "sampled_answers_p_value"):
            assert "found if" in checks[metric]["because"]


@pytest.mark.parametrize(("truth", "outcome"), [({}, "pass"), ({"fault": "short", "every": 3, "arm": "plain"}, "fail")])
def test_each_canary_is_decoded_plainly_twice(scripted: Scripted, truth: dict[str, Any], outcome: str) -> None:
    """What the soak lacks is sent after it; plain decoding that ends every third answer early fails its objective."""
    objectives = [
        {"metric": "plain_repeat_agreement", "at_least": 1.0, "why": "the reference must stand still"},
        {"metric": "throughput_ratio", "at_least": 1.05, "why": "it must pay"},
    ]
    sweep = {"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}, "budget": 8}
    project = scripted({"faults": [truth]} if truth else {}, objective=objectives, sweep=sweep)

    project.run("certify", "slo.toml", "--out", "run")

    (work,) = project.verdict()["workloads"]
    checks = [entry for step in (work, *work["steps"]) for entry in step["checks"]]
    assert outcome == next(entry["outcome"] for entry in checks if entry["metric"] == "plain_repeat_agreement")
    assert read_records(project.path / "run" / "plain_repeats-1.jsonl", records_of(Generation)).records
