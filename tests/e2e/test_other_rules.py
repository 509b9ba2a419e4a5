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


def restate(run: Path, rules: object, frozen_at: str | None = None) -> None:
    """Let the manifest of *run* state other rules, none where they are None; its checksums hold."""
    manifest = run / "manifest.json"
    document = json.loads(manifest.read_text()) | {"rules": rules}
    if rules is None:
        del document["rules"]
    if frozen_at is not None:
        document["frozen_at"] = frozen_at
    manifest.write_text(json.dumps(document, sort_keys=True, indent=1) + "\n")
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

    said = done.out if command == "admit" else done.err
    assert "manifest.json: the run was planned by rules 2, and this gatekeeper judges by rules 3" in " ".join(
        said.split()
    )
    assert "certify again" in said


@pytest.mark.parametrize("stated", STATED)
def test_only_the_number_itself_is_the_same_rules(demo: ProjectFolder, stated: str) -> None:
    """Newer rules, none at all and a number written as text are other rules; a run keeps none of its outcome by
    them.
    """
    restate(demo.path / "run", STATED[stated])

    refused = demo.run("judge", "run", "--json", code=3).document

    assert f"this gatekeeper judges by rules {RULES}" in refused["error"]
    assert {"error", "hint", "exit_code"} == refused.keys()


def test_history_lists_it_without_figures(changed: ProjectFolder) -> None:
    """It is named with the reason, among the runs that cannot be read."""
    shutil.move(changed.path / "run", changed.path / "runs" / "other")
    shutil.move(changed.path / "kept", changed.path / "runs" / "kept")

    document = changed.run("history", "runs", "--json", code=0).document

    (unreadable,) = document["unreadable"]
    assert "runs/other" == unreadable["run"]
    assert "planned by rules 2" in unreadable["because"]


@pytest.mark.parametrize(
    ("frozen_at", "reason"), [("2000-01-01T00:00:00Z", "admitted"), ("2099-01-01T00:00:00Z", "other_rules")]
)
def test_the_gate_passes_over_an_older_one_and_stops_at_a_newer_one(
    changed: ProjectFolder, frozen_at: str, reason: str
) -> None:
    """A run of other rules may have failed: only where a run of these rules is newer may that one be admitted."""
    restate(changed.path / "run", STATED["newer"], frozen_at)
    shutil.move(changed.path / "run", changed.path / "runs" / "other")
    shutil.move(changed.path / "kept", changed.path / "runs" / "kept")

    code = 0 if reason == "admitted" else 3
    document = changed.run("admit", "slo.toml", "--runs", "runs", "--grade", "demo", "--json", code=code).document

    assert reason == document["reason"]
    assert ("runs/kept" if code == 0 else "runs/other") == document["run"]
    passed_over = [entry["run"] for entry in document["passed_over"] if entry["because"].startswith("other_rules: ")]
    assert (["runs/other"] if code == 0 else []) == passed_over
