"""Servers and runs for the tests of remote hosts; without an sshd they are skipped with that reason."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.builders.project_folder import BRAKE, ROOT, Done, ProjectFolder
from tests.builders.scripted_slo import EASY
from tests.builders.ssh_server import Server, program
from tests.e2e.conftest import ended, project, scripted

__all__ = ["ended", "project", "scripted"]

Serve = Callable[..., Server]
Make = Callable[..., "Pair"]
Ended = Callable[[subprocess.Popen[str]], Done]

ON = ("--on", "mini")
CERTIFY = ("remote", "certify", "slo.toml", *ON)
REAL_TIME = {"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms", "prefill": "1 ms"}
HELD = {"HOLD_FILE": "runs/*/soak-1.jsonl", "HOLD_COUNT": "5", "HOLD_WORD": "concurrency", "HOLD_UNTIL": "../../go"}
"""A remote host whose runs stand still in their soak, until the test says `go`; the word is in each record once."""
ENDLESS = {"duration": "600 s", "baseline_drift": 0.9}
"""The test ends it."""
SMALL = {
    "workload": EASY,
    "sweep": {"repeats": 1, "num_draft_tokens": [4], "default": {"num_draft_tokens": 4}},
}
"""One workload and one setting: what a remote run measures is tested elsewhere."""


def need_sshd() -> None:
    if program("sshd") is None or program("ssh") is None:
        pytest.skip("no OpenSSH server on this machine (Debian: openssh-server)")


def install(server: Server, script: str = 'exec "$PYTHON" -m gatekeeper "$@"') -> None:
    """Put a `gatekeeper` where `uv tool install` puts it: in ~/.local/bin, which is on no PATH there."""
    path = os.pathsep.join([str(BRAKE)] * ("HOLD_FILE" in server.environment) + [str(ROOT)])
    file = server.home / ".local/bin/gatekeeper"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\nPYTHON='{sys.executable}' PYTHONPATH='{path}'\nexport PYTHON PYTHONPATH\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start servers, each with a home of its own; the client knows the last one as `mini`."""
    need_sshd()
    started: list[Server] = []

    def start(*options: str, **environment: str) -> Server:
        server = Server(tmp_path / f"server-{len(started)}", {"PATH": "/usr/bin:/bin", **environment}, options)
        started.append(server)
        server.start()
        monkeypatch.setenv("GATEKEEPER_SSH", server.words)
        return server

    yield start
    for server in started:
        server.close()


@dataclass(frozen=True)
class Pair:
    """This machine, with an SLO in a folder, and a remote host that has gatekeeper already."""

    project: ProjectFolder
    server: Server

    @property
    def jobs(self) -> list[Path]:
        return sorted((self.server.state / "jobs").glob("*/job.json"))

    def job(self) -> Path:
        """Return the folder of the only remote job."""
        (record,) = self.jobs
        return record.parent

    def run(self) -> Path:
        """Return the run directory of the only remote job."""
        return self.server.state / "runs" / self.job().name

    def process(self) -> psutil.Process:
        """Return the remote gatekeeper."""
        return psutil.Process(int((self.job() / "pid").read_text()))

    def measuring(self) -> bool:
        """Return whether a remote run has begun to measure."""
        return any(self.server.state.glob("runs/*/baseline.jsonl"))

    def soaking(self) -> bool:
        """Return whether the remote soak has recorded some answers."""
        records = self.server.state.glob("runs/*/soak-1.jsonl")
        return any(len(path.read_text().splitlines()) > 5 for path in records)

    def go(self) -> None:
        """Let a run that the host holds go on."""
        (self.server.root / "go").touch()

    def verdict(self, done: Done, run: str = "run") -> dict[str, Any]:
        """Return the verdict of a run that was downloaded whole; which it is depends on how busy this machine is."""
        verdict = self.project.verdict(run)
        assert "the same verdict" in done.err, done.err
        assert done.code == verdict["exit_code"]
        return verdict

    def listed(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.project.run("remote", "list", *ON, "--json", code=0).document["runs"]
        return runs

    def with_environment(self, **variables: str) -> "Pair":
        return Pair(self.project.with_environment(**variables), self.server)


@pytest.fixture
def pair(serve: Serve, scripted: Callable[..., ProjectFolder]) -> Make:
    """Write a local scripted SLO and start the remote host; *truth* and *changes* as of `scripted`."""

    def make(truth: Mapping[str, Any] | None = None, remote: Mapping[str, str] | None = None, **changes: Any) -> Pair:
        server = serve(**(remote or {}))
        install(server)
        project = scripted(truth, **{**SMALL, **changes})
        return Pair(project, server).with_environment(GATEKEEPER_SSH=server.words)

    return make


def job_record(**changes: Any) -> str:
    """Return the job.json of a run."""
    fields = {"owner": "eve@evil", "started": "2026-11-22T09:00:00Z", "slo": "little", "inputs_sha256": "0" * 64}
    return json.dumps({**fields, "options": [], **changes})
