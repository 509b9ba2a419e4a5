"""Pruning a folder of runs: old runs are removed whole, and the deploy gate decides as before."""

import fcntl
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from gatekeeper.core.manifest import sha256
from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.golden_words import lines_with, says
from tests.builders.project_folder import ProjectFolder, project_folder
from tests.builders.scripted_slo import EASY, write_scripted

DAY = timedelta(days=1)
KILLED = """
import os, signal, sys
going = False
def kill_at_the_first_file(event, words):
    global going
    going = going or (event == "shutil.rmtree" and "going" in str(words[0]))
    if going and event == "os.remove":
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill_at_the_first_file)
from gatekeeper.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> ProjectFolder:
    """A promoted run, `made/good`, and a failed one of the same objectives, `made/bad`; made once."""
    project = project_folder(tmp_path_factory.mktemp("prune"))
    write = partial(write_scripted, project)
    write(workload=EASY, promote={"valid_for": "3650 d"})
    project.run("certify", "slo.toml", "--out", "made/good", "--quiet", code=0)
    write({"canaries": {"easy-": {"acceptance": 0.05}}}, workload=EASY, promote={"valid_for": "3650 d"})
    project.run("certify", "slo.toml", "--out", "made/bad", "--quiet", code=1)
    return project


@pytest.fixture
def night(finished_runs: ProjectFolder, tmp_path: Path) -> Callable[..., Path]:
    """Copy a run into the folder `all runs`, with an age in days."""

    def copy(name: str, age: float, kind: str = "good", *, valid: str | None = None) -> Path:
        run = tmp_path / "all runs" / name
        shutil.copytree(finished_runs.path / "made" / kind, run)
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["frozen_at"] = (datetime.now(UTC) - age * DAY).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if valid is not None:
            slo = run / "inputs" / "slo.toml"
            slo.write_text(slo.read_text().replace("3650 d", valid))
            manifest["slo"]["sha256"] = sha256(slo.read_bytes())
        (run / "manifest.json").write_text(json.dumps(manifest))
        RunDirectory(run).write_checksums()
        return run

    return copy


@pytest.fixture
def runs(finished_runs: ProjectFolder, tmp_path: Path) -> ProjectFolder:
    (tmp_path / "all runs").mkdir()
    return ProjectFolder(tmp_path, finished_runs.environment)


def here(runs: ProjectFolder) -> list[str]:
    return sorted(path.name for path in (runs.path / "all runs").iterdir())


def test_old_runs_are_removed(runs: ProjectFolder, night: Callable[..., Path]) -> None:
    """
    The newest stay, the rest is removed whole, and the freed bytes are reported; a dry run removes nothing.
    """
    for age in (1, 2, 3, 4, 5):
        night(f"night {age}", age)

    tried = runs.run("prune", "all runs", "--keep", "2", "--dry-run", code=0)
    before = here(runs)
    done = runs.run("prune", "all runs", "--keep", "2", "--json", code=0).document

    assert 5 == len(before)
    assert ["night 1", "night 2"] == here(runs)
    assert ["night 5", "night 4", "night 3"] == [Path(entry["run"]).name for entry in done["removed"]]
    assert done["bytes"] > 10_000
    assert 3 == sum(line.startswith("would remove  all runs/") for line in tried.out.splitlines())


def test_the_gate_decides_as_before(
    runs: ProjectFolder, finished_runs: ProjectFolder, night: Callable[..., Path]
) -> None:
    """
    The newest run failed, so nothing may be deployed, and it stays: pruning never makes the good run before it the
    newest.
    """
    night("1 good", 30)
    night("2 good", 20)
    night("3 bad", 10, "bad")
    for age in (1, 2, 3):
        night(f"other {age}", age, valid="30 d")
    command = ("admit", str(finished_runs.path / "slo.toml"), "--runs", "all runs", "--grade", "demo", "--json")
    before = runs.run(*command).document

    runs.run("prune", "all runs", "--keep", "1", code=0)

    assert ["2 good", "3 bad", "other 1"] == here(runs)
    after = runs.run(*command).document
    assert [before[key] for key in ("reason", "run", "exit_code")] == [
        after[key] for key in ("reason", "run", "exit_code")
    ]
    assert "all runs/3 bad" == after["run"]


def test_what_is_no_run_is_left_alone(runs: ProjectFolder, night: Callable[..., Path]) -> None:
    """
    Files, other folders, links, runs that are still being fetched, unreadable ones and ones with notes in them.
    """
    for age in (1, 2, 3, 4, 5, 6):
        night(f"night {age}", age)
    folder = runs.path / "all runs"
    (folder / "last.txt").write_text("promoted")
    (folder / "thesis").mkdir()
    (folder / "thesis" / "manifest.json").write_text('{"name": "a web page"}')
    (folder / "latest").symlink_to("night 6", target_is_directory=True)
    (folder / "night 3").rename(folder / "night 3.part")
    (folder / "night 4" / "notes.md").write_text("it rained")
    (folder / "night 5" / "inputs" / "slo.toml").write_text("schema = 2")

    done = runs.run("prune", "all runs", "--keep", "1", "--json", code=0).document

    assert ["all runs/night 6", "all runs/night 2"] == [entry["run"] for entry in done["removed"]]
    assert ["last.txt", "latest", "night 1", "night 3.part", "night 4", "night 5", "thesis"] == here(runs)
    kept_runs = {Path(entry["run"]).name: entry["because"] for entry in done["left"]}
    assert {"latest", "night 4", "night 5", "thesis"} == kept_runs.keys()
    assert "notes.md" in kept_runs["night 4"]


def test_records_of_removed_runs_are_removed(runs: ProjectFolder, night: Callable[..., Path]) -> None:
    """
    The registry's record of a downloaded run is removed with it; one that is open, or of another run, stays.
    """
    night("new", 1)
    old = night("old", 9)
    entries = {"a": ("closed", "old"), "b": ("open", "old"), "c": ("closed", "new")}
    for name, (state, run) in entries.items():
        entry = {"schema": 1, "state": state, "out": str(old.with_name(run))}
        (old.parent / f"{name}.remote.json").write_text(json.dumps(entry))
    (old.parent / "d.remote.json").write_text("[]")

    runs.run("prune", "all runs", "--keep", "1", code=0)

    assert ["b.remote.json", "c.remote.json", "d.remote.json", "new"] == here(runs)


def test_an_unfinished_run_is_removed_only_when_it_is_old(runs: ProjectFolder, night: Callable[..., Path]) -> None:
    """
    Without --unfinished none is removed; with it, older ones are, unless one holds a foreign file.
    """
    for age in (0.5, 3, 20, 30):
        run = night(f"night {age:g}", age)
        if age > 1:
            (run / "SHA256SUMS").unlink()
            (run / "logs").mkdir(exist_ok=True)
            (run / "logs" / "server-1.log").write_text("up")
            (run / ".manifest.json.4711").write_text("half")
    (runs.path / "all runs" / "night 30" / "photo.jpeg").write_text("me")

    runs.run("prune", "all runs", "--keep", "1", code=0)
    before = here(runs)
    done = runs.run("prune", "all runs", "--keep", "1", "--unfinished", "14d", "--json", code=0).document

    assert 4 == len(before)
    assert ["night 0.5", "night 3", "night 30"] == here(runs)
    assert "photo.jpeg" in done["left"][0]["because"]


def test_a_run_that_is_written_stays(runs: ProjectFolder, night: Callable[..., Path]) -> None:
    """
    A run whose lock another gatekeeper holds, to resume or to sign it, stays.
    """
    night("new", 1)
    old = night("old", 9)
    with (old / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        busy = runs.run("prune", "all runs", "--keep", "1", "--json", code=0).document
    freed = runs.run("prune", "all runs", "--keep", "1", "--json", code=0).document

    assert "another gatekeeper" in busy["left"][0]["because"]
    assert ["all runs/old"] == [entry["run"] for entry in freed["removed"]]


def test_a_killed_removal_is_finished(runs: ProjectFolder, night: Callable[..., Path]) -> None:
    """
    Killed between two files, prune leaves no half run that admit would read; the next prune finishes the removal.
    """
    night("new", 1)
    for number in range(3):
        night(f"old {number}", 9 + number)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "prune", "all runs", "--keep", "1"],
        cwd=runs.path,
        env=runs.environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    half = [name for name in here(runs) if name.startswith(".")]
    listed = runs.run("history", "all runs", "--json", code=0).document

    done = runs.run("prune", "all runs", "--keep", "1", code=0)

    assert -signal.SIGKILL == killed.returncode, killed.stderr
    assert [".gatekeeper-going-old 2"] == half
    assert [] == listed["unreadable"]
    assert ["new"] == here(runs), done.out


def test_a_run_that_cannot_be_removed_is_exit_code_4(runs: ProjectFolder, night: Callable[..., Path]) -> None:
    """
    A run that cannot be removed stays whole with its reason, the others are removed, and the exit code is 4.
    """
    night("new", 1)
    night("old", 9)
    night("older", 10)
    (runs.path / "all runs" / ".gatekeeper-going-older").write_text("in the way")

    done = runs.run("prune", "all runs", "--keep", "1", code=4)

    assert "all runs/older" in lines_with("cannot be removed", done.out)
    assert [".gatekeeper-going-older", "new", "older"] == here(runs)
    assert (runs.path / "all runs" / "older" / "SHA256SUMS").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("prune", "all runs"), "--keep"),
        (("prune", "all runs", "--keep", "0"), "0"),
        (("prune", "nowhere", "--keep", "3"), "nowhere"),
        (("prune", "all runs", "--keep", "3", "--within", "soon"), "--within"),
        (("prune", "all runs", "--keep", "3", "--unfinished", "-1d"), "--unfinished"),
    ],
)
def test_a_wrong_command_line_removes_nothing(
    runs: ProjectFolder, night: Callable[..., Path], words: tuple[str, ...], message: str
) -> None:
    """
    Without a count, or with an invalid duration, the exit code is 2.
    """
    night("old", 900)

    done = runs.run(*words, code=2)

    assert message in done.err
    assert ["old"] == here(runs)


def test_what_a_watch_wrote_next_to_a_policy_keeps_no_run(runs: ProjectFolder, night: Callable[..., Path]) -> None:
    """
    Overlay, journals, their locks and the Finder's file are no files of anybody else; a run that is watched stays.
    """
    night("new", 1)
    old, watched = night("old", 9), night("watched", 10)
    for name in ("policy.live.toml", "watch.jsonl", "live.jsonl.1", ".watch.jsonl.lock", ".DS_Store"):
        (old / name).write_text("")
    with (watched / ".policy.live.toml.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = runs.run("prune", "all runs", "--keep", "1", "--json", code=0).document

    assert ["all runs/old"] == [removed["run"] for removed in done["removed"]]
    (kept_run,) = done["left"]
    assert "all runs/watched" == kept_run["run"]
    says("commands", "what a watch wrote next to a policy keeps no run", kept_run["because"])
