"""The cells of a fleet: which SLO is certified on which host, and why the others are not."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gatekeeper.analysis.plan.memory_fit import bytes_by_name
from gatekeeper.backends import facts_of
from gatekeeper.core.errors import GatekeeperError, InputError, did_you_mean
from gatekeeper.core.slo import CONFIDENCE, Slo
from gatekeeper.core.units import show_bytes
from gatekeeper.run.plan import forecast
from gatekeeper.run.remote import hosts_file
from gatekeeper.run.remote.environment import is_installed
from gatekeeper.run.remote.preflight import ENVIRONMENT_BYTES, RUN_BYTES
from gatekeeper.run.remote.remote_run import RemoteHost
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.upload import NamedModel, pack
from gatekeeper.run.stages.freeze import host_doubts

LOOKS_AT_ONCE = 32
"""Connections that are opened at the same time."""
UNKNOWN_S = 3600.0
"""Expected duration of a run that cannot be forecast on this machine."""


@dataclass(frozen=True, slots=True)
class Entered:
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
    """Why there is no answer."""
    hint: str = ""


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
        found = asdict(self) | {"path": str(self.path), "expected_seconds": round(self.seconds)}
        del found["seconds"], found["confidence"]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def read_slos(paths: Sequence[Path]) -> list[Entered]:
    """Read every SLO file with the files it names and forecast its run; two of the same name are an InputError."""
    entered: list[Entered] = []
    for path in paths:
        bundle = pack(path)
        slo = bundle.inputs.slo
        twice = next((one.path for one in entered if one.slo.name == slo.name), None)
        if twice is not None:
            raise InputError(f"{path} and {twice} are both named '{slo.name}'", hint="give each SLO a name of its own")
        entered.append(Entered(path, slo, _seconds(path), bundle.models))
    return entered


def _seconds(path: Path) -> float:
    try:
        return float(forecast(path)[0]["expected_total_seconds"])
    except GatekeeperError:
        return UNKNOWN_S  # its backend may exist on the remote host only


def read_hosts(file: Path, only: Sequence[str] = ()) -> list[RemoteHost]:
    """Return the hosts of a hosts file, or those of them that are named."""
    known = hosts_file.read(file).host
    if not known:
        raise InputError(f"{file} names no host", hint="add a table [host.NAME] for each host")
    for name in only:
        if name not in known:
            raise InputError(f"{file} has no host '{name}'", hint=did_you_mean(name, known) or "check --only")
    return [RemoteHost(name, host.ssh or name, host) for name, host in known.items() if not only or name in only]


def look(hosts: Sequence[RemoteHost], entered: Sequence[Entered]) -> dict[str, HostLook]:
    """Ask every host what it is, in parallel; one that does not answer says why."""
    models = {(model.name, one.slo.subject.backend): model for one in entered for model in one.models}
    with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(hosts)), thread_name_prefix="look") as pool:
        return {one.remote.name: one for one in pool.map(lambda host: _look(host, models), hosts)}


def _look(remote: RemoteHost, models: Mapping[tuple[str, str], NamedModel]) -> HostLook:
    mapped = remote.settings.models
    places = {name: place for (name, backend) in models if (place := mapped.get(name) or _place(name, backend))}
    try:
        with remote.connect() as connection:
            facts = connection.request("facts", models=sorted(set(places.values())))
            absent = set(facts.pop("absent", ()))
            missing = {name: "" for name, place in places.items() if place in absent}
            missing |= dict(_not_uploaded(connection, [one for one in models.values() if one.name not in mapped]))
            jobs = connection.request("jobs")["jobs"]
            free = int(connection.hello["free_bytes"])
            installed = bool(remote.settings.environment) or is_installed(connection)
    except GatekeeperError as error:
        return HostLook(remote, error=error.message, hint=error.hint)
    running = next((f"{job['run_id']} of {job['owner']}" for job in jobs if job["state"] == "running"), "")
    return HostLook(remote, facts, running, free, installed, missing)


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~"))


def _place(name: str, backend: str) -> str | None:
    """Return what a host is asked about a model; None where only its server knows, or the path is one of here."""
    if facts_of(backend).keeps_models is not None or name.startswith("."):
        return None
    repository, _, file = name.rpartition("/")
    return repository if file.endswith(".gguf") and "/" in repository and not _is_path(name) else name


def _not_uploaded(connection: Connection, models: Iterable[NamedModel]) -> Iterable[tuple[str, str]]:
    for one in models:
        if one.shippable:
            if connection.digest(one.complete) is None:
                yield one.name, "--ship-models"
        elif one.name.startswith("."):
            yield one.name, "name its path in the hosts file"


def cells(
    entered: Sequence[Entered], looked: Mapping[str, HostLook], assumed: Mapping[str, int] | None = None
) -> list[Cell]:
    """Return every pair of SLO and host: those that fit, and those that do not with the reason.

    *assumed* are sizes of models that are not on this machine.
    """
    return [_cell(one, host, assumed or {}) for one in entered for host in looked.values()]


def _cell(entered: Entered, host: HostLook, assumed: Mapping[str, int]) -> Cell:
    slo, name = entered.slo, host.remote.name
    if host.error:
        # Whether it fits is not known: it is tried, and what stays open is not proven.
        lacks = (f"an answer: {host.error}",)
        return Cell(slo.name, entered.path, name, entered.seconds, slo.confidence, needs=lacks)
    doubts = host_doubts(slo.host, host.facts) if "host" in slo.model_fields_set else []
    sizes = {one.name: assumed.get(one.name) or _bytes(one) for one in entered.models if one.name in host.missing}
    needs = [_need(model, size, host.missing[model]) for model, size in sizes.items()]
    needs += [f"the end of run {host.running}"] if host.running else []
    return Cell(slo.name, entered.path, name, entered.seconds, slo.confidence, tuple(doubts), tuple(needs), sizes)


def _bytes(model: NamedModel) -> int | None:
    """Return the size of a model: of the copy on this machine, or the one that its name tells."""
    found = model.model.bytes if model.model is not None else bytes_by_name(model.name)
    return round(found) if found is not None else None


def _need(model: str, size: int | None, how: str) -> str:
    about = ", ".join(filter(None, (show_bytes(size) if size else "of unknown size", how)))
    return f"model {model} ({about})"


def taken(found: Iterable[Cell]) -> list[Cell]:
    """Return the cells that are run, the longest first."""
    return sorted((one for one in found if not one.excluded), key=lambda one: (-one.seconds, one.name))


def plan_document(found: Sequence[Cell], looked: Mapping[str, HostLook]) -> dict[str, Any]:
    """Return the plan of a fleet: its cells, its hosts, and the expected time."""
    runs = taken(found)
    per_host = {name: sum(one.seconds for one in runs if one.host == name) for name in looked}
    hosts = {
        name: {
            "address": one.remote.address,
            **{key: one.facts.get(key) for key in ("chip", "memory_bytes", "os", "power_source")},
            "free_bytes": one.free_bytes,
            **_disk(one, [cell for cell in runs if cell.host == name]),
            "running": one.running or None,
            "error": one.error or None,
            "expected_seconds": round(per_host[name]),
        }
        for name, one in looked.items()
    }
    return {
        "schema": 1,
        "hosts": hosts,
        "cells": [one.document() for one in found],
        "expected_seconds": round(max(per_host.values(), default=0.0)),
        "expected_host_seconds": round(sum(per_host.values())),
    }


def _disk(host: HostLook, runs: Sequence[Cell]) -> dict[str, Any]:
    """Return the space that a host needs for its runs, and the models among it that it does not have."""
    missing = {model: size for one in runs for model, size in one.missing.items()}
    need = sum(size or 0 for size in missing.values()) + RUN_BYTES * len(runs)
    need += 0 if host.installed or not runs else ENVIRONMENT_BYTES
    return {
        "missing_models": missing,
        "needs_bytes": round(need),
        "enough_disk": None if host.error else need <= host.free_bytes,
    }


def matrix(found: Iterable[Cell]) -> dict[str, Any]:
    """Return the cells that are run as GitHub Actions' `strategy.matrix` takes them."""
    return {"include": [{"slo": one.path.as_posix(), "host": one.host, "name": one.name} for one in taken(found)]}
