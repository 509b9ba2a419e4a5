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
SHOWN = {"visible_harm": 0.7}
"""The share of degenerate answers that a dozen canaries show, in which words may differ."""
EASY = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]


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
    """Canaries that part where the target's logits nearly tie agree; the check says how many, the gap and the
    tolerance.
    """
    project = finished(NEAR_TIES, workload=EASY, **SHOWN)

    (first, *_) = records(project.path / "run" / "near_ties-1.jsonl")
    assert "promoted" == outcome(project)
    assert all(word in because(project, "token_agreement") for word in ("near-tie", "gap at most 0.02", "0.125"))
    assert (len(first["shared"]), 0.02) == (first["position"], first["gap"])
    assert project.verdict() == project.run("judge", "run", "--json", code=0).document


def test_other_tokens_where_the_target_is_sure_are_not(scripted: Scripted) -> None:
    """Where the target clearly prefers its own token, the parting is not explained and the draft is graded back."""
    project = scripted({"agreement": 0.7, "gap": 1.5}, workload=EASY)

    project.run("certify", "slo.toml", "--out", "run", code=0)

    assert "graded_back" == outcome(project)
    assert "its own token by 1.5" in because(project, "token_agreement")


def test_a_backend_of_text_alone_cannot_be_asked_for_equal_words(scripted: Scripted) -> None:
    """Where text alone is shown, a demand for equal words is refused with what would show it."""
    sight = ["arrivals", "token_count", "text", "token_ids", "rounds", "plain"]
    project = scripted({"agreement": 0.7, "gap": 0.0, "sight": sight}, workload=EASY)

    refused = project.run("certify", "slo.toml", "--out", "run", code=2)

    says("complaints", "token_agreement of text alone", refused.err)


def test_near_ties_are_read_only_where_they_matter(scripted: Scripted, demo: ProjectFolder) -> None:
    """Above temperature 0, where no objective is on token agreement, or without a divergence, no logits are read."""
    objectives = [{"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}]
    without = scripted(
        {"agreement": 0.7}, workload=EASY, objective=objectives, sampling={"temperature": 0.7}, visible_harm=0.9
    )
    without.run("certify", "slo.toml", "--out", "run", code=0)

    assert [] == [path for folder in (without, demo) for path in (folder.path / "run").glob("near_ties-*")]


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, lambda path: path.write_text(path.read_text().partition("\n")[2])],
    ids=["deleted", "short"],
)
def test_damaged_near_ties_never_help(finished: Scripted, damage: Callable[[Path], object]) -> None:
    """With the near-ties gone or one of them missing, and new checksums, a run that they carried is unproven."""
    project = finished(NEAR_TIES, workload=EASY, **SHOWN)

    judged = judged_with_new_checksums(project, "near_ties-1.jsonl", damage)

    assert (3, "unproven") == (judged["exit_code"], judged["workloads"][0]["outcome"])
    assert "near_ties-1.jsonl" in judged["incomplete"]


@pytest.mark.nightly
def test_a_test_of_whole_answers_says_what_it_would_have_seen(scripted: Scripted) -> None:
    """Where it passes, the share of greedy answers that it would have found stands in the terminal, page and
    verdict.
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
