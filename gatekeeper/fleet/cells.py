"""The cells of a fleet: which SLO is certified on which host, and why the others are not."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gatekeeper.analysis.plan.complaints.wrong_host import host_doubts
from gatekeeper.core.errors import GatekeeperError, InputError, did_you_mean
from gatekeeper.core.slo import CONFIDENCE, Slo
from gatekeeper.fleet import hosts_file
from gatekeeper.run.plan import forecast
from gatekeeper.run.remote.remote_checks import examine_host
from gatekeeper.run.remote.run_inputs import collect_inputs
from gatekeeper.run.remote.run_list import read_jobs
from gatekeeper.run.remote.ssh import RemoteHost

LOOKS_AT_ONCE = 32
"""Connections that are opened at the same time."""
UNKNOWN_S = 3600.0
"""Expected duration of a run that cannot be forecast on this machine."""


@dataclass(frozen=True, slots=True)
class FleetSlo:
    """One SLO file of the fleet."""

    path: Path
    slo: Slo
    seconds: float
    """Expected duration of the run, which a host's own speed changes."""


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host of the fleet."""

    name: str
    address: str
    """How ssh reaches it."""


@dataclass(frozen=True, slots=True)
class HostLook:
    """What a host said of itself."""

    host: FleetHost
    facts: Mapping[str, Any] = field(default_factory=dict)
    running: str = ""
    """The run that occupies it."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One SLO on one host."""

    slo: str
    """Name of the SLO."""
    path: Path
    host: str
    address: str = ""
    seconds: float = UNKNOWN_S
    confidence: float = CONFIDENCE
    """Of the SLO's bounds."""
    excluded: tuple[str, ...] = ()
    """Why this host does not take this SLO; empty: it does."""
    needs: tuple[str, ...] = ()
    """What the host lacks; the run itself checks it and says how to mend it."""

    @property
    def name(self) -> str:
        """Return the cell's name: unique within a fleet, and the name of its run directory's folder."""
        return f"{self.slo}@{self.host}"

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "slo": self.slo,
            "path": str(self.path),
            "host": self.host,
            "excluded": list(self.excluded),
            "needs": list(self.needs),
            "expected_seconds": round(self.seconds),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Cell":
        """Return the cell of a document."""
        return cls(
            document["slo"], Path(document["path"]), document["host"], seconds=document["expected_seconds"],
            excluded=tuple(document["excluded"]), needs=tuple(document["needs"]),
        )  # fmt: skip


def read_slos(paths: Sequence[Path]) -> list[FleetSlo]:
    """Read every SLO file with the files it names and forecast its run; two of the same name are an InputError."""
    slos: dict[str, FleetSlo] = {}
    for path in paths:
        slo = collect_inputs(path).inputs.slo
        if slo.name in slos:
            message = f"{path} and {slos[slo.name].path} are both named '{slo.name}'"
            same = path.resolve() == slos[slo.name].path.resolve()
            raise InputError(message, hint="name the file once" if same else "give each SLO a name of its own")
        slos[slo.name] = FleetSlo(path, slo, _seconds(path))
    return list(slos.values())


def _seconds(path: Path) -> float:
    try:
        return float(forecast(path)[0]["expected_total_seconds"])
    except GatekeeperError:
        return UNKNOWN_S  # its backend may exist on the remote host only


def read_hosts(file: Path, only: Sequence[str] = ()) -> list[FleetHost]:
    """Return the hosts of a hosts file, or those of them that are named."""
    hosts = hosts_file.read(file).host
    if not hosts:
        raise InputError(f"{file} names no host", hint="add a table [host.NAME] for each host")
    for name in only:
        if name not in hosts:
            raise InputError(f"{file} has no host '{name}'", hint=did_you_mean(name, hosts) or "check --only")
    return [FleetHost(name, host.ssh or name) for name, host in hosts.items() if not only or name in only]


def look_at_hosts(hosts: Sequence[FleetHost]) -> dict[str, HostLook]:
    """Return what every host says it is, by its name; they are connected to in parallel."""
    with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(hosts)), thread_name_prefix="look") as pool:
        return {look.host.name: look for look in pool.map(_look, hosts)}


def _look(host: FleetHost) -> HostLook:
    try:
        document = examine_host(RemoteHost(host.address), None)
        if not document["ready"]:
            return HostLook(host, error=document["next"])
        running = [job.run_id for job in read_jobs(RemoteHost(host.address)) if job.state == "running"]
    except GatekeeperError as error:
        return HostLook(host, error=error.message)
    return HostLook(host, document["facts"], running[0] if running else "")


def pair_slos_with_hosts(slos: Sequence[FleetSlo], looks: Mapping[str, HostLook]) -> list[Cell]:
    """Return every pair of SLO and host: those that fit, and those that do not with the reason."""
    return [_cell(slo, look) for slo in slos for look in looks.values()]


def _cell(entry: FleetSlo, look: HostLook) -> Cell:
    slo = entry.slo
    cell = Cell(slo.name, entry.path, look.host.name, look.host.address, entry.seconds, slo.confidence)
    if look.error:
        # Whether it fits is not known: it is tried, and what stays open is not proven.
        return replace(cell, needs=(f"an answer: {look.error}",))
    doubts = host_doubts(slo.host, look.facts) if "host" in slo.model_fields_set else []
    needs = (f"the end of run {look.running}",) if look.running else ()
    return replace(cell, excluded=tuple(doubts), needs=needs)


def cells_to_run(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells that are run, the longest first."""
    return sorted((cell for cell in cells if not cell.excluded), key=lambda cell: (-cell.seconds, cell.name))
