"""Whole runs whose words are compared by teacher forcing: fewer plain answers and the same verdict."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gatekeeper.core.records import Forced
from gatekeeper.core.system.record_files import read_records, records_of
from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.project_folder import ROOT, ProjectFolder, canary_lines

Scripted = Callable[..., ProjectFolder]

SIGHT = ["arrivals", "token_count", "text", "token_ids", "rounds", "memory", "plain", "logits", "forced"]
EASY = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]
WORDS = [
    {"metric": "token_agreement", "at_least": 1.0, "why": "no other word"},
    {"metric": "task_pass_delta", "at_least": 0.0, "why": "no worse answer"},
]


def forcing(finished: Scripted, truth: dict[str, Any], *, sight: list[str] = SIGHT) -> ProjectFolder:
    """Certify the words of forty canaries, of which the sweep sends eight and the soak pairs a fifth."""
    return finished(
        {**truth, "sight": sight},
        canaries=canary_lines("easy", 40),
        workload=EASY,
        objective=WORDS,
        sweep={"repeats": 1, "budget": 8, "num_draft_tokens": [4]},
        soak={"duration": "150 s", "max_duration": "1 h"},
    )


def workload(project: ProjectFolder) -> Any:
    return project.verdict()["workloads"][0]


def checks(project: ProjectFolder) -> dict[str, tuple[str, float | None]]:
    return {check["metric"]: (check["outcome"], check["center"]) for check in workload(project)["checks"]}


def passes(project: ProjectFolder, run: str = "run") -> list[Forced]:
    return list(read_records(project.path / run / "forced_check-1.jsonl", records_of(Forced)).records)


def plain_answers(project: ProjectFolder) -> int:
    lines = (project.path / "run" / "soak-1.jsonl").read_text().splitlines()
    return sum(json.loads(line).get("arm") == "plain" for line in lines)


def test_forced_passes_stand_in_for_plain_answers(finished: Scripted) -> None:
    """Where the target can be forced, far fewer canaries are decoded plainly, and the same objectives pass on all of
    them.
    """
    forced = forcing(finished, {})
    fewer, forced_passes, judged = plain_answers(forced), passes(forced), checks(forced)
    again = forced.run("judge", "run", "--json", code=0).document
    assert forced.verdict() == again

    plainly = forcing(finished, {}, sight=SIGHT[:-1])

    assert ("promoted", ("pass", 1.0)) == (workload(plainly)["outcome"], judged["token_agreement"])
    assert checks(plainly)["token_agreement"] == judged["token_agreement"]
    assert checks(plainly)["task_pass_delta"] == judged["task_pass_delta"] == ("pass", 0.0)
    assert fewer < 0.8 * plain_answers(plainly)
    assert not any(forced_pass.parted for forced_pass in forced_passes if forced_pass.altered is None)
    assert 3 == sum(forced_pass.altered is not None for forced_pass in forced_passes)
    assert not (forced.path / "run" / "plain_words-1.jsonl").exists()


@pytest.mark.parametrize(("gap", "outcome"), [(0.01, "promoted"), (3.0, "graded_back")])
def test_answers_that_part_are_decoded_plainly(finished: Scripted, gap: float, outcome: str) -> None:
    """Each canary at which the target parts from the draft gets a plain answer; a near-tie agrees, anything else
    does not.
    """
    project = forcing(finished, {"agreement": 0.7, "gap": gap})

    parted = {
        forced_pass.canary for forced_pass in passes(project) if forced_pass.parted and forced_pass.altered is None
    }
    words = [json.loads(line) for line in (project.path / "run" / "plain_words-1.jsonl").read_text().splitlines()]
    assert outcome == workload(project)["outcome"]
    assert parted
    assert parted == {word["canary"] for word in words[:-1]}


def test_a_run_without_its_forced_passes_proves_nothing(finished: Scripted) -> None:
    """Where the file with the passes is lost, the canaries that only they compared are not answered in both arms:
    code 3.
    """
    project = forcing(finished, {})
    (project.path / "run" / "forced_check-1.jsonl").unlink()
    RunDirectory(project.path / "run").write_checksums()

    judged = project.run("judge", "run", "--json", code=3).document

    assert "forced_check-1.jsonl: missing" in judged["incomplete"]
    assert "in both arms" in judged["workloads"][0]["because"]


def test_an_interrupted_check_continues(finished: Scripted) -> None:
    """A run that was killed amid its forced passes makes the missing ones and gives the same verdict."""
    project = forcing(finished, {"agreement": 0.7, "gap": 0.01})
    before, passes_before = project.verdict(), passes(project)
    run = project.path / "run"
    lines = (run / "forced_check-1.jsonl").read_bytes().splitlines(keepends=True)
    (run / "forced_check-1.jsonl").write_bytes(b"".join(lines[:5]))
    events = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    (run / "events.jsonl").write_bytes(b"".join(events[:-1]))
    for name in ("plain_words-1.jsonl", "near_ties-1.jsonl", "verdict.json", "SHA256SUMS"):
        (run / name).unlink()

    project.run("certify", "slo.toml", "--out", "run", "--resume", code=0)

    assert [(before_kill.canary, before_kill.parted) for before_kill in passes_before] == [
        (forced_pass.canary, forced_pass.parted) for forced_pass in passes(project)
    ]
    assert before["workloads"][0]["checks"] == project.verdict()["workloads"][0]["checks"]


RIGGED = '''\
"""The mlx worker with caches that are not rewound any more after four hundred rewinds."""
import importlib
import runpy
import sys

sys.path.insert(0, {root!r})
generation = importlib.import_module("mlx_lm.generate")
right, calls = generation.trim_prompt_cache, [0]


def wrong(cache, count):
    calls[0] += 1
    return right(cache, 0 if calls[0] > 400 else count)


generation.trim_prompt_cache = wrong
runpy.run_module("gatekeeper.backends.workers.mlx_lm", run_name="__main__", alter_sys=True)
'''
"""After four hundred rewinds the caches keep every rejected token."""


@pytest.mark.mlx
@pytest.mark.nightly  # a hundred answers of real models; tests/backends/test_mlx.py forces them once
@pytest.mark.parametrize("rigged", [False, True], ids=["sound", "rigged"])
def test_a_cache_that_corrupts_later_answers_is_found(project: ProjectFolder, rigged: bool) -> None:
    """The real mlx-lm agrees with itself by forced passes; with a cache that is rewound wrongly after some answers
    it does
    not, although few canaries are decoded plainly.
    """
    worker = RIGGED if rigged else RIGGED.replace("generation.trim_prompt_cache = wrong\n", "")
    (project.path / "worker.py").write_text(worker.format(root=str(ROOT)))
    lines = (ROOT / "canaries" / "little" / "json.jsonl").read_text().splitlines(keepends=True)[:40]
    (project.path / "json.jsonl").write_text("".join(lines))
    models = ROOT / "models"
    project.write_slo(
        {
            "schema": 1,
            "name": "forced",
            "subject": {
                "backend": "worker",
                "target": str(models / "little-target"),
                "drafts": [str(models / "little-draft")],
                "command": [sys.executable, "worker.py", "{target}", "{draft}"],
            },
            "workload": [{"name": "json", "canaries": "json.jsonl"}],
            "sweep": {"repeats": 1, "budget": 5, "num_draft_tokens": [4]},
            "soak": {"duration": "3 s", "max_duration": "120 s", "baseline_drift": 0.9},
            "fallback": {"ladder": ["autoregressive"]},
            "objective": [
                *WORDS,
                {"metric": "throughput_ratio", "at_least": 0.01, "why": "this test is about words"},
                {"metric": "error_rate", "at_most": 1.0, "why": "this test is about words"},
                {"metric": "truncation_rate", "at_most": 1.0, "why": "this test is about words"},
                {"metric": "speculation_engaged", "at_least": 0.0, "why": "this test is about words"},
            ],
        }
    )

    project.run("certify", "slo.toml", "--out", "run", code=1 if rigged else 0)

    forced_passes = [forced_pass for forced_pass in passes(project) if forced_pass.altered is None]
    parted = [
        forced_pass for forced_pass in forced_passes if forced_pass.parted and (forced_pass.parted[0].gap or 0) > 1
    ]
    because = str(project.verdict()["transitions"]) if rigged else ""
    assert (rigged, rigged) == (bool(parted), "token_agreement" in because)
    assert len({forced_pass.canary for forced_pass in forced_passes}) > 12
