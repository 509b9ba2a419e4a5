"""Running a command on a remote host, from the checks before it to the local run directory."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper import host as this_host
from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import HostLacksError, InputError, OtherRulesError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.records import Event
from gatekeeper.core.system.environment_variables import GATEKEEPER_OWNER, GATEKEEPER_PROGRESS
from gatekeeper.core.system.inputs import load_manifest
from gatekeeper.core.system.run_directory import MANIFEST, RUNS, VERDICT, RunDirectory, is_taken, new_run_id
from gatekeeper.core.text import printable
from gatekeeper.run import events
from gatekeeper.run.remote import checks_before_run, download, replies, upload
from gatekeeper.run.remote.hosts_file import HostSettings
from gatekeeper.run.remote.installation import Environment, installing, is_installed, prepare_environment
from gatekeeper.run.remote.reconnect import ReconnectingSession
from gatekeeper.run.remote.remote_baseline import remote_baseline
from gatekeeper.run.remote.run_registry import CLOSED, OPEN, Entry, RunRegistry
from gatekeeper.run.remote.ssh import HEADER_MOST, Connection
from gatekeeper.run.remote.ssh_errors import AgentError, SshError
from gatekeeper.run.stored import tries, verify

INVENTORY_S = 3600.0
"""Time limit of the inventory, which hashes models of hundreds of gigabytes."""
FETCHED = "fetched.json"
"""In the folder of a job: it was downloaded."""


@dataclass(frozen=True, slots=True)
class RemoteHost:
    """The machine a command is for."""

    name: str
    """As it was given to --on."""
    address: str
    """Its ssh address."""
    settings: HostSettings = field(default_factory=HostSettings)

    def connect(self, *, alone: bool = False) -> Connection:
        """Return a new connection; *alone* shares none with other commands of this user."""
        return Connection(self.address, home=self.settings.home, python=self.settings.python, alone=alone)


@dataclass(frozen=True, slots=True)
class RemoteCommand:
    """A run that the user wants on a remote host."""

    words: tuple[str, ...]
    """certify; soak or probe with their options. Neither the SLO file nor the run directory are among them."""
    slo: Path
    out: Path | None = None
    runs: Path = RUNS
    """Where the run goes without *out*, and its entry in the registry."""
    resume: bool = False
    ship_models: bool = False
    send_env: tuple[str, ...] = ()
    baseline: str | None = None
    """The certified run of `certify`, as `remote_baseline` takes it."""

    @property
    def folder(self) -> Path:
        """Return the folder of the run and of its entry in the registry."""
        return self.out.parent if self.out is not None else self.runs


@dataclass(slots=True)
class RemoteRunner:
    """Starts, follows and downloads runs of one remote host."""

    remote: RemoteHost
    session: ReconnectingSession
    observers: Sequence[Observer] = ()
    owner: str = field(default_factory=this_host.this_owner)

    def say(self, about: str, message: str) -> None:
        """Send a message to the observers."""
        self.notify("warning", {"about": about, "because": message})

    def notify(self, kind: str, detail: dict[str, Any]) -> None:
        """Send an event to the observers."""
        event = Event(stamp(_now()), kind, detail)
        for observer in self.observers:
            observer(event)

    def _show(self, event: Event) -> None:
        """Send an event of the remote run to the observers; one without the details of its kind is left out."""
        for observer in self.observers:
            with suppress(LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
                observer(event)

    def finish(self, entry: Entry, registry: RunRegistry) -> download.RemoteResult:
        """Follow a run to its end, download it, judge it again, and close its entry."""
        self.session.run_started = True
        out = Path(entry.out)
        job = self.follow(entry.run_id, str(out))
        self.notify("stage", {"stage": "downloading the run"})
        files = download.download(self.session, entry.run_id, out, self.say)
        result = download.judge_locally(out, job, entry.command[0])
        if result.error is None and job["state"] in download.LOST:
            self.say("run", "its supervisor was killed; the run finished without it, and its checksums are complete")
        if result.verdict is not None and result.error is None:
            agree = "the same verdict, byte for byte" if result.exact else "the same outcomes, with another version"
            self.say("download", f"{files} files match their checksums; judged again locally: {agree}")
            manifest, slo = verify.read_frozen(RunDirectory(out))
            gap = tries.add_run(RunDirectory(out), manifest, slo, result.verdict.exit_code)
            if gap is not None:
                self.say("tries", gap)
        fetched = {"by": self.owner, "at": stamp(_now()), "files": files, "outcome": result.outcome}
        content, place = json.dumps(fetched).encode(), f"{upload.folder(entry.run_id)}/{FETCHED}"
        registry.close(entry, result.outcome)
        with suppress(SshError):  # the run is downloaded; the mark only keeps the remote list tidy
            self.session.do(lambda connection: connection.upload(place, content, sha256=sha256(content)), patience_s=0)
        return result

    def follow(self, run_id: str, shown_as: str) -> Mapping[str, Any]:
        """Show each event of a run once, from its first, until it has ended; return its job.

        *shown_as* is the local run directory: its name on the remote host means nothing locally.
        """
        offset = 0

        def action(connection: Connection) -> Mapping[str, Any]:
            nonlocal offset
            job: Mapping[str, Any] = {}
            for item in connection.stream("follow", run_id=run_id, offset=offset):
                for event in filter(None, map(events.decode, item["lines"])):
                    renamed = {"run": shown_as} if event.kind == "begin" else {}
                    self._show(Event(event.at, event.kind, {**event.detail, **renamed}))
                offset = int(item["offset"])
                self.session.note_progress()
                job = item.get("job") or job
            return job

        return self.session.do(action)


def pack_command(
    command: RemoteCommand, remote: RemoteHost, *, before: str = ""
) -> tuple[RemoteCommand, upload.Bundle]:
    """Return the command with the option that names its certified run, and everything it uploads."""
    bundle = upload.pack(command.slo, remote.settings.models)
    if command.words[0] != "certify":
        return command, bundle
    slo, baseline = bundle.inputs.slo, command.baseline
    words, run = remote_baseline(slo, baseline, remote.name, command.folder, before=before)
    return replace(command, words=(*command.words, *words)), replace(bundle, run=run)


class NewRun:
    """One command on a remote host: starts the run, or attaches to the one that the same command started."""

    def __init__(self, runner: RemoteRunner, command: RemoteCommand, *, before: str = "") -> None:
        """Read all inputs; a mistake in them is an InputError before the first connection.

        A certified run that is not named counts only if it started before *before*.
        """
        self._runner = runner
        self._name, self._settings = runner.remote.name, runner.remote.settings
        self._command, self._bundle = pack_command(command, runner.remote, before=before)
        self._environ = upload.named_environment(self._bundle, command.send_env)
        self._registry = RunRegistry(command.folder)

    def run(self) -> download.RemoteResult:
        """Carry out the command: return the result of the run."""
        command, runner, registry = self._command, self._runner, self._registry
        entry, job = runner.session.do(self._find)
        if command.resume and (entry is None or job is None or job["state"] == "running"):
            finding = "the run is still running" if job else "no unfinished run of this command"
            hint = "leave out --resume to attach" if job else f"gatekeeper remote list --on {self._name} shows its runs"
            raise InputError(f"--resume: {finding} on {self._name}", hint=hint)
        attach = entry is not None and job is not None and not command.resume
        entry = entry or self._new_entry()
        _refuse_taken(Path(entry.out), again=attach or command.resume)
        with registry.locked(entry):
            if attach and job is not None:
                runner.say("run", f"attached to {entry.run_id}, started {job['started']} ({job['state']})")
                registry.write(entry)
            else:
                entry = self._begin(entry)
            return runner.finish(entry, registry)

    def _find(self, connection: Connection) -> tuple[Entry | None, Mapping[str, Any] | None]:
        """Return the run the same command started, by the registry or, where that was lost, by the remote list."""
        command, resume = self._command, self._command.resume
        jobs = {str(job["run_id"]): job for job in connection.request("jobs")["jobs"]}
        entries = self._registry.entries()
        own_entries = [
            entry
            for entry in entries
            if entry.matches(self._name, command.words, self._bundle.sha256, command.out)
            and (entry.state == OPEN or (resume and entry.run_id in jobs))
        ]
        if own_entries and (resume or own_entries[-1].run_id in jobs):
            return own_entries[-1], jobs.get(own_entries[-1].run_id)
        closed = {entry.run_id for entry in entries if entry.state == CLOSED}
        unknown = [job for run_id, job in jobs.items() if resume or run_id not in closed]
        own_jobs = [job for job in unknown if self._is_same(connection, job)]
        if own_jobs:
            job = max(own_jobs, key=lambda candidate: str(candidate["started"]))
            out = command.out or command.runs / str(job["run_id"])
            return Entry.of_job(job, self._name, out, str(command.slo)), job
        checks_before_run.refuse_occupied(self._name, jobs.values())
        # Registered and never started: it keeps its id, unless its folder was filled meanwhile.
        return (own_entries[-1] if own_entries and not is_taken(Path(own_entries[-1].out)) else None), None

    def _is_same(self, connection: Connection, job: Mapping[str, Any]) -> bool:
        label = job.get("label") or {}
        identity = (job.get("owner"), label.get("parcel"), label.get("command"))
        if identity != (self._runner.owner, self._bundle.sha256, list(self._command.words)):
            return False
        return job["state"] == "running" or self._command.resume or not is_fetched(connection, job)

    def _new_entry(self) -> Entry:
        slo_name = self._bundle.inputs.slo.name
        run_id = new_run_id(slo_name, _now())
        return Entry(
            run_id=run_id, host=self._name, command=self._command.words, slo=str(self._command.slo), slo_name=slo_name,
            parcel_sha256=self._bundle.sha256, out=str(self._command.out or self._command.runs / run_id),
            started=stamp(_now()),
        )  # fmt: skip

    def _begin(self, entry: Entry) -> Entry:
        """Check the host, upload everything, and start the run detached; return its entry as written."""
        do, say = self._runner.session.do, self._runner.say
        self._runner.notify("stage", {"stage": f"preparing {self._name}"})
        environment, missing = do(self._prepare)
        if missing and self._command.ship_models:
            do(lambda connection: upload.upload_models(connection, missing, say))
        do(lambda connection: upload.upload_inputs(connection, self._bundle, entry.run_id))
        inventory = do(lambda connection: self._inventory(connection, environment, entry.run_id))
        inputs, earlier = self._bundle.inputs, self._earlier_manifest()
        shippable = frozenset(model.name for model in missing)
        remarks = checks_before_run.check_inventory(
            inventory, inputs.slo, self._bundle.models, earlier, shippable, now=_now()
        )
        try:
            checks_before_run.report(self._name, [*remarks], say)
        except HostLacksError:
            if not self._command.resume:
                do(lambda connection: connection.request("remove", run_id=entry.run_id))
            raise
        begun = replace(entry, installed=environment.installed)
        self._registry.write(begun)
        do(lambda connection: self._start(connection, begun, environment))
        return begun

    def _prepare(self, connection: Connection) -> tuple[Environment, Sequence[upload.NamedModel]]:
        """Check clock and disk, and prepare the environment; also return the models that have to be uploaded."""
        say, path = self._runner.say, self._settings.environment
        missing = upload.missing_models(connection, self._bundle)
        upload_bytes = upload.size(missing) if self._command.ship_models else 0
        installed = bool(path) or is_installed(connection)
        disk = checks_before_run.check_disk(connection.hello, installed=installed, upload_bytes=upload_bytes)
        checks_before_run.report(self._name, [*checks_before_run.check_clock(connection.hello), *disk], say)
        if not installed:
            say("environment", installing(self._name))
        environment = prepare_environment(connection, path=path, say=lambda _line: self._runner.session.note_progress())
        return environment, missing

    def _inventory(self, connection: Connection, environment: Environment, run_id: str) -> dict[str, Any]:
        """Return the inventory by the remote gatekeeper, run in the environment that the run will have."""
        code, written = int(ExitCode.INTERNAL_ERROR), {"stdout": b"", "stderr": b""}
        run = {"argv": ["remote", "inventory", self._bundle.slo], "environment": environment.path, "env": self._environ}
        for item in connection.stream("run", INVENTORY_S, **run, folder=upload.folder(run_id)):
            if "stream" in item and len(written[item["stream"]]) < HEADER_MOST:
                written[item["stream"]] += item.get("content", b"")
            code = int(item.get("code", code))
        errors = printable(written["stderr"].decode(errors="replace")).strip()
        output = errors[-replies.TEXT_MOST :] or f"exit code {code}"
        if code == ExitCode.OK:
            try:
                return replies.checked(replies.Inventory, json_object(written["stdout"]))
            except ParseError as error:
                output = f"its answer is malformed: {error}"
        message = f"{connection.host}: the remote gatekeeper cannot check its host for this SLO: {output}"
        raise HostLacksError(message, hint="its message says what to do on the remote host")

    def _earlier_manifest(self) -> Manifest | None:
        """Return what the newest earlier run of this SLO on that host froze, if it was downloaded."""
        for entry in reversed(self._registry.entries()):
            path = Path(entry.out) / MANIFEST
            if (entry.host, entry.slo_name) == (self._name, self._bundle.inputs.slo.name) and path.is_file():
                with suppress(InputError, OtherRulesError):
                    return load_manifest(path.read_bytes())
        return None

    def _start(self, connection: Connection, entry: Entry, environment: Environment) -> None:
        verb, *options = self._command.words
        resume = ["--resume"] if self._command.resume else []
        label = {"command": list(self._command.words), "slo": entry.slo_name, "parcel": entry.parcel_sha256}
        try:
            connection.request(
                "start", run_id=entry.run_id, environment=environment.path,
                argv=[verb, self._bundle.slo, *options, "--out", "run", "--quiet", *resume], owner=self._runner.owner,
                slo_sha256=self._bundle.inputs.files["slo"].sha256, env=self._environ,
                settings={GATEKEEPER_PROGRESS: "progress.jsonl", GATEKEEPER_OWNER: self._runner.owner},
                label=label | {"installed": list(entry.installed)}, again=self._command.resume,
            )  # fmt: skip
        except AgentError as error:
            if error.kind == "busy" and "job" in error.more:
                raise checks_before_run.occupied_error(self._name, error.more["job"]) from error
            if error.kind != "exists":  # it runs: the response to the first try was lost with its connection
                raise


def is_fetched(connection: Connection, job: Mapping[str, Any]) -> bool:
    """Return whether a run was downloaded."""
    return connection.digest(f"{upload.folder(str(job['run_id']))}/{FETCHED}") is not None


def _refuse_taken(out: Path, *, again: bool) -> None:
    """Refuse a run directory that is not empty; with *again* an earlier part of the run may be in it."""
    if is_taken(out) and not (again and (out / MANIFEST).is_file()):
        unfinished = (out / MANIFEST).is_file() and not (out / VERDICT).is_file()
        resume = "continue that run with --resume, or " if unfinished else ""
        raise InputError(f"{out} is not empty", hint=f"{resume}choose another --output")


def _now() -> datetime:
    return SystemClock().wall()
