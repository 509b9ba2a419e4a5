"""The cells of a fleet: which SLO is certified on which host, and why the others are not."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gatekeeper.analysis.plan.complaints.wrong_host import host_doubts
from gatekeeper.analysis.plan.sizes_by_name import bytes_by_name
from gatekeeper.backends import facts_of
from gatekeeper.core.errors import GatekeeperError, InputError, did_you_mean
from gatekeeper.core.slo import CONFIDENCE, Slo
from gatekeeper.core.units import show_bytes
from gatekeeper.run.plan import forecast
from gatekeeper.run.remote import hosts_file
from gatekeeper.run.remote.installation import is_installed
from gatekeeper.run.remote.remote_run import RemoteHost
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.upload import NamedModel, pack

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
    models: tuple[NamedModel, ...] = ()


@dataclass(frozen=True, slots=True)
class HostLook:
    """What a host said of itself."""

    remote: RemoteHost
    facts: Mapping[str, Any] = field(default_factory=dict)
    running: str = ""
    """The run that occupies it."""
    free_bytes: int = 0
    installed: bool = True
    """This gatekeeper is there."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """The models it does not have, by their names in the SLO files, each with what puts it there."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One SLO on one host."""

    slo: str
    """Name of the SLO."""
    path: Path
    host: str
    seconds: float = UNKNOWN_S
    confidence: float = CONFIDENCE
    """Of the SLO's bounds."""
    excluded: tuple[str, ...] = ()
    """Why this host does not take this SLO; empty: it does."""
    needs: tuple[str, ...] = ()
    """What the host lacks; the run itself checks it and says how to mend it."""
    missing: Mapping[str, int | None] = field(default_factory=dict)
    """The bytes of each model that the host does not have; None where nothing tells."""

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
            "missing": dict(self.missing),
            "expected_seconds": round(self.seconds),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Cell":
        """Return the cell of a document."""
        return cls(
            document["slo"], Path(document["path"]), document["host"], document["expected_seconds"],
            excluded=tuple(document["excluded"]), needs=tuple(document["needs"]), missing=document["missing"],
        )  # fmt: skip


def read_slos(paths: Sequence[Path]) -> list[FleetSlo]:
    """Read every SLO file with the files it names and forecast its run; two of the same name are an InputError."""
    slos: dict[str, FleetSlo] = {}
    for path in paths:
        bundle = pack(path)
        slo = bundle.inputs.slo
        if slo.name in slos:
            message = f"{path} and {slos[slo.name].path} are both named '{slo.name}'"
            same = path.resolve() == slos[slo.name].path.resolve()
            raise InputError(message, hint="name the file once" if same else "give each SLO a name of its own")
        slos[slo.name] = FleetSlo(path, slo, _seconds(path), bundle.models)
    return list(slos.values())


def _seconds(path: Path) -> float:
    try:
        return float(forecast(path)[0]["expected_total_seconds"])
    except GatekeeperError:
        return UNKNOWN_S  # its backend may exist on the remote host only


def read_hosts(file: Path, only: Sequence[str] = ()) -> list[RemoteHost]:
    """Return the hosts of a hosts file, or those of them that are named."""
    hosts = hosts_file.read(file).host
    if not hosts:
        raise InputError(f"{file} names no host", hint="add a table [host.NAME] for each host")
    for name in only:
        if name not in hosts:
            raise InputError(f"{file} has no host '{name}'", hint=did_you_mean(name, hosts) or "check --only")
    return [RemoteHost(name, host.ssh or name, host) for name, host in hosts.items() if not only or name in only]


def look_at_hosts(hosts: Sequence[RemoteHost], slos: Sequence[FleetSlo]) -> dict[str, HostLook]:
    """Return what every host says it is and has, by its name; they are connected to in parallel."""
    models = {(model.name, slo.slo.subject.backend): model for slo in slos for model in slo.models}
    with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(hosts)), thread_name_prefix="look") as pool:
        return {look.remote.name: look for look in pool.map(lambda host: _look(host, models), hosts)}


def _look(remote: RemoteHost, models: Mapping[tuple[str, str], NamedModel]) -> HostLook:
    mapped = remote.settings.models
    places = {name: place for (name, backend) in models if (place := mapped.get(name) or _place(name, backend))}
    try:
        with remote.connect() as connection:
            facts = connection.request("facts", models=sorted(set(places.values())))
            absent = set(facts.pop("absent", ()))
            missing = {name: "" for name, place in places.items() if place in absent}
            unmapped = [model for model in models.values() if model.name not in mapped]
            missing |= dict(_not_uploaded(connection, unmapped))
            jobs = connection.request("jobs")["jobs"]
            free = int(connection.hello["free_bytes"])
            installed = bool(remote.settings.environment) or is_installed(connection)
    except GatekeeperError as error:
        return HostLook(remote, error=error.message)
    running = next((f"{job['run_id']} of {job['owner']}" for job in jobs if job["state"] == "running"), "")
    return HostLook(remote, facts, running, free, installed, missing)


def _place(name: str, backend: str) -> str | None:
    """Return what a host is asked about a model; None where only its server knows, or the path is one of here."""
    if facts_of(backend).keeps_models is not None or name.startswith("."):
        return None
    repository, _, file = name.rpartition("/")
    return repository if file.endswith(".gguf") and "/" in repository and not name.startswith(("/", "~")) else name


def _not_uploaded(connection: Connection, models: Iterable[NamedModel]) -> Iterable[tuple[str, str]]:
    for model in models:
        if model.shippable:
            if connection.digest(model.complete) is None:
                yield model.name, "--ship-models"
        elif model.name.startswith("."):
            yield model.name, "name its path in the hosts file"


def pair_slos_with_hosts(
    slos: Sequence[FleetSlo], looks: Mapping[str, HostLook], assumed: Mapping[str, int] | None = None
) -> list[Cell]:
    """Return every pair of SLO and host: those that fit, and those that do not with the reason.

    *assumed* are sizes of models that are not on this machine.
    """
    return [_cell(slo, look, assumed or {}) for slo in slos for look in looks.values()]


def _cell(entry: FleetSlo, look: HostLook, assumed: Mapping[str, int]) -> Cell:
    slo = entry.slo
    cell = Cell(slo.name, entry.path, look.remote.name, entry.seconds, slo.confidence)
    if look.error:
        # Whether it fits is not known: it is tried, and what stays open is not proven.
        return replace(cell, needs=(f"an answer: {look.error}",))
    doubts = host_doubts(slo.host, look.facts) if "host" in slo.model_fields_set else []
    missing = [model for model in entry.models if model.name in look.missing]
    sizes = {model.name: assumed.get(model.name) or _bytes(model) for model in missing}
    needs = [_need(model, size, look.missing[model]) for model, size in sizes.items()]
    needs += [f"the end of run {look.running}"] if look.running else []
    return replace(cell, excluded=tuple(doubts), needs=tuple(needs), missing=sizes)


def _bytes(model: NamedModel) -> int | None:
    """Return the size of a model: of the copy on this machine, or the one that its name tells."""
    size = model.model.bytes if model.model is not None else bytes_by_name(model.name)
    return round(size) if size is not None else None


def _need(model: str, size: int | None, how: str) -> str:
    about = ", ".join(filter(None, (show_bytes(size) if size else "of unknown size", how)))
    return f"model {model} ({about})"


def cells_to_run(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells that are run, the longest first."""
    return sorted((cell for cell in cells if not cell.excluded), key=lambda cell: (-cell.seconds, cell.name))


def matrix(cells: Iterable[Cell]) -> dict[str, Any]:
    """Return the cells that are run as GitHub Actions' `strategy.matrix` takes them."""
    runs = cells_to_run(cells)
    return {"include": [{"slo": cell.path.as_posix(), "host": cell.host, "name": cell.name} for cell in runs]}
