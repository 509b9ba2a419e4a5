"""The cells of a fleet: which SLO is certified on which host, and why the others are not."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import GatekeeperError, InputError, did_you_mean
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import inputs
from gatekeeper.run.plan import forecast
from gatekeeper.run.remote import hosts_file
from gatekeeper.run.remote.remote_run import RemoteHost
from gatekeeper.run.remote.upload import model_names
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


@dataclass(frozen=True, slots=True)
class HostLook:
    """What a host said of itself."""

    remote: RemoteHost
    facts: Mapping[str, Any] = field(default_factory=dict)
    running: str = ""
    """The run that occupies it."""
    free_bytes: int = 0
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
        found = asdict(self) | {"path": str(self.path), "expected_seconds": round(self.seconds)}
        del found["seconds"]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def read_slos(paths: Sequence[Path]) -> list[Entered]:
    """Read every SLO file and forecast its run; two of the same name are an InputError."""
    entered: list[Entered] = []
    for path in paths:
        slo = inputs.read(path).slo
        twice = next((one.path for one in entered if one.slo.name == slo.name), None)
        if twice is not None:
            raise InputError(f"{path} and {twice} are both named '{slo.name}'", hint="give each SLO a name of its own")
        entered.append(Entered(path, slo, _seconds(path)))
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
    names = sorted({name for one in entered for name in model_names(one.slo.subject)})
    with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(hosts)), thread_name_prefix="look") as pool:
        return {one.remote.name: one for one in pool.map(lambda host: _look(host, names), hosts)}


def _look(remote: RemoteHost, models: Sequence[str]) -> HostLook:
    places = {remote.settings.models.get(name, name): name for name in models}
    try:
        with remote.connect() as connection:
            facts = connection.request("facts", models=list(places))
            jobs = connection.request("jobs")["jobs"]
            free = int(connection.hello["free_bytes"])
    except GatekeeperError as error:
        return HostLook(remote, error=error.message, hint=error.hint)
    running = next((f"{job['run_id']} of {job['owner']}" for job in jobs if job["state"] == "running"), "")
    absent = [places[one] for one in facts.get("absent", ()) if one in places]
    return HostLook(remote, facts | {"absent": absent}, running, free)


def cells(entered: Sequence[Entered], looked: Mapping[str, HostLook]) -> list[Cell]:
    """Return every pair of SLO and host: those that fit, and those that do not with the reason."""
    return [_cell(one, host) for one in entered for host in looked.values()]


def _cell(entered: Entered, host: HostLook) -> Cell:
    slo, name = entered.slo, host.remote.name
    if host.error:
        # Whether it fits is not known: it is tried, and what stays open is not proven.
        return Cell(slo.name, entered.path, name, entered.seconds, needs=(f"an answer: {host.error}",))
    doubts = host_doubts(slo.host, host.facts) if "host" in slo.model_fields_set else []
    return Cell(slo.name, entered.path, name, entered.seconds, tuple(doubts), tuple(_needs(slo, host)))


def _needs(slo: Slo, host: HostLook) -> Iterable[str]:
    # A path of this machine says nothing about the remote host unless the hosts file maps it.
    mapped = host.remote.settings.models
    absent = set(host.facts.get("absent", ()))
    for model in model_names(slo.subject):
        if model in absent and (model in mapped or not model.startswith((".", "/", "~"))):
            yield f"model {model}"
    if host.running:
        yield f"the end of run {host.running}"


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


def matrix(found: Iterable[Cell]) -> dict[str, Any]:
    """Return the cells that are run as GitHub Actions' `strategy.matrix` takes them."""
    return {"include": [{"slo": one.path.as_posix(), "host": one.host, "name": one.name} for one in taken(found)]}
