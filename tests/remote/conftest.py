"""Servers for the tests of remote runs; where there is no sshd they are skipped, and say so."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gatekeeper.remote.wheel import wheel
from tests.remote.server import Server, program, python_with

Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start servers, each with a home of its own; the client speaks to the last one as `far`."""
    if program("sshd") is None or program("ssh") is None:
        pytest.skip("no OpenSSH server on this machine (Debian: openssh-server)")
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
