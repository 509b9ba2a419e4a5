"""The probe: an answer per workload in a moment, and never a policy."""

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from gatekeeper import host
from gatekeeper.run.start.try_slo import try_slo
from tests.builders.project_folder import Done, ProjectFolder, canary_lines
from tests.builders.scripted_slo import BOTH
from tests.builders.waiting import until

Scripted = Callable[..., ProjectFolder]
QUICK = {"token": "20 ms", "verify": "22 ms", "draft_token": {"heavy": "2 ms", "light": "1 ms"}}
"""A probe has a minute: answers of a quarter of a second are enough of them."""


def probed(project: ProjectFolder, *words: str) -> dict[str, Any]:
    for prefix in ("easy", "hard"):
        (project.path / f"{prefix}.jsonl").write_text(canary_lines(prefix, 30))
    return project.run("try", "slo.toml", "--json", *words, code=0).document


def test_it_tells_what_helps_from_what_hurts(scripted: Scripted) -> None:
    """The workload that drafts well is helped and the other hurt; records stay with --out alone, never a policy."""
    project = scripted(QUICK, workload=BOTH)
    before = {path.name for path in project.path.iterdir()}

    document = probed(project, "--seconds", "60")
    after = {path.name for path in project.path.iterdir()}
    stored = probed(project, "--seconds", "60", "--out", "run")

    easy, hard = (document["workloads"][name] for name in ("easy", "hard"))
    assert ("helps", "hurts") == (easy["answer"], hard["answer"])
    assert easy["lo"] > 1 > hard["hi"]
    assert easy["acceptance_rate"] > hard["acceptance_rate"] > 0
    names = {path.name for path in (project.path / "run").iterdir()}
    assert before == after
    assert {"baseline.jsonl", "sweep-default.jsonl", "manifest.json", "probe.json"} <= names
    assert not {"policy.toml", "verdict.json"} & names
    assert stored == json.loads((project.path / "run" / "probe.json").read_text())


def test_it_keeps_to_its_time_and_says_what_it_lacked(scripted: Scripted) -> None:
    """With too little time it stops near it, is unclear, and names the time that would do."""
    document = probed(scripted(QUICK), "--seconds", "4")

    assert document["seconds"] < 6
    assert {"unclear"} == {workload["answer"] for workload in document["workloads"].values()}
    assert all({"try", "--seconds"} <= {*workload["next"].split()} for workload in document["workloads"].values())


def test_it_names_the_programs_that_make_its_figures_rough(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others used much of the machine meanwhile; on a quiet one nothing is noted."""
    project = scripted({"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms"})
    notes = []
    for cores in (0.1, 1.9):
        monkeypatch.setattr(
            "gatekeeper.host.used_between", lambda *_, used=cores: host.OtherPrograms(used, 2, (("make", used),))
        )
        document = try_slo(project.path / "slo.toml", None, seconds=0.1, observers=(), again="gatekeeper try")
        notes.append([note for note in document["notes"] if "programs" in note])

    busy = "other programs used 1.9 of 2 cores: make 1.9: close them for figures that decide more"
    assert [[], [busy]] == notes


def test_an_interrupted_probe_points_to_no_resume(
    scripted: Scripted, ended: Callable[[subprocess.Popen[str]], Done]
) -> None:
    """Ctrl-C ends a probe with 130, and its hint offers nothing that a probe does not have."""
    project = scripted(QUICK)
    process = project.held("run/baseline.jsonl").start("try", "slo.toml", "--seconds", "60", "--out", "run")
    file = project.path / "run" / "baseline.jsonl"
    until(lambda: file.is_file() and file.stat().st_size > 0)

    process.send_signal(signal.SIGINT)
    interrupted = ended(process)

    assert 130 == interrupted.code
    assert ("run it again" in interrupted.err, "--resume" in interrupted.err) == (True, False)


def test_a_failing_draft_is_no_help(scripted: Scripted) -> None:
    """Where answers fail, lost pairs leave the ratio unproven, and the probe still ends well."""
    faults = [{"every": 2, "arm": "candidate", "fault": "truncate"}]

    workloads = probed(scripted({**QUICK, "faults": faults}))["workloads"]

    assert {"unclear"} == {workload["answer"] for workload in workloads.values()}
    assert "failed" in workloads["easy"]["because"]
