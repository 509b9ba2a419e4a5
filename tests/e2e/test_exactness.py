"""Whole runs whose answers are not plain decoding's: near-ties, and a prompt cache that changes what is said."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.golden_words import says
from tests.builders.project_folder import ProjectFolder

Scripted = Callable[..., ProjectFolder]

NEAR_TIES = {"agreement": 0.7, "gap": 0.02}
EASY = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]
DEPLOYED = {
    "backend": "scripted",
    "target": "t",
    "drafts": ["heavy"],
    "script": "truth.json",
    "prompt_cache": "as-deployed",
}


def outcome(project: ProjectFolder) -> str:
    return str(project.verdict()["workloads"][0]["outcome"])


def because(project: ProjectFolder, metric: str) -> str:
    """Return what the first check of *metric* says, wherever it ended: in a workload or in a step down."""
    verdict = project.verdict()
    checks = [
        check["because"] for work in verdict["workloads"] for check in work["checks"] if check["metric"] == metric
    ]
    steps = [transition["because"] for transition in verdict["transitions"] if metric in transition["because"]]
    return str(next(iter([*checks, *steps])))


def records(path: Path) -> list[dict[str, Any]]:
    *lines, closing = (json.loads(line) for line in path.read_text().splitlines())
    assert {"end": True, "records": len(lines)} == closing
    return lines


def judged_with_new_checksums(project: ProjectFolder, file: str, damage: Callable[[Path], object]) -> Any:
    shutil.copytree(project.path / "run", project.path / "copy")
    damage(project.path / "copy" / file)
    RunDirectory(project.path / "copy").write_checksums()
    return project.run("judge", "copy", "--json").document


def test_other_tokens_at_a_near_tie_are_promoted(finished: Scripted) -> None:
    """
    Canaries that part where the target's logits nearly tie agree; the check says how many, the gap and the tolerance.
    """
    project = finished(NEAR_TIES, workload=EASY)

    (first, *_) = records(project.path / "run" / "ties-1.jsonl")
    assert "promoted" == outcome(project)
    assert all(word in because(project, "token_agreement") for word in ("near-tie", "gap at most 0.02", "0.125"))
    assert (len(first["shared"]), 0.02) == (first["position"], first["gap"])
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document


def test_other_tokens_where_the_target_is_sure_are_not(scripted: Scripted) -> None:
    """
    Where the target clearly prefers its own token, the parting is not explained and the draft is graded back.
    """
    project = scripted({"agreement": 0.7, "gap": 1.5}, workload=EASY)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert "graded_back" == outcome(project)
    assert "its own token by 1.5" in because(project, "token_agreement")


def test_a_backend_of_text_alone_cannot_be_asked_for_equal_words(scripted: Scripted) -> None:
    """
    Where text alone is shown, a demand for equal words is refused with what would show it.
    """
    sight = ["arrivals", "token_count", "text", "token_ids", "rounds", "plain"]
    project = scripted({"agreement": 0.7, "gap": 0.0, "sight": sight}, workload=EASY)

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    says("complaints", "token_agreement of text alone", refused.err)


def test_near_ties_are_read_only_where_they_matter(scripted: Scripted, demo: ProjectFolder) -> None:
    """
    Above temperature 0, where no objective is on token agreement, or without a divergence, no logits are read.
    """
    objectives = [{"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}]
    without = scripted({"agreement": 0.7}, workload=EASY, objective=objectives, sampling={"temperature": 0.7})
    without.run("certify", "slo.toml", "--out", "run", code=0)

    assert [] == [path for folder in (without, demo) for path in (folder.path / "run").glob("ties-*")]


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, lambda path: path.write_text(path.read_text().partition("\n")[2])],
    ids=["deleted", "short"],
)
def test_damaged_near_ties_never_help(finished: Scripted, damage: Callable[[Path], object]) -> None:
    """
    With the near-ties gone or one of them missing, and new checksums, a run that they carried is unproven.
    """
    project = finished(NEAR_TIES, workload=EASY)

    judged = judged_with_new_checksums(project, "ties-1.jsonl", damage)

    assert (3, "unproven") == (judged["exit_code"], judged["workloads"][0]["outcome"])
    assert "ties-1.jsonl" in judged["incomplete"]


def test_a_warm_cache_that_changes_nothing_is_promoted(finished: Scripted) -> None:
    """
    As deployed, every canary is repeated and continued in both arms, and an exact cache keeps the promotion.
    """
    project = finished({"caches": True}, workload=EASY, subject=DEPLOYED)

    foreseen = project.run("plan", "slo.toml", "--json", code=0).document

    answers = records(project.path / "run" / "warm-1.jsonl")
    repeats = [answer for answer in answers if (answer["arm"], answer["canary"]) == ("candidate", answer["pair"])]
    later = [answer for answer in answers if answer["canary"] != answer["pair"]]
    assert "promoted" == outcome(project)
    assert (3 * 12, 3 * 12) == (len(repeats), len(later))
    assert {"warm"} == {answer["role"] for answer in answers}
    assert foreseen["expected_answers"]["warm_cache"] == len(answers)
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document


def test_a_warm_cache_that_changes_answers_is_graded_back(scripted: Scripted) -> None:
    """
    Exact with the cache off, not with it on: the draft is graded back for that reason alone, and a finding explains it.
    """
    project = scripted({"caches": True, "warm": 0.6}, workload=EASY, subject=DEPLOYED)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    verdict = project.verdict()
    (*_, last) = verdict["transitions"]
    assert "graded_back" == outcome(project)
    assert ["drafting off", "warm_cache_agreement"] == last["because"].split(": ")[:2]
    assert last["because"] == verdict["workloads"][0]["because"]
    assert "warm_cache_changes_answers" in {finding["kind"] for finding in verdict["findings"]}
    assert "token_agreement" not in json.dumps(verdict["transitions"])


def test_an_objective_on_the_warm_cache_replaces_the_implicit_one(scripted: Scripted) -> None:
    """
    An SLO with a lower bound relaxes the implicit objective of full agreement.
    """
    objectives = [{"metric": "warm_cache_agreement", "at_least": 0.0, "why": "informational"}]
    project = scripted({"caches": True, "warm": 0.6}, workload=EASY, subject=DEPLOYED, objective=objectives)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert "promoted" == outcome(project)
    assert "repeated answers" in because(project, "warm_cache_agreement")


@pytest.mark.nightly
def test_the_warm_cache_is_compared_greedily_above_temperature_zero(scripted: Scripted) -> None:
    """
    Where the SLO samples, the warm answers are still asked for greedily: a cache that changes them is found.
    """
    objectives = [{"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}]
    hot = {"temperature": 0.8, "max_tokens": 64}
    project = scripted(
        {"caches": True, "warm": 0.5}, workload=EASY, subject=DEPLOYED, objective=objectives, sampling=hot
    )

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert "graded_back" == outcome(project)
    assert "warm_cache_agreement" in because(project, "warm_cache_agreement")


@pytest.mark.parametrize(
    ("truth", "cache", "reason"),
    [
        ({"caches": True}, "off", 'set prompt_cache = "as-deployed"'),
        ({"caches": False}, "as-deployed", "no prompt cache that gatekeeper can switch on"),
    ],
)
def test_a_cache_that_is_not_on_is_refused(scripted: Scripted, truth: dict[str, Any], cache: str, reason: str) -> None:
    """
    An objective on a cache that is off, or that the backend does not have, is exit code 2 before the first token.
    """
    objectives = [{"metric": "warm_cache_agreement", "at_least": 1, "why": "as deployed"}]
    subject = DEPLOYED | {"prompt_cache": cache}
    project = scripted(truth, workload=EASY, subject=subject, objective=objectives)

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    assert reason in refused.err
    assert not (project.path / "run" / "soak-1.jsonl").exists()


def test_a_missing_warm_file_never_helps(finished: Scripted) -> None:
    """
    With its warm answers deleted, and new checksums, a promoted run is unproven and says which file is missing.
    """
    project = finished({"caches": True}, workload=EASY, subject=DEPLOYED)

    judged = judged_with_new_checksums(project, "warm-1.jsonl", Path.unlink)

    assert (3, "unproven") == (judged["exit_code"], judged["workloads"][0]["outcome"])
    assert "warm-1.jsonl: missing" in judged["incomplete"]


@pytest.mark.nightly
def test_a_resumed_run_asks_only_what_is_missing(scripted: Scripted) -> None:
    """
    Stopped in the middle of the warm pass, a run resumes there: the soak is not repeated and no request is sent twice.
    """
    project = scripted({"caches": True}, workload=EASY, subject=DEPLOYED)
    project.run("certify", "slo.toml", "--out", "run", code=0)
    run = project.path / "run"
    soaked, warm_lines = (
        (run / "soak-1.jsonl").read_bytes(),
        (run / "warm-1.jsonl").read_text().splitlines(keepends=True),
    )
    for name in ("SHA256SUMS", "verdict.json", "policy.toml", "junit.xml"):
        (run / name).unlink()
    for name in ("events.jsonl", "host.jsonl"):
        (run / name).write_text("".join((run / name).read_text().splitlines(keepends=True)[:-1]))
    (run / "warm-1.jsonl").write_text("".join(warm_lines[:40]))

    project.run("certify", "slo.toml", "--out", "run", "--resume", code=0)

    again = records(run / "warm-1.jsonl")
    assert soaked == (run / "soak-1.jsonl").read_bytes()
    assert warm_lines[:40] == (run / "warm-1.jsonl").read_text().splitlines(keepends=True)[:40]
    assert len(warm_lines) - 1 == len(again) == len({record["key"] for record in again})
    assert "promoted" == outcome(project)


@pytest.mark.nightly
def test_a_test_of_whole_answers_says_what_it_would_have_seen(scripted: Scripted) -> None:
    """
    Where it passes, the share of greedy answers that it would have found stands in the terminal, page and verdict.
    """
    project = scripted(
        {"ratio": 1.6, "acceptance": 0.5},
        workload=[{"name": "open", "canaries": "open.jsonl", "speculation": "optional"}],
        sampling={"temperature": 0.8, "max_tokens": 32},
        objective=[{"metric": "sampled_answers_p_value", "at_least": 0.001, "why": "no greedy answers"}],
        soak={"duration": "1200 s"},
    )
    lines = [{"id": f"open-{at:02}", "messages": [{"role": "user", "content": f"Say {at}."}]} for at in range(8)]
    (project.path / "open.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    ran = project.run("certify", "slo.toml", "--out", "run", code=0)

    page = (project.path / "run" / "report.html").read_text()
    for text in (because(project, "sampled_answers_p_value"), " ".join(ran.out.split()), page):
        assert "were greedy" in text
