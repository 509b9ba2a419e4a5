"""Runs of other rules: no command judges one by its own, and none counts as proof."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.core.rules import RULES
from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.project_folder import ProjectFolder
from tests.builders.scripted_slo import BOTH

STATED = {"older": RULES - 1, "newer": RULES + 1, "none": None, "text": str(RULES)}
COMMANDS = {
    "judge": ("judge", "run"),
    "report": ("report", "run"),
    "compare": ("compare", "run", "kept"),
    "admit": ("admit", "slo.toml", "--run", "run"),
    "watch": ("watch", "run/policy.toml", "--slo", "slo.toml", "--rounds", "1"),
    "proxy": ("proxy", "run/policy.toml", "--slo", "slo.toml", "--url", "http://127.0.0.1:9"),
    "resume": ("certify", "slo.toml", "--resume", "--output", "run", "--quiet"),
}


def restate(run: Path, rules: object, **fields: object) -> None:
    """Let the manifest of *run* state other rules, none where they are None; its checksums hold."""
    document = json.loads((run / "manifest.json").read_text()) | {"rules": rules} | fields
    if rules is None:
        del document["rules"]
    (run / "manifest.json").write_text(json.dumps(document, sort_keys=True, indent=1) + "\n")
    RunDirectory(run).write_checksums()


@pytest.fixture
def changed(finished: Callable[..., ProjectFolder]) -> ProjectFolder:
    """A folder with a run of these rules, `kept`, and its copy of older ones, `run`."""
    project = finished(workload=BOTH, promote={"valid_for": "3650 d"})
    shutil.copytree(project.path / "run", project.path / "kept")
    restate(project.path / "run", STATED["older"])
    return project


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_of_other_rules_is_no_evidence(changed: ProjectFolder, command: str) -> None:
    """Every command that rests on a verdict says which rules the run states and which are judged by, and ends in 3."""
    done = changed.run(*COMMANDS[command], code=3)

    text = " ".join((done.out if command == "admit" else done.err).split())
    assert "manifest.json: the run was planned by rules 2, and this gatekeeper judges by rules 3" in text
    assert "certify again" in text


@pytest.mark.parametrize("stated", STATED)
def test_only_the_number_itself_is_the_same_rules(demo: ProjectFolder, stated: str) -> None:
    """Newer rules, none at all and a number written as text are other rules."""
    restate(demo.path / "run", STATED[stated])

    refused = demo.run("judge", "run", "--json", code=3).document

    assert f"this gatekeeper judges by rules {RULES}" in refused["error"]
    assert {"error", "hint", "exit_code"} == refused.keys()


@pytest.mark.parametrize(
    ("frozen_at", "reason"), [("2000-01-01T00:00:00Z", "admitted"), ("2099-01-01T00:00:00Z", "other_rules")]
)
def test_the_gate_passes_over_an_older_one_and_stops_at_a_newer_one(
    changed: ProjectFolder, frozen_at: str, reason: str
) -> None:
    """A run of other rules may have failed: it hides older runs, and `history` lists it without figures."""
    restate(changed.path / "run", STATED["newer"], frozen_at=frozen_at)
    for name, place in (("run", "other"), ("kept", "kept")):
        shutil.move(changed.path / name, changed.path / "runs" / place)

    code, run = (0, "runs/kept") if reason == "admitted" else (3, "runs/other")
    document = changed.run("admit", "slo.toml", "--runs", "runs", "--grade", "demo", "--json", code=code).document
    listed = changed.run("history", "runs", "--json", code=0).document["unreadable"]

    assert (reason, run) == (document["reason"], document["run"])
    passed_over = [entry["run"] for entry in document["passed_over"] if entry["because"].startswith("other_rules: ")]
    assert (["runs/other"] if code == 0 else []) == passed_over
    assert ["runs/other"] == [entry["run"] for entry in listed if "planned by rules" in entry["because"]]
