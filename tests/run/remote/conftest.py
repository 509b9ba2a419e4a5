"""Servers and runs for the tests of remote hosts; without an sshd they are skipped with that reason."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomli_w

from gatekeeper.run.remote.installation import Environment, build_wheel, prepare_environment
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.ssh_errors import AgentError, SshError
from tests.builders.project_folder import BRAKE, Done, ProjectFolder
from tests.builders.scripted_slo import EASY
from tests.builders.ssh_server import Server, program, python_with
from tests.e2e.conftest import ended, project, scripted

__all__ = ["ended", "project", "scripted"]

Serve = Callable[..., Server]
Make = Callable[..., "Pair"]
Ended = Callable[[subprocess.Popen[str]], Done]

ON = ("--on", "mini")
CERTIFY = ("remote", "certify", "slo.toml", *ON)
REAL_TIME = {"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms", "prefill": "1 ms"}
HELD = {"HOLD_FILE": "run/soak-1.jsonl", "HOLD_COUNT": "5", "HOLD_WORD": "concurrency", "HOLD_UNTIL": "../../../../go"}
"""A remote host whose runs stand still in their soak, until the test says `go`; the word is in each record once."""
ENDLESS = {"duration": "600 s", "sentinel_drift": 0.9}
"""The test ends it."""
SMALL = {
    "workload": EASY,
    "sweep": {"repeats": 1, "num_draft_tokens": [4], "default": {"num_draft_tokens": 4}},
}
"""One workload and one setting: what a remote run measures is tested elsewhere."""


def need_sshd() -> None:
    if program("sshd") is None or program("ssh") is None:
        pytest.skip("no OpenSSH server on this machine (Debian: openssh-server)")


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start servers, each with a home of its own; the client knows the last one as `mini`."""
    need_sshd()
    started: list[Server] = []

    def start(*options: str, **environment: str) -> Server:
        server = Server(tmp_path / f"server-{len(started)}", environment, options)
        started.append(server)
        server.start()
        monkeypatch.setenv("GATEKEEPER_SSH", server.words)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment that holds this gatekeeper, as on a host where the user installed it, with a brake.

    All workers of a test run share it: what is run there first compiles all of it.
    """
    temporary = tmp_path_factory.getbasetemp()
    folder = (temporary.parent if "PYTEST_XDIST_WORKER" in os.environ else temporary) / "installed"
    with folder.with_suffix(".lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not (folder / "ready").exists():
            python_with(folder, wheel=build_wheel().content)
            (site,) = (folder / "lib").glob("python3*/site-packages")
            brake = f"import runpy; runpy.run_path({str(BRAKE / 'sitecustomize.py')!r})"
            (site / "zz-brake.pth").write_text(f"import os; exec({brake!r}) if 'HOLD_FILE' in os.environ else None\n")
            (folder / "ready").touch()
    return folder


@dataclass(frozen=True, slots=True)
class Installed:
    """A remote host where gatekeeper and mlx-lm were installed through a connection, for real."""

    server: Server
    environment: Environment
    output: tuple[str, ...]
    half_made: Path
    """The environment of a first attempt, which was cut."""


LEFT = "left-behind"


def _cut_attempt(server: Server) -> Path:
    """Cut the connection at the first output of pip; return the half-made environment."""

    def cut(_line: str) -> None:
        server.cut()

    with Connection("mini") as connection, pytest.raises(SshError):
        prepare_environment(connection, say=cut)
    (half,) = [path for path in (server.state / "envs").iterdir() if path.is_dir()]
    (half / LEFT).touch()
    return half


@pytest.fixture(scope="session")
def installed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Install everything once for the whole session: a minute, and half a gigabyte that pip may have in its cache."""
    need_sshd()
    own_variables = {
        name: value for name, value in os.environ.items() if re.match("PIP_|SSL_|.*_PROXY$|.*_proxy$", name)
    }
    cache = {"PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))}
    server = Server(tmp_path_factory.mktemp("installed-remote"), cache | own_variables)
    server.start()
    output: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATEKEEPER_SSH", server.words)
        try:
            half = _cut_attempt(server)
            with Connection("mini") as connection:
                prepared = prepare_environment(connection, say=output.append)
        except AgentError as error:
            server.close()
            if error.kind == "install" and re.search(
                "No matching distribution|Could not find|onnection", error.message
            ):
                pytest.skip(f"the packages cannot be downloaded: {error.message.splitlines()[-1]}")
            raise
    yield Installed(server, prepared, tuple(output), half)
    server.close()


@pytest.fixture
def installed(installed_once: Installed, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Let the client know the host where everything is installed as `mini`."""
    monkeypatch.setenv("GATEKEEPER_SSH", installed_once.server.words)
    return installed_once


@dataclass(frozen=True)
class Pair:
    """This machine, with an SLO in a folder, and a remote host that has gatekeeper already."""

    project: ProjectFolder
    server: Server

    @property
    def jobs(self) -> Path:
        return self.server.state / "jobs"

    def job(self) -> Path:
        """Return the folder of the only remote job."""
        (folder,) = self.jobs.iterdir()
        return folder

    def pid(self, name: str = "gatekeeper") -> int:
        process_id: int = json.loads((self.job() / "pids.json").read_text())[name]
        return process_id

    def process(self) -> psutil.Process:
        """Return the remote gatekeeper."""
        return psutil.Process(self.pid())

    def measuring(self) -> bool:
        """Return whether a remote run has begun to measure."""
        return any(self.jobs.glob("*/run/baseline.jsonl"))

    def soaking(self) -> bool:
        """Return whether the remote soak has recorded some answers."""
        return any(len(path.read_text().splitlines()) > 5 for path in self.jobs.glob("*/run/soak-1.jsonl"))

    def go(self) -> None:
        """Let a run that the host holds go on."""
        (self.server.root / "go").touch()

    def verdict(self, done: Done, run: str = "run") -> dict[str, Any]:
        """Return the verdict of a run that was downloaded whole; which it is depends on how busy this machine is."""
        verdict = self.project.verdict(run)
        assert "the same verdict" in done.err, done.err
        assert done.code == verdict["exit_code"]
        return verdict

    def registry(self, folder: str = "runs") -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.project.path / folder).glob("*.remote.json"))]

    def with_environment(self, **variables: str) -> "Pair":
        return Pair(self.project.with_environment(**variables), self.server)


@pytest.fixture
def pair(serve: Serve, environment: Path, scripted: Callable[..., ProjectFolder]) -> Make:
    """Write a local scripted SLO and start the remote host; *truth* and *changes* as of `scripted`."""

    def make(truth: Mapping[str, Any] | None = None, remote: Mapping[str, str] | None = None, **changes: Any) -> Pair:
        server = serve(**(remote or {}))
        project = scripted(truth, **{**SMALL, **changes})
        (project.path / "soak").mkdir(exist_ok=True)
        hosts = {"host": {"mini": {"environment": str(environment)}}}
        (project.path / "soak/hosts.toml").write_text(tomli_w.dumps(hosts))
        return Pair(project, server).with_environment(GATEKEEPER_SSH=server.words)

    return make
