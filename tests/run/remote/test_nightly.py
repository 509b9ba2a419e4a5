"""The night's script, on another machine, over a real ssh connection."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.place import ROOT, Done, Place
from tests.run.remote.conftest import Pair
from tests.run.remote.test_remote_run import REAL_TIME, UNHURRIED, answers

Make = Callable[..., Pair]
Until = Callable[[Callable[[], bool]], None]
ONE = {"workload": [{"name": "easy", "canaries": "easy.jsonl"}]}


@dataclass
class Nights:
    pair: Pair

    @property
    def runs(self) -> Path:
        return self.pair.place.path / "all runs"

    def start(self, *words: str) -> subprocess.Popen[str]:
        folder = self.pair.place.path
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / "gatekeeper").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gatekeeper "$@"\n')
        (folder / "bin" / "gatekeeper").chmod(0o755)
        environment = {**self.pair.place.environment, "GATEKEEPER": str(folder / "bin" / "gatekeeper")}
        command = ["bash", str(ROOT / "soak" / "nightly.sh"), "slo.toml", "--on", "far", "--runs", "all runs", *words]
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *words: str) -> Done:
        process = self.start(*words)
        out, err = process.communicate(timeout=240)
        return Done(process.returncode, out, err)

    def brought(self) -> list[Path]:
        return sorted(path for path in self.runs.iterdir() if (path / "SHA256SUMS").is_file())


@pytest.fixture
def nights(pair: Make) -> Callable[..., Nights]:
    if shutil.which("bash") is None:
        pytest.skip("no bash to run the script")

    def make(*truth: object, **changes: object) -> Nights:
        return Nights(pair(*truth, **{**ONE, **changes}))

    return make


def test_a_night_takes_up_the_run_of_the_one_before(nights: Callable[..., Nights], until: Until) -> None:
    """
    The script is ended, the run goes on over there; the next night attaches, waits for it, brings it home into a folder
    of its own, says so in one line, and rotates the runs there as well.
    """
    made = nights(REAL_TIME, soak=UNHURRIED)
    first = made.start()
    until(lambda: answers(made.pair) > 5)
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=240)

    second = made.run()

    assert (130, "") == (first.returncode, err)
    assert out.startswith("slo: interrupted (exit code 130): ")
    assert 0 == second.code, second.out
    (line,) = second.out.splitlines()
    (run,) = made.brought()
    assert line.startswith("scripted: promoted (exit code 0, demo): easy ")
    assert line.endswith(f"; on far; {run}")
    assert 1 == len(list(made.pair.jobs.iterdir()))
    assert "far: removed 0 runs that came home" in (made.runs / f"nightly-{run.name}.log").read_text()


def test_a_machine_that_can_not_be_reached_proves_nothing(nights: Callable[..., Nights]) -> None:
    """
    Nobody listens there: exit code 3, in the line as well, and nothing of a run here.
    """
    made = nights()
    words = made.pair.server.words.replace("ssh ", "ssh -p 9 ", 1)
    made.pair = Pair(
        Place(made.pair.place.path, {**made.pair.place.environment, "GATEKEEPER_SSH": words}), made.pair.server
    )

    done = made.run("--", "--patience", "0 s")

    assert (3, "") == (done.code, done.err)
    assert done.out.startswith("slo: unproven (exit code 3): ")
    assert [] == made.brought()


def test_prune_removes_only_what_came_home(pair: Make) -> None:
    """
    Somebody else's runs, and runs that were not brought home, stay whatever is asked for; a dry run removes nothing.
    """
    made = pair(**ONE)
    place: Place = made.place
    place.run("remote", "certify", "slo.toml", "--on", "far", "--out", "run", code=0)
    newest = made.job()
    told = json.loads((newest / "job.json").read_text())
    for name, changes in (("theirs", {"owner": "somebody@else"}), ("unfetched", {}), ("old", {}), ("older", {})):
        shutil.copytree(newest, made.jobs / name)
        started = {"run_id": name, "started": f"2020-01-01T00:00:0{len(name)}.000000Z"}
        (made.jobs / name / "job.json").write_text(json.dumps(told | started | changes))
    (made.jobs / "unfetched" / "fetched.json").unlink()

    tried = place.run("remote", "prune", "--on", "far", "--keep", "1", "--dry-run", "--json", code=0).document
    before = len(list(made.jobs.iterdir()))
    done = place.run("remote", "prune", "--on", "far", "--keep", "1", code=0)

    assert 5 == before
    assert ["old", "older"] == tried["removed"]
    assert {newest.name, "theirs", "unfetched"} == {path.name for path in made.jobs.iterdir()}
    assert "far: removed 2 runs that came home from there; 1 run left of those" in done.out
