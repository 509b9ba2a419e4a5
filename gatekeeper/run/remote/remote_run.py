"""An order: one command to be done on another machine, from the first look at it to the run directory here."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper import host as this_host
from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import ExitCode, HostLacksError, InputError
from gatekeeper.core.inputs import load_manifest
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.records import Event
from gatekeeper.core.units import show_seconds
from gatekeeper.run import events
from gatekeeper.run.remote import download, upload
from gatekeeper.run.remote.download import Homecoming, fetch
from gatekeeper.run.remote.environment import Environment, environment, installing, is_installed
from gatekeeper.run.remote.hosts_file import Host
from gatekeeper.run.remote.preflight import heed, of_inventory, of_link
from gatekeeper.run.remote.reconnect import Tether
from gatekeeper.run.remote.run_registry import CLOSED, OPEN, Entry, Ledger, new_id
from gatekeeper.run.remote.ssh import Link
from gatekeeper.run.remote.ssh_errors import FarError, LinkError
from gatekeeper.run.remote.upload import Parcel, pack


def follow(tether: Tether, run_id: str, shown_as: str, observers: Sequence[Observer]) -> Mapping[str, Any]:
    """Show each event of a run once, from its first, until it has ended; return what is left to be known of it.

    *shown_as* is where the run will lie here: what it is called there means nothing to anybody here.
    """
    offset = 0

    def act(link: Link) -> Mapping[str, Any]:
        nonlocal offset
        job: Mapping[str, Any] = {}
        for item in link.stream("follow", run_id=run_id, offset=offset):
            for line in item.get("lines", ()):
                _show(line, shown_as, observers)
            offset = int(item["offset"])
            tether.alive()
            job = item.get("job") or job
        return job

    return tether.hold(act)


def _show(line: str, shown_as: str, observers: Sequence[Observer]) -> None:
    event = events.decode(line)
    if event is None:
        return
    if event.kind == "begin":
        event = Event(event.at, event.kind, {**event.detail, "run": shown_as})
    for observer in observers:
        observer(event)


RUNS = Path("runs")
FETCHED = "fetched.json"
"""Beside a job: it came home, and nobody has to be told of it again."""


@dataclass(frozen=True, slots=True)
class Far:
    """The machine an order is for."""

    name: str
    """As it was given to --on."""
    address: str
    """What ssh calls it."""
    host: Host = field(default_factory=Host)

    def connect(self, *, alone: bool = False) -> Link:
        """Return a new connection; *alone* shares none with other commands of this user."""
        return Link(self.address, home=self.host.home, python=self.host.python, alone=alone)


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for."""

    command: tuple[str, ...]
    """certify; soak or probe with their options. Neither the SLO file nor the run directory stand in it."""
    slo: Path
    out: Path | None = None
    resume: bool = False
    ship_models: bool = False
    send_env: tuple[str, ...] = ()

    def argv(self, place: str) -> list[str]:
        """Return the words of the command there, in the job's folder."""
        verb, *options = self.command
        return [verb, place, *options, "--out", "run", "--quiet", *(["--resume"] if self.resume else [])]


@dataclass(slots=True)
class Courier:
    """Carries out orders over one tether."""

    far: Far
    tether: Tether
    observers: Sequence[Observer] = ()
    owner: str = field(default_factory=this_host.this_owner)

    def say(self, about: str, what: str) -> None:
        """Tell whoever watches."""
        self._tell("warning", {"about": about, "because": what})

    def carry_out(self, order: Order) -> Homecoming:
        """Begin the run there, or attach to the one the same order began; bring it home and judge it here."""
        parcel = pack(order.slo)
        environ = _named_environment(parcel, order.send_env)
        ledger = Ledger(order.out.parent if order.out is not None else RUNS)
        entry, job = self.tether.hold(lambda link: self._find(link, order, parcel, ledger))
        if order.resume and (entry is None or job is None or job["state"] == "running"):
            what = "it is running: leave out --resume to attach" if job else "no unfinished run of this command"
            hint = f"gatekeeper remote list --on {self.far.name} shows its runs"
            raise InputError(f"--resume: {what} on {self.far.name}", hint=hint)
        if order.resume or job is None or entry is None:
            entry = entry or self._entry(order, parcel)
            _is_free(Path(entry.out), again=order.resume)
            with ledger.holding(entry):
                entry = self._begin(order, parcel, entry, ledger, environ)
                return self.bring(entry, ledger)
        _is_free(Path(entry.out), again=True)
        with ledger.holding(entry):
            self.say("run", f"attached to {entry.run_id}, begun {job['started']} ({job['state']})")
            ledger.write(entry)
            return self.bring(entry, ledger)

    def bring(self, entry: Entry, ledger: Ledger) -> Homecoming:
        """Follow a run to its end, bring it home, judge it here, and close its entry."""
        self.tether.goes_on = True
        out = Path(entry.out)
        job = follow(self.tether, entry.run_id, str(out), self.observers)
        return self.receive(entry, ledger, job)

    def receive(self, entry: Entry, ledger: Ledger, job: Mapping[str, Any]) -> Homecoming:
        """Bring home a run that has ended."""
        out = Path(entry.out)
        self._tell("stage", {"stage": "bringing the run home"})
        files = fetch(self.tether, entry.run_id, out, self.say)
        came = download.receive(out, job, entry.command[0])
        if came.trouble is None and job["state"] in download.LOST:
            self.say("run", "whatever watched over it there was killed; it came to its end by itself, and is sealed")
        if came.verdict is not None and came.trouble is None:
            agree = "the same verdict, byte for byte" if came.exact else "the same outcomes, by another version"
            self.say("home", f"{files} files, each as it was sealed; judged again here: {agree}")
        told = json.dumps({"by": self.owner, "at": stamp(_now()), "files": files, "outcome": came.outcome}).encode()
        place = f"{upload.folder(entry.run_id)}/{FETCHED}"
        ledger.close(entry, came.outcome)
        with suppress(LinkError):  # the run is home; that the far side knows it only keeps its list tidy
            self.tether.hold(lambda link: link.put(place, told, sha256=sha256(told)), patience_s=0)
        return came

    def _find(
        self, link: Link, order: Order, parcel: Parcel, ledger: Ledger
    ) -> tuple[Entry | None, Mapping[str, Any] | None]:
        """Return the run the same order began, by the ledger or, where it was lost, by what the far side knows."""
        jobs = {str(one["run_id"]): one for one in link.ask("jobs")["jobs"]}
        entries = ledger.entries()
        home = {entry.run_id for entry in entries if entry.state == CLOSED}
        mine = [
            entry
            for entry in entries
            if entry.is_of(self.far.name, order.command, parcel.sha256, order.out)
            and (entry.state == OPEN or (order.resume and entry.run_id in jobs))
        ]
        if mine and (order.resume or mine[-1].run_id in jobs):
            return mine[-1], jobs.get(mine[-1].run_id)
        strange = [one for run_id, one in jobs.items() if order.resume or run_id not in home]
        found = [one for one in strange if self._is_mine(link, one, order, parcel)]
        if found:
            job = max(found, key=lambda one: str(one["started"]))
            entry = self._entry(order, parcel, str(job["run_id"]))
            return replace(entry, installed=tuple((job.get("label") or {}).get("installed") or ())), job
        refuse_occupied(self.far.name, jobs.values())
        return (mine[-1] if mine else None), None  # written down and never begun: it keeps its name

    def _is_mine(self, link: Link, job: Mapping[str, Any], order: Order, parcel: Parcel) -> bool:
        label = job.get("label") or {}
        if job.get("owner") != self.owner or label.get("parcel") != parcel.sha256:
            return False
        if label.get("command") != list(order.command):
            return False
        if job["state"] == "running" or order.resume:
            return True
        fetched = f"{upload.folder(str(job['run_id']))}/{FETCHED}"
        return not link.ask("held", path=fetched).get("sha256")

    def _entry(self, order: Order, parcel: Parcel, run_id: str = "") -> Entry:
        name = run_id or new_id(parcel.given.slo.name, _now())
        return Entry(
            run_id=name,
            host=self.far.name,
            command=order.command,
            slo=str(order.slo),
            slo_name=parcel.given.slo.name,
            parcel_sha256=parcel.sha256,
            out=str(order.out or RUNS / name),
            started=stamp(_now()),
        )

    def _begin(self, order: Order, parcel: Parcel, entry: Entry, ledger: Ledger, environ: Mapping[str, str]) -> Entry:
        """Look at the machine, lay everything out there, and start the run detached; return its entry as written."""
        hold, mapped = self.tether.hold, self.far.host.models
        self._tell("stage", {"stage": f"preparing {self.far.name}"})
        ready, ships = hold(lambda link: self._first_look(link, parcel, order))
        if ships and order.ship_models:
            hold(lambda link: upload.send_models(link, ships, self.say))
        hold(lambda link: upload.deliver(link, parcel, entry.run_id, mapped))
        inventory = hold(lambda link: _inventory(link, ready, entry.run_id, parcel, environ))
        able = frozenset(one.name for one in ships)
        earlier = _earlier(ledger, self.far.name, parcel)
        try:
            found = of_inventory(inventory, parcel.given.slo, parcel.models, earlier, able, now=_now())
            heed(self.far.name, found, self.say)
        except HostLacksError:
            if not order.resume:
                hold(lambda link: link.ask("remove", run_id=entry.run_id))
            raise
        begun = replace(entry, installed=ready.installed)
        ledger.write(begun)
        hold(lambda link: self._start(link, order, parcel, begun, ready, environ))
        return begun

    def _first_look(self, link: Link, parcel: Parcel, order: Order) -> tuple[Environment, Sequence[Any]]:
        ships = upload.missing(link, parcel, self.far.host.models)
        weight = upload.size(ships) if order.ship_models else 0
        installed = bool(self.far.host.environment) or is_installed(link)
        heed(self.far.name, of_link(link.hello, installed=installed, ships_bytes=weight), self.say)
        if not installed:
            self.say("environment", installing(self.far.name))
        ready = environment(link, path=self.far.host.environment, say=lambda _line: self.tether.alive())
        return ready, ships

    def _start(
        self,
        link: Link,
        order: Order,
        parcel: Parcel,
        entry: Entry,
        ready: Environment,
        environ: Mapping[str, str],
    ) -> None:
        label: dict[str, Any] = {"command": list(order.command), "slo": entry.slo_name, "parcel": parcel.sha256}
        label["installed"] = list(entry.installed)
        try:
            link.ask(
                "start",
                run_id=entry.run_id,
                argv=order.argv(parcel.slo),
                owner=self.owner,
                slo_sha256=parcel.given.files["slo"].sha256,
                env=dict(environ),
                settings={events.PROGRESS: "progress.jsonl", this_host.OWNER: self.owner},
                label=label,
                again=order.resume,
                **ready.words(),
            )
        except FarError as error:
            if error.kind == "busy":
                raise _occupied(self.far.name, error.more["job"]) from error
            if error.kind != "exists":  # it runs: the answer to the first try was lost with its connection
                raise

    def _tell(self, kind: str, detail: dict[str, Any]) -> None:
        event = Event(stamp(_now()), kind, detail)
        for observer in self.observers:
            observer(event)


def refuse_occupied(name: str, jobs: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a machine where one of *jobs* runs: an installation would be measured as well."""
    for job in jobs:
        if job["state"] == "running":
            raise _occupied(name, job)


def _occupied(name: str, job: Mapping[str, Any]) -> HostLacksError:
    begun = datetime.fromisoformat(str(job["started"]))
    age = show_seconds(max(0.0, (_now() - begun).total_seconds()))
    return HostLacksError(
        f"{name} is occupied by {job['owner']}, run {job['run_id']}, for {age}",
        hint="two runs would measure each other: wait for it, or end it: "
        f"gatekeeper remote cancel {job['run_id']} --on {name}",
    )


def _named_environment(parcel: Parcel, named: Sequence[str]) -> dict[str, str]:
    """Return the variables that travel; a key the SLO needs must be named, and a named one must be set."""
    slo = parcel.given.slo
    needed = {"subject.api_key_env": slo.subject.api_key_env, "telemetry.headers_env": slo.telemetry.headers_env}
    for where, name in needed.items():
        if name is not None and name not in named:
            raise InputError(
                f"{where} = '{name}': nothing of this environment travels unless it is named",
                hint=f"add --send-env {name}",
            )
    for name in named:
        if name not in os.environ:
            raise InputError(f"--send-env {name}: no such variable here", hint=f"export {name}, or leave it out")
    return {name: os.environ[name] for name in named}


def _is_free(out: Path, *, again: bool) -> None:
    """Refuse a place that is taken; where a run comes *again*, an earlier part of it may lie there."""
    taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    if taken and not (again and (out / "manifest.json").is_file()):
        unfinished = (out / "manifest.json").is_file() and not (out / "verdict.json").is_file()
        hint = "go on with it by --resume, or choose another --out" if unfinished else "choose another --out"
        raise InputError(f"{out} is not empty", hint=hint)


def _inventory(
    link: Link, ready: Environment, run_id: str, parcel: Parcel, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Ask the gatekeeper there, in the environment the run will have, what that machine has for this SLO."""
    code, out, said = _run_there(link, ready, ["remote", "inventory", parcel.slo], upload.folder(run_id), environ)
    try:
        document: dict[str, Any] = json.loads(out) if code == 0 else {}
    except ValueError:
        document = {}
    if not document:
        told = said.decode(errors="replace").strip() or f"it ended with {code}"
        raise HostLacksError(
            f"{link.host}: gatekeeper there can not look around: {told}", hint="its words say what to do"
        )
    return document


def _run_there(
    link: Link, ready: Environment, argv: Sequence[str], folder: str, environ: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    """Run gatekeeper there to its end; return its exit code and what it wrote to stdout and stderr."""
    code, written = int(ExitCode.INTERNAL_ERROR), {"stdout": b"", "stderr": b""}
    for item in link.stream("run", argv=list(argv), folder=folder, env=dict(environ), **ready.words()):
        if "stream" in item:
            written[item["stream"]] += item.get("content", b"")
        code = int(item.get("code", code))
    return code, written["stdout"], written["stderr"]


def _earlier(ledger: Ledger, name: str, parcel: Parcel) -> Manifest | None:
    """Return what the newest earlier run of this SLO on that machine froze, if it came home here."""
    for entry in reversed(ledger.entries()):
        path = Path(entry.out) / "manifest.json"
        if (entry.host, entry.slo_name) == (name, parcel.given.slo.name) and path.is_file():
            try:
                return load_manifest(path.read_bytes())
            except InputError:
                continue
    return None


def _now() -> datetime:
    return SystemClock().wall()


def visit(far: Far, argv: Sequence[str]) -> int:
    """Run gatekeeper with *argv* there; what it writes is written here as it comes. Return its exit code."""
    code = int(ExitCode.INTERNAL_ERROR)
    with far.connect() as link:
        if not far.host.environment and not is_installed(link):
            refuse_occupied(far.name, link.ask("jobs")["jobs"])
            disk = [one for one in of_link(link.hello, installed=False) if one.about == "disk"]
            heed(far.name, disk, lambda *_: None)
            sys.stderr.write(f"{installing(far.name)}\n")
        ready = environment(link, path=far.host.environment)
        sinks = {"stdout": sys.stdout, "stderr": sys.stderr}
        for item in link.stream("run", argv=list(argv), **ready.words()):
            if content := item.get("content"):
                sink = sinks[item["stream"]]
                sink.write(content.decode(errors="replace"))
                sink.flush()
            code = int(item.get("code", code))
    return code
