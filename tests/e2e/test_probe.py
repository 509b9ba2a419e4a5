"""The probe: an answer per workload in a moment, and never a policy."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.project_folder import ROOT, Done, ProjectFolder, canary_lines
from tests.builders.scripted_slo import BOTH
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]
Ended = Callable[[subprocess.Popen[str]], Done]


QUICK = {"token": "20 ms", "verify": "22 ms", "draft_token": {"heavy": "2 ms", "light": "1 ms"}}
"""A probe has a minute: answers of a quarter of a second are enough of them."""


def probed(project: ProjectFolder, *words: str) -> dict[str, Any]:
    for prefix in ("easy", "hard"):
        (project.path / f"{prefix}.jsonl").write_text(canary_lines(prefix, 30))
    return project.run("try", "slo.toml", "--json", *words, code=0).document


def test_it_tells_what_helps_from_what_hurts(scripted: Scripted) -> None:
    """The workload that drafts well is helped and the other hurt, each with its interval and its acceptance."""
    workloads = probed(scripted(QUICK, workload=BOTH), "--seconds", "60")["workloads"]

    assert ("helps", "hurts") == (workloads["easy"]["answer"], workloads["hard"]["answer"])
    assert workloads["easy"]["lo"] > 1 > workloads["hard"]["hi"]
    assert workloads["easy"]["acceptance_rate"] > workloads["hard"]["acceptance_rate"] > 0


def test_it_keeps_to_its_time_and_says_what_it_lacked(scripted: Scripted) -> None:
    """With too little time it stops near it, is unclear, and names the time that would do."""
    document = probed(scripted(QUICK), "--seconds", "4")

    assert document["seconds"] < 6
    assert {"unclear"} == {workload["answer"] for workload in document["workloads"].values()}
    assert all({"try", "--seconds"} <= {*workload["next"].split()} for workload in document["workloads"].values())


def test_no_effect_stays_unclear(scripted: Scripted) -> None:
    """A draft that changes nothing is neither help nor harm, whatever the noise."""
    free = {
        **QUICK,
        "verify": "20 ms",
        "draft_token": 0.0,
        "acceptance": 0.0,
        "canaries": {},
        "noise": {"answer": 0.05},
    }
    project = scripted(free, confidence=0.99999)  # at 95 % one probe in ten would rightly be mistaken, so one in 50,000

    document = probed(project, "--seconds", "600")

    assert {"unclear"} == {workload["answer"] for workload in document["workloads"].values()}
    assert {24} == {workload["n"] for workload in document["workloads"].values()}


def test_an_interrupted_probe_points_to_no_resume(scripted: Scripted, ended: Ended) -> None:
    """Ctrl-C ends a probe with 130, and its hint offers nothing that a probe does not have."""
    project = scripted(QUICK)
    process = project.held("run/baseline.jsonl").start("try", "slo.toml", "--seconds", "60", "--out", "run")
    file = project.path / "run" / "baseline.jsonl"
    until(lambda: file.is_file() and file.stat().st_size > 0)

    process.send_signal(signal.SIGINT)
    interrupted = ended(process)

    assert 130 == interrupted.code
    assert "run it again" in interrupted.err
    assert "--resume" not in interrupted.err


def test_a_failing_draft_is_no_help(scripted: Scripted) -> None:
    """Where answers fail, lost pairs leave the ratio unproven, and the probe still ends well."""
    workloads = probed(scripted({**QUICK, "faults": [{"every": 2, "arm": "candidate", "fault": "truncate"}]}))[
        "workloads"
    ]

    assert {"unclear"} == {workload["answer"] for workload in workloads.values()}
    assert "failed" in workloads["easy"]["because"]


def test_it_writes_no_policy_and_leaves_nothing_behind(scripted: Scripted) -> None:
    """Without --out nothing stays in the folder; with it the records stay, and never a verdict or a policy."""
    project = scripted()
    before = {path.name for path in project.path.iterdir()}

    probed(project)
    after = {path.name for path in project.path.iterdir()}
    document = probed(project, "--out", "run")

    names = {path.name for path in (project.path / "run").iterdir()}
    assert before == after
    assert {"baseline.jsonl", "sweep-default.jsonl", "manifest.json", "probe.json"} <= names
    assert not {"policy.toml", "verdict.json"} & names
    assert document == json.loads((project.path / "run" / "probe.json").read_text())


def test_two_processes_are_probed_in_blocks(scripted: Scripted) -> None:
    """Where the arms cannot share a process the result is the same, with the arms in blocks."""
    workloads = probed(scripted({**QUICK, "shares_process": False}, workload=BOTH), "--seconds", "60")["workloads"]

    assert ("helps", "hurts") == (workloads["easy"]["answer"], workloads["hard"]["answer"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("slo.toml", "--target", "t"), "leave out --target"),
        (("slo.toml", "--canaries", "c"), "--canaries"),
        (("slo.toml", "--draft", "d"), "its own models"),
    ],
)
def test_a_wrong_command_line_is_refused(scripted: Scripted, words: tuple[str, ...], complaint: str) -> None:
    """An SLO file or a pair: anything else is exit code 2 and says what is missing."""
    assert complaint in scripted().run("try", *words, code=2).err


def test_an_slo_without_a_draft_has_nothing_to_probe(scripted: Scripted) -> None:
    """Without a draft there is no question to answer: exit code 2."""
    subject = {"backend": "scripted", "target": "t", "script": "truth.json"}
    optional = [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}]

    refused = scripted(subject=subject, workload=optional, sweep={}).run("try", "slo.toml", code=2)

    assert "subject.drafts" in refused.err


@pytest.mark.nightly
@pytest.mark.mlx
def test_a_real_pair_is_probed_without_an_slo_file(project: ProjectFolder) -> None:
    """`try --target M --draft D` on the little pair: the draft that guesses wrong is not said to help."""
    pytest.importorskip("mlx_lm")
    models = ROOT / "models"
    canaries: Path = ROOT / "canaries" / "little" / "random.jsonl"
    words = ("--target", str(models / "little-target"), "--draft", str(models / "little-draft-bad"))

    document = project.run("try", *words, "--canaries", str(canaries), "--json", code=0).document

    assert ["random"] == list(document["workloads"])
    assert "helps" != document["workloads"]["random"]["answer"]
