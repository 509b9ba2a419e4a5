"""The cells of a fleet: which SLO is certified on which host, and why the others are not."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gatekeeper.analysis.plan.complaints.wrong_host import host_doubts
from gatekeeper.core import toml_file
from gatekeeper.core.errors import GatekeeperError, InputError, did_you_mean
from gatekeeper.core.manifest import digest_of
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.system.inputs import Inputs, read_text
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.text import printable
from gatekeeper.core.toml_file import InputTable
from gatekeeper.run.plan import forecast

HOSTS_FILE = "hosts file"
LOOKS_AT_ONCE = 32
"""Hosts that are examined at the same time: each is a process and a connection."""
UNKNOWN_S = 3600.0
"""Expected duration of a run that cannot be forecast on this machine."""


class HostSettings(InputTable):
    """One host of the hosts file."""

    ssh: str | None = Field(default=None, min_length=1, description="its ssh address; default: its name in this file")
    why: str = ""


class HostsFile(InputTable):
    """The whole hosts file."""

    schema_: int = Field(default=1, alias="schema", ge=1, le=1)
    host: dict[str, HostSettings] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostLook:
    """What a host says of itself."""

    name: str
    address: str
    """How ssh reaches it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    running: str = ""
    """The run that occupies it."""
    error: str = ""
    """Why it gave no answer."""

    def document(self, expected_s: float) -> dict[str, Any]:
        """Return it as plain JSON, with the time that its runs are expected to take."""
        return {
            "address": self.address,
            **{key: self.facts.get(key) for key in ("chip", "memory_bytes", "os", "power_source")},
            "running": self.running or None,
            "error": self.error or None,
            "expected_seconds": round(expected_s),
        }


class Cell(BaseModel):
    """One SLO on one host."""

    model_config = ConfigDict(frozen=True)

    slo: str
    """Name of the SLO."""
    path: Path
    host: str
    address: str
    inputs_sha256: str
    """Digest of the SLO file and of every file that it names, except models."""
    expected_seconds: float = UNKNOWN_S
    excluded: tuple[str, ...] = ()
    """Why this host does not take this SLO; empty: it does."""
    needs: tuple[str, ...] = ()
    """What the host lacks; the run itself checks it and says how to mend it."""

    @property
    def name(self) -> str:
        """Return the cell's name, which is unique within a fleet."""
        return f"{self.slo}@{self.host}"


def find_cells(slos: Sequence[Path], hosts: Path, only: Sequence[str]) -> tuple[list[Cell], dict[str, HostLook]]:
    """Return every pair of an SLO file and a host of the *hosts* file, and what the hosts say of themselves.

    *only* names the hosts that are used; empty: all of the file.
    """
    entries = read_slos(slos)
    looks = look_at_hosts(read_hosts(hosts, only))
    cells = []
    for path, inputs in entries:
        seconds = _expect_seconds(path)
        cells += [_pair(path, inputs, look, seconds) for look in looks.values()]
    return cells, looks


def read_slos(paths: Sequence[Path]) -> list[tuple[Path, Inputs]]:
    """Read every SLO file with the files it names; two of the same name are an InputError."""
    entries: dict[str, tuple[Path, Inputs]] = {}
    for path in paths:
        inputs = read_inputs(path)
        name = inputs.slo.name
        if name in entries:
            message = f"{path} and {entries[name][0]} are both named '{name}'"
            is_same = path.resolve() == entries[name][0].resolve()
            raise InputError(message, hint="name the file once" if is_same else "give each SLO a name of its own")
        entries[name] = path, inputs
    return list(entries.values())


def _expect_seconds(path: Path) -> float:
    try:
        # What the SLO names is started on the hosts, not here: whoever plans may not have read the file yet.
        return float(forecast(path, probing=False)[0]["expected_total_seconds"])
    except GatekeeperError:
        return UNKNOWN_S  # its backend may exist on the remote host only


def read_hosts(file: Path, only: Sequence[str] = ()) -> dict[str, str]:
    """Return the hosts of a hosts file, or those of them that *only* names, each with its ssh address."""
    if not file.exists():
        hint = 'write it: schema = 1, and a table [host.NAME] with ssh = "user@address" for each host'
        raise InputError(f"{HOSTS_FILE} {file} does not exist", hint=f"{hint}; gatekeeper explain fleet")
    hosts = toml_file.parse(read_text(file, HOSTS_FILE), str(file), HostsFile).host
    if not hosts:
        raise InputError(f"{file} names no host", hint="add a table [host.NAME] for each host")
    for name in only:
        if name not in hosts:
            raise InputError(f"{file} has no host '{name}'", hint=did_you_mean(name, hosts) or "check --only")
    return {name: host.ssh or name for name, host in hosts.items() if not only or name in only}


def look_at_hosts(addresses: Mapping[str, str]) -> dict[str, HostLook]:
    """Return what every host says it is, by its name; they are examined in parallel."""
    with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(addresses)), thread_name_prefix="look") as pool:
        looks = pool.map(_look_at_host, addresses.keys(), addresses.values())
        return {look.name: look for look in looks}


def _look_at_host(name: str, address: str) -> HostLook:
    """Return what `gatekeeper doctor --on` says of a host."""
    words = gatekeeper_words("doctor", "--on", address, "--json")
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    try:
        document = json_object(done.stdout)
    except ParseError:
        document = {"error": f"`gatekeeper doctor` ended with exit code {done.returncode}"}
    if "error" in document or not document["ready"]:
        return HostLook(name, address, error=printable(str(document.get("error") or document["next"])))
    lock = document["lock"] or {}
    return HostLook(name, address, document["facts"], running=lock.get("run", ""))


def gatekeeper_words(*words: str) -> list[str]:
    """Return the command line of this very gatekeeper."""
    return [sys.executable, "-m", "gatekeeper", *words]


def _pair(path: Path, inputs: Inputs, look: HostLook, seconds: float) -> Cell:
    excluded, needs = list[str](), tuple[str, ...]()
    if look.error:
        # Whether it fits is not known: it is tried, and what stays open is not proven.
        needs = (f"an answer: {look.error}",)
    else:
        excluded = host_doubts(inputs.slo.host, look.facts) if "host" in inputs.slo.model_fields_set else []
        needs = (f"the end of run {look.running}",) if look.running else ()
    return Cell(
        slo=inputs.slo.name, path=path.resolve(), host=look.name, address=look.address,
        inputs_sha256=digest_of({name: json.dumps(text) for name, text in inputs.texts.items()}),
        expected_seconds=seconds, excluded=tuple(excluded), needs=needs,
    )  # fmt: skip


def cells_to_run(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells that are run, the longest first."""
    return sorted((cell for cell in cells if not cell.excluded), key=lambda cell: (-cell.expected_seconds, cell.name))
