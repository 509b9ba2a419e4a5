"""What a remote host lacks: gatekeeper with the same rules, models, and what `gatekeeper doctor` there says."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, JsonValue, ValidationError

from gatekeeper import __version__
from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError
from gatekeeper.core.parse import ParseError, integer, json_object
from gatekeeper.core.rules import RULES
from gatekeeper.core.text import printable
from gatekeeper.core.units import show_seconds
from gatekeeper.run.remote import host_scripts, run_inputs
from gatekeeper.run.remote.ssh import RemoteHost
from gatekeeper.run.remote.ssh_errors import make_malformed_error
from gatekeeper.run.start.doctor import Item

INSTALL = "on that host, run: uv tool install gatekeeper-slo (or, in a checkout there: uv tool install .)"
INSTALL_UV = "; uv itself: curl -LsSf https://astral.sh/uv/install.sh | sh"
SAME_VERSION = "on that host, run: uv tool install --force gatekeeper-slo=={version}"
"""Installs the version of this machine, which has its rules."""
SKEW_NOTED_S, SKEW_MOST_S = 5.0, 300.0
"""A policy expires by that clock: minutes apart, its end would be unclear. Kerberos has the same limit. Ssh and a busy
machine add seconds to the comparison."""
CHECK_MOST_S = 3600.0
"""The time limit of `gatekeeper plan` there, which hashes models of hundreds of gigabytes."""
DOCTOR = "doctor"
"""The command, and the name of the folder that its inputs are in until it has ended."""
TEXT_MOST = 2000
"""Characters of an error message of a remote host that are shown."""
Say = Callable[[str, str], None]
"""Takes what a message is about and the message."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What is installed on a remote host."""

    places: Mapping[str, str] = field(default_factory=dict)
    """The path of each program that was found."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """As `gatekeeper --version` prints them there."""
    filevault: str = ""
    skew_s: float = 0.0
    """How far its clock is ahead of ours."""

    @property
    def version(self) -> str:
        """Return the version of gatekeeper there."""
        return self.versions.get("gatekeeper", "an unknown version")

    @property
    def rules(self) -> str:
        """Return the version of the rules there."""
        return self.versions.get("rules", "unknown")


def look_at_host(host: RemoteHost) -> Installed:
    """Return what is installed on *host*."""
    before_s = SystemClock().wall().timestamp()
    answer = host.run(host_scripts.PRINT_VERSIONS, limit_s=120)
    after_s = SystemClock().wall().timestamp()
    lines = (line.partition("\t") for line in answer.splitlines())
    values = {name: printable(value)[:TEXT_MOST] for name, _, value in lines}
    try:
        clock_s = float(integer(values.pop("clock", "")))
    except ParseError as error:
        raise make_malformed_error(host.name, str(error)) from error
    filevault = values.pop("filevault", "")
    version_lines = (line.partition(" ") for line in values.pop("versions", "").split(";"))
    versions = {name: version for name, _, version in version_lines if version}
    skew_s = max(clock_s - after_s, 0.0) - max(before_s - (clock_s + 1), 0.0)  # `date` cuts off parts of a second
    return Installed(values, versions, filevault, skew_s)


def check_installed(name: str, installed: Installed, say: Say) -> None:
    """Refuse a host without gatekeeper, with other rules, or with a clock far from this one's."""
    if "gatekeeper" not in installed.places:
        message = f"{name}: gatekeeper is neither on PATH nor in ~/.local/bin there"
        raise HostLacksError(message, hint=_install_hint(installed))
    if installed.rules != str(RULES):
        raise HostLacksError(
            f"{name} has gatekeeper {installed.version} with rules {installed.rules}, "
            f"this machine has {__version__} with rules {RULES}: they would judge differently",
            hint=SAME_VERSION.format(version=__version__),
        )
    if abs(installed.skew_s) > SKEW_NOTED_S:
        direction = "ahead of" if installed.skew_s > 0 else "behind"
        message = f"its clock is {show_seconds(abs(installed.skew_s))} {direction} the local clock"
        hint = "synchronize both clocks (macOS: sudo sntp -sS time.apple.com): certificates expire by them"
        if abs(installed.skew_s) > SKEW_MOST_S:
            raise HostLacksError(f"{name}: {message}, at most {show_seconds(SKEW_MOST_S)} allowed", hint=hint)
        say("clock", f"{message}; {hint}")


def _install_hint(installed: Installed) -> str:
    return INSTALL if "uv" in installed.places else INSTALL + INSTALL_UV


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """What a command of gatekeeper said on a remote host."""

    code: int
    document: Mapping[str, Any]
    errors: str


def ask(host: RemoteHost, slo: str, run_id: str, command: str, environ: Mapping[str, str]) -> RemoteAnswer:
    """Return what `gatekeeper COMMAND SLO --json` says on the host.

    The *slo* is a path in the folder of the job *run_id*; where it is empty, the command has none.
    """
    variables = {**environ, "run": run_id, "slo": slo, "command": command}
    answer = host.run(exports(environ) + host_scripts.CHECK_INPUTS, variables, limit_s=CHECK_MOST_S)
    code, _, rest = answer.partition("\n")
    text, _, errors = rest.rpartition("\n\n")
    try:
        document = json_object(text) if text.strip() else {}
        return RemoteAnswer(integer(code), document, printable(errors).strip()[-TEXT_MOST:])
    except ParseError as error:
        raise make_malformed_error(host.name, f"`gatekeeper {command}`: {error}") from error


def exports(environ: Mapping[str, str]) -> str:
    """Return the line of a script that passes variables on to what it starts."""
    return f"export {' '.join(environ)}\n" if environ else ""


def check_models(name: str, doctor: RemoteAnswer, uploaded: Collection[str]) -> None:
    """Raise HostLacksError for models that are neither on the remote host, as `doctor` says there, nor *uploaded*."""
    models = [item for item in _mappings(doctor.document.get("items")) if item.get("kind") == "model"]
    lacking = [item for item in models if item.get("found") is None and item.get("what") not in uploaded]
    if lacking:
        lines = [_text(item, "fix") for item in lacking]
        raise HostLacksError(f"{name}: " + "\n".join(lines), hint="on that host; no model was uploaded yet")


def check_plan(name: str, answer: RemoteAnswer) -> None:
    """Raise what `gatekeeper plan` refuses on the remote host: missing models, and what no run there can prove.

    Of what it only warns `certify` tells again.
    """
    complaints = [entry for entry in _mappings(answer.document.get("complaints")) if entry.get("message")]
    refused = [entry for entry in complaints if entry.get("weight") in {"never", "not-here"}]
    if refused:
        lines = [f"{_text(entry, 'about')}: {_text(entry, 'message')}" for entry in refused]
        hints = dict.fromkeys(_text(entry, "hint") for entry in refused if entry.get("hint"))
        kind = InputError if any(entry.get("weight") == "never" for entry in refused) else HostLacksError
        raise kind(f"{name}: " + "\n".join(lines), hint=f"on that host: {'; '.join(hints)}")
    if "complaints" not in answer.document:  # it was refused before there was a plan
        kinds: dict[int, type[GatekeeperError]] = {2: InputError, 3: HostLacksError}
        message = _text(answer.document, "error") or answer.errors.removeprefix("gatekeeper: ")
        message = message or f"`gatekeeper plan` ended with exit code {answer.code}"
        hint = _text(answer.document, "hint") or f"try: ssh {name} gatekeeper doctor"
        raise kinds.get(answer.code, GatekeeperError)(f"{name}: {message}", hint=hint)


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, Mapping))


def _text(entry: Mapping[str, Any], key: str) -> str:
    return printable(str(entry.get(key) or ""))[:TEXT_MOST]


def examine_host(host: RemoteHost, slo: Path | None) -> dict[str, Any]:
    """Return what `gatekeeper doctor` says on *host*, with the models of *slo*, and what only matters from afar.

    Where gatekeeper is missing there or has other rules, the rest is not known.
    """
    installed = look_at_host(host)
    items = [asdict(item) for item in _items(installed)]
    document: dict[str, Any] = {"schema": 1, "host": host.name, "versions": dict(installed.versions)}
    try:
        check_installed(host.name, installed, lambda _about, _message: None)
    except HostLacksError as error:
        if "gatekeeper" in installed.places:
            fix = f"{error.message}: {error.hint}"
            items.append(asdict(Item("remote", "rules and clock", None, "certify", fix)))
        return document | {"items": items, "ready": [], "missing": ["everything"], "next": error.hint}
    inputs = run_inputs.collect_inputs(slo) if slo is not None else None
    if inputs is not None:
        run_inputs.upload_inputs(host, inputs, DOCTOR)
    answer = ask(host, inputs.slo if inputs is not None else "", DOCTOR, "doctor", {})
    host.run(host_scripts.REMOVE_INPUTS, {"run": DOCTOR}, limit_s=60)
    if "error" in answer.document or not answer.document:
        message = _text(answer.document, "error") or f"`gatekeeper doctor` ended with exit code {answer.code}"
        hint = _text(answer.document, "hint") or f"try: ssh {host.name} gatekeeper doctor"
        raise HostLacksError(f"{host.name}: {message}", hint=hint)
    try:
        findings = _Findings.model_validate(answer.document)
    except ValidationError as error:
        raise make_malformed_error(host.name, f"`gatekeeper doctor`: {error.errors()[0]['msg']}") from error
    further = findings.model_dump()
    return document | further | {"items": [*items, *further["items"]]}


class _Findings(BaseModel):
    """What of the document of `gatekeeper doctor` is used."""

    items: tuple[Item, ...]
    ready: tuple[str, ...] = Field(min_length=1)
    missing: tuple[str, ...]
    next: str
    facts: dict[str, JsonValue]
    lock: dict[str, JsonValue] | None


def _items(installed: Installed) -> Iterator[Item]:
    """Yield what is installed, and what keeps a Mac from running at night."""
    places = installed.places
    if "gatekeeper" in places:
        yield Item("remote", "gatekeeper", f"{installed.version} in {places['gatekeeper']}", "certify", None)
    else:
        yield Item("remote", "gatekeeper", None, "certify", _install_hint(installed))
    yield Item("remote", "Python", installed.versions.get("python") or places.get("python3"), "gatekeeper", None)
    rsync = "brew install rsync (macOS) or apt-get install rsync; without it tar copies models, always from their start"
    yield Item("remote", "rsync", places.get("rsync"), "models named by a path", None if "rsync" in places else rsync)
    if "On" in installed.filevault:
        fix = "after a restart nothing runs until a user unlocks it: restart by `sudo fdesetup authrestart`, or switch"
        yield Item("remote", "FileVault off", None, "nights after a restart", f"{fix} it off: sudo fdesetup disable")
