"""Several OpenSSH servers on this machine that act as the hosts of a fleet, each with its own home and lock."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gatekeeper.run.remote.environment import build_wheel
from tests.builders.place import Place
from tests.builders.ssh_server import Server, python_with
from tests.e2e.conftest import ended, place, scripted, until
from tests.run.remote.conftest import SMALL, need_sshd

__all__ = ["ended", "place", "scripted", "until"]


@dataclass(frozen=True)
class Fleet:
    """This machine with SLO files in a folder, and its hosts."""

    place: Place
    servers: Mapping[str, Server]

    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place.path / "runs/fleet/fleet.json").read_text())
        return found

    def spans(self, host: str) -> list[tuple[float, float]]:
        """Return when each measurement on a host began and ended, in seconds."""
        found = []
        for run in (self.servers[host].state / "jobs").glob("*/run"):
            begun, over = run / "manifest.json", run / "SHA256SUMS"
            found.append((begun.stat().st_mtime, over.stat().st_mtime))
        return sorted(found)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("fleet") / "environment", wheel=build_wheel().content)


@pytest.fixture
def fleet(tmp_path: Path, installed: Path, scripted: Callable[..., Place]) -> Iterator[Callable[..., Fleet]]:
    """Start hosts `a`, `b`, … and write SLO files `one.toml`, `two.toml`, …; *truth* and *changes* as of `scripted`."""
    need_sshd()
    servers: dict[str, Server] = {}

    def make(
        hosts: int, slos: Mapping[str, Mapping[str, Any]], truth: Mapping[str, Any] | None = None, **changes: Any
    ) -> Fleet:
        config = []
        for name in "abcdefgh"[:hosts]:
            servers[name] = Server(tmp_path / f"host-{name}")
            servers[name].start()
            config.append(servers[name].config.read_text().replace("Host mini", f"Host {name}"))
        (tmp_path / "ssh_config").write_text("\n".join(config))
        for name, change in slos.items():
            place = scripted(truth, **{**SMALL, **changes, "name": name, **change})
            (place.path / "slo.toml").rename(place.path / f"{name}.toml")
        (place.path / "soak").mkdir(exist_ok=True)
        table = {"host": {name: {"environment": str(installed)} for name in servers}}
        (place.path / "soak/hosts.toml").write_text(tomli_w.dumps(table))
        environment = {**place.environment, "GATEKEEPER_SSH": f"ssh -F {tmp_path / 'ssh_config'}"}
        return Fleet(Place(place.path, environment), servers)

    yield make
    for server in servers.values():
        server.close()


def overlap(spans: list[tuple[float, float]]) -> bool:
    """Return whether any two spans, which are sorted, overlap."""
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))
