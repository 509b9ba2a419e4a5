"""Servers for the tests of remote runs; where there is no sshd they are skipped, and say so."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gatekeeper.run.remote.environment import Environment, wheel
from gatekeeper.run.remote.environment import environment as prepared
from gatekeeper.run.remote.ssh import Link
from gatekeeper.run.remote.ssh_errors import FarError, LinkError
from tests.builders.place import Done, Place
from tests.builders.ssh_server import Server, program, python_with
from tests.e2e.conftest import ended, place, scripted, until

__all__ = ["ended", "place", "scripted", "until"]

Serve = Callable[..., Server]
Make = Callable[..., "Pair"]


def need_sshd() -> None:
    if program("sshd") is None or program("ssh") is None:
        pytest.skip("no OpenSSH server on this machine (Debian: openssh-server)")


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start servers, each with a home of its own; the client speaks to the last one as `far`."""
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
    """Return an environment that holds this gatekeeper, as on a host where somebody installed it already."""
    return python_with(tmp_path_factory.mktemp("installed") / "environment", wheel=wheel().content)


@dataclass(frozen=True, slots=True)
class Installed:
    """A far side where gatekeeper and mlx-lm were installed through the link, for real."""

    server: Server
    environment: Environment
    said: tuple[str, ...]
    half_made: str
    """The environment of a first attempt, which was cut."""


LEFT = "left-behind"


def _cut_attempt(server: Server) -> str:
    """Cut the connection as soon as pip says something; return what was half made."""

    def cut(_line: str) -> None:
        server.cut()

    with Link("far") as link, pytest.raises(LinkError):
        prepared(link, say=cut)
    (half,) = [path for path in (server.state / "envs").iterdir() if path.is_dir()]
    (half / LEFT).touch()
    return half.name


@pytest.fixture(scope="session")
def installed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Install everything once for the whole session: a minute, and half a gigabyte that pip has in its cache or not."""
    need_sshd()
    ours = {name: value for name, value in os.environ.items() if re.match("PIP_|SSL_|.*_PROXY$|.*_proxy$", name)}
    cache = {"PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))}
    server = Server(tmp_path_factory.mktemp("installed-far"), cache | ours)
    server.start()
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATEKEEPER_SSH", server.words)
        try:
            half = _cut_attempt(server)
            with Link("far") as link:
                made = prepared(link, say=said.append)
        except FarError as error:
            server.close()
            if error.kind == "install" and re.search(
                "No matching distribution|Could not find|onnection", error.message
            ):
                pytest.skip(f"the packages can not be had here: {error.message.splitlines()[-1]}")
            raise
    yield Installed(server, made, tuple(said), half)
    server.close()


@pytest.fixture
def installed(installed_once: Installed, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Speak to the far side where everything is installed, as `far`."""
    monkeypatch.setenv("GATEKEEPER_SSH", installed_once.server.words)
    return installed_once


@dataclass(frozen=True)
class Pair:
    """This machine, with an SLO in a folder, and the other one, which has gatekeeper already."""

    place: Place
    server: Server

    @property
    def jobs(self) -> Path:
        return self.server.state / "jobs"

    def job(self) -> Path:
        """Return the folder of the only job there."""
        (folder,) = self.jobs.iterdir()
        return folder

    def home(self, done: Done, run: str = "run") -> dict[str, Any]:
        """Return the verdict of a run that came home whole; which one it is, is this busy machine's affair."""
        verdict = self.place.verdict(run)
        assert "judged again here: the same verdict, byte for byte" in done.err, done.err
        assert done.code == verdict["exit_code"]
        return verdict

    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.place.path / "runs").glob("*.remote.json"))]


@pytest.fixture
def pair(serve: Serve, environment: Path, scripted: Callable[..., Place]) -> Callable[..., Pair]:
    """Write a scripted SLO here and start the other machine; *truth* and *changes* as of `scripted`."""

    def make(truth: Mapping[str, Any] | None = None, far: Mapping[str, str] | None = None, **changes: Any) -> Pair:
        server = serve(**(far or {}))
        place = scripted(truth, **changes)
        (place.path / "soak").mkdir(exist_ok=True)
        (place.path / "soak/hosts.toml").write_text(tomli_w.dumps({"host": {"far": {"environment": str(environment)}}}))
        return Pair(Place(place.path, {**place.environment, "GATEKEEPER_SSH": server.words}), server)

    return make
