"""Four OpenSSH servers on this machine that act as the hosts of a fleet, each with its own home, lock and address."""

import json
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.builders.network_namespace import NetworkNamespace
from tests.builders.project_folder import ProjectFolder
from tests.builders.ssh_server import Server
from tests.e2e.conftest import ended, project, scripted
from tests.run.remote.conftest import SMALL, install, need_sshd

__all__ = ["ended", "project", "scripted"]

NAMES = "abcd"
SOAK = "soak-1.jsonl"


@dataclass(frozen=True)
class Hosts:
    """The servers, and the file that lets their runs pass a point of the soak."""

    servers: Mapping[str, Server]
    go: Path
    namespaces: Mapping[str, NetworkNamespace]
    """Empty where the kernel does not let us."""

    def hold(self) -> None:
        """Let the runs that begin now stand still in their soak."""
        self.go.unlink(missing_ok=True)

    def release(self) -> None:
        self.go.touch()

    def clean(self) -> None:
        """Make every host what it was."""
        self.release()
        for server in self.servers.values():
            for process in server.left():
                process.kill()
            shutil.rmtree(server.state, ignore_errors=True)
            shutil.copyfile(server.root / "user.pub", server.root / "authorized")
            if server.process is None or server.process.poll() is not None:
                server.start()


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Start the servers once; in network namespaces where possible, or each at its own address of 127.0.0.0/8."""
    need_sshd()
    root = tmp_path_factory.mktemp("fleet")
    go = root / "go"
    # The word is in each record once: five answers into the soak.
    brake = {"HOLD_FILE": f"runs/*/{SOAK}", "HOLD_COUNT": "5", "HOLD_WORD": "concurrency", "HOLD_UNTIL": str(go)}
    servers: dict[str, Server] = {}
    namespaces: dict[str, NetworkNamespace] = {}
    with ExitStack() as stack:
        for number, name in enumerate(NAMES):
            namespace = NetworkNamespace(number)
            server = Server(root / f"host-{name}", dict(brake), name=name)
            if namespace.open():
                namespaces[name] = namespace
                stack.callback(namespace.close)
                server.address, server.within = namespace.address, namespace.words
            elif platform.system() == "Linux":
                server.address = f"127.0.0.{2 + number}"
            servers[name] = server
            stack.callback(server.close)
            server.start()
            install(server)
        yield Hosts(servers, go, namespaces)


@dataclass(frozen=True)
class Fleet:
    """This machine with SLO files in a folder, and its hosts."""

    project: ProjectFolder
    hosts: Hosts
    servers: Mapping[str, Server]

    def answer(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.project.path / "runs/fleet/fleet.json").read_text())
        return document

    def results(self) -> dict[str, Any]:
        """Return how each cell ended, by its name."""
        return {f"{cell['slo']}@{cell['host']}": cell["result"] for cell in self.answer()["cells"]}

    def runs(self, host: str) -> list[Path]:
        """Return the run directories on a host."""
        return list((self.servers[host].state / "runs").glob("*"))

    def soaking(self, *hosts: str) -> bool:
        """Return whether a run soaks on each of *hosts*."""
        return all(any((run / SOAK).exists() for run in self.runs(host)) for host in hosts)

    def spans(self, host: str) -> list[tuple[float, float]]:
        """Return when each measurement on a host began and ended, in seconds."""
        files = [(run / "manifest.json", run / "SHA256SUMS") for run in self.runs(host)]
        return sorted((first.stat().st_mtime, last.stat().st_mtime) for first, last in files)


@pytest.fixture
def make_fleet(tmp_path: Path, hosts: Hosts, scripted: Callable[..., ProjectFolder]) -> Iterator[Callable[..., Fleet]]:
    """Write SLO files `one.toml`, `two.toml`, … and a hosts file of the first *count* hosts, clean afterwards."""

    def make(
        count: int, slos: Mapping[str, Mapping[str, Any]], truth: Mapping[str, Any] | None = None, **changes: Any
    ) -> Fleet:
        servers = {name: hosts.servers[name] for name in NAMES[:count]}
        hosts.release()
        (tmp_path / "ssh_config").write_text("\n".join(server.config.read_text() for server in servers.values()))
        for name, change in slos.items():
            project = scripted(truth, **{**SMALL, **changes, "name": name, **change})
            (project.path / "slo.toml").rename(project.path / f"{name}.toml")
        (project.path / "soak").mkdir(exist_ok=True)
        table: dict[str, Any] = {"host": {name: {} for name in servers}}
        (project.path / "soak/hosts.toml").write_text(tomli_w.dumps(table))
        environment = {**project.environment, "GATEKEEPER_SSH": f"ssh -F {tmp_path / 'ssh_config'}"}
        return Fleet(ProjectFolder(project.path, environment), hosts, servers)

    yield make
    hosts.clean()


def overlap(spans: list[tuple[float, float]]) -> bool:
    """Return whether any two spans, which are sorted, overlap."""
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))
