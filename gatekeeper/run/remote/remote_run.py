"""A run on a remote host: checked, started, followed to its end, downloaded and judged again."""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gatekeeper import host as this_host
from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.parse import json_object
from gatekeeper.core.records import RECORDED_ELSEWHERE, Event, EventKind
from gatekeeper.core.system.environment_variables import GATEKEEPER_OWNER
from gatekeeper.core.system.record_files import EVENTS
from gatekeeper.core.system.run_directory import RUNS, RunDirectory, is_taken, new_run_id
from gatekeeper.core.text import printable
from gatekeeper.core.units import show_bytes, show_seconds
from gatekeeper.run.prepare import refuse_unprovable
from gatekeeper.run.remote import host_scripts, run_inputs
from gatekeeper.run.remote.download import RemoteResult, download, judge_locally
from gatekeeper.run.remote.remote_checks import (
    RemoteAnswer,
    ask,
    check_installed,
    check_models,
    check_plan,
    exports,
    look_at_host,
)
from gatekeeper.run.remote.run_list import (
    JobRecord,
    RemoteJob,
    find_job,
    occupied_error,
    parse_job,
    read_jobs,
)
from gatekeeper.run.remote.ssh import RemoteHost
from gatekeeper.run.remote.ssh_errors import MALFORMED, SILENT, SshError, make_malformed_error
from gatekeeper.run.stored import tries, verify

Result = TypeVar("Result")

FOLLOW_SILENCE_S = 60.0
"""A run that is followed prints an empty line every ten seconds."""
LINE_MOST = 1 << 20
"""Bytes of one event."""
LOG_LINES = 12
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
STABLE_S = 30.0
"""A connection that lasted this long has worked: only the time after it counts against --patience."""
PERMANENT = frozenset({"host_key_changed", "host_key_unknown", "configuration", "name", "noise", MALFORMED})
"""Errors that a retry cannot fix."""


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """A run that the user wants on a remote host."""

    slo: Path
    out: Path | None = None
    resume: bool = False
    baseline: str | None = None
    """The id of a certified run on that host, or `none`."""
    send_env: tuple[str, ...] = ()


@dataclass(slots=True)
class RemoteRunner:
    """Starts, follows and downloads runs of one remote host; reconnects for at most *patience_s*."""

    host: RemoteHost
    patience_s: float = 0.0
    observers: Sequence[Observer] = ()
    owner: str = field(default_factory=this_host.this_owner)
    _progress_at: float = field(default_factory=time.monotonic)
    _connected: bool = False
    """A script of this command has answered."""
    _lost: bool = False
    """The connection broke, and the observers know it."""
    _run_started: bool = False

    def say(self, about: str, message: str) -> None:
        """Send a message to the observers."""
        self._notify(EventKind.WARNING, {"about": about, "because": message})

    def _notify(self, kind: EventKind, detail: dict[str, Any]) -> None:
        event = Event(stamp(SystemClock().wall()), kind, detail)
        for observer in self.observers:
            observer(event)

    def _note_progress(self) -> None:
        """Note that something arrived: the time limit of the retries starts again."""
        self._progress_at, self._connected = time.monotonic(), True
        if self._lost:
            self._lost = False
            self.say("connection", "reconnected")

    def retry(self, action: Callable[[], Result]) -> Result:
        """Perform *action*; where its connection breaks, repeat it from its start for at most `patience_s`.

        The very first connection of a command is not retried: an error there is an error of the command.
        """
        pause_s = FIRST_PAUSE_S
        self._progress_at = time.monotonic()
        while True:
            before, began = self._progress_at, time.monotonic()
            try:
                result = action()
            except SshError as error:
                # A shared connection that hangs, as after a closed laptop, would also block a new one.
                self.host.alone = error.reason == SILENT
                if not self.host.alone and time.monotonic() - began > STABLE_S:
                    self._progress_at = time.monotonic()  # the upload of a model takes an hour without progress
                if self._progress_at > before:
                    pause_s = FIRST_PAUSE_S
                left_s = self.patience_s - (time.monotonic() - self._progress_at)
                if not self._connected or error.reason in PERMANENT or left_s <= 0:
                    raise self._final_error(error) from error
                if not self._lost:
                    self.say("connection", f"lost: {error.message}; retrying for {show_seconds(left_s)}")
                    self._lost = True
                time.sleep(min(pause_s, left_s))
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
            else:
                self._note_progress()
                return result

    def _final_error(self, error: SshError) -> SshError:
        if not self._run_started:
            return error
        hint = f"the run continues on the remote host; attach to it: gatekeeper remote attach --on {self.host.name}; "
        return SshError(error.reason, f"nothing is proven yet: {error.message}", hint=hint + error.hint)

    def certify(self, request: RemoteRequest) -> RemoteResult:
        """Start a run, or attach to the one that the same command started; follow, download and judge it."""
        inputs = run_inputs.collect_inputs(request.slo)
        environ = run_inputs.check_environment(inputs.inputs, request.send_env)
        record = JobRecord(
            owner=self.owner, started=stamp(SystemClock().wall()), slo=inputs.inputs.slo.name,
            inputs_sha256=inputs.sha256, options=_options(request),
        )  # fmt: skip
        jobs = self.retry(lambda: read_jobs(self.host))
        own_job = self._find_own_job(jobs, record, resume=request.resume)
        run_id = own_job.run_id if own_job is not None else new_run_id(record.slo, SystemClock().wall())
        out = request.out or RUNS / run_id
        if own_job is None and is_taken(out):
            raise InputError(f"{out} is not empty", hint="choose another --output")
        if own_job is not None and not request.resume:
            started = f"started {own_job.record.started} ({own_job.state})"
            self.say("run", f"attached to {run_id}, {started}")
            return self.finish(run_id, out)
        for job in jobs:
            if job.state == "running":
                raise occupied_error(self.host, job)
        refuse_unprovable(inputs.inputs)  # a model takes minutes to upload
        self._notify(EventKind.STAGE, {"stage": f"checking {self.host.name}"})
        installed = self.retry(lambda: look_at_host(self.host))
        check_installed(self.host.name, installed, self.say)
        if not request.resume:
            self._copy(inputs, run_id, environ)
        self._start(run_id, inputs.slo, record, environ, resume=request.resume)
        return self.finish(run_id, out)

    def _find_own_job(self, jobs: Sequence[RemoteJob], record: JobRecord, *, resume: bool) -> RemoteJob | None:
        """Return the run that the same command started and that is not fetched; to resume, one that did not finish."""
        own_jobs = [
            job
            for job in jobs
            if (job.record.owner, job.record.inputs_sha256, job.record.options)
            == (record.owner, record.inputs_sha256, record.options)
        ]
        if resume:
            unfinished = [job for job in own_jobs if not job.finished and job.state != "running"]
            if not unfinished:
                hint = f"gatekeeper remote list --on {self.host.name} shows its runs; without --resume it attaches"
                raise InputError(f"--resume: no unfinished run of this command on {self.host.name}", hint=hint)
            return unfinished[-1]
        # One that was killed or cancelled is no answer to a command that is given again.
        alive = [
            job
            for job in own_jobs
            if not job.fetched and (job.state == "running" or (job.finished and not job.cancelled_by))
        ]
        return alive[-1] if alive else None

    def _copy(self, inputs: run_inputs.RunInputs, run_id: str, environ: Mapping[str, str]) -> None:
        """Upload the inputs and models that are not there; refuse what is missing there, and what `plan` refuses."""
        self.retry(lambda: run_inputs.upload_files(self.host, inputs, run_id))
        uploaded = {model.name for model in inputs.models}
        if uploaded:  # which takes hours: what else the SLO names must be there already
            self._check_there("doctor", inputs.slo, run_id, environ, partial(check_models, uploaded=uploaded))
        for model in inputs.models:
            self.say(f"model {model.name}", f"uploading {show_bytes(model.bytes)}, unless it is there")
        self.retry(lambda: run_inputs.upload_models(self.host, inputs))
        self._check_there("plan", inputs.slo, run_id, environ, check_plan)

    def _check_there(
        self,
        command: str,
        slo: str,
        run_id: str,
        environ: Mapping[str, str],
        check: Callable[[str, RemoteAnswer], None],
    ) -> None:
        """Check what a command says there; remove the inputs where that refuses the run."""
        answer = self.retry(lambda: ask(self.host, slo, run_id, command, environ))
        try:
            check(self.host.name, answer)
        except GatekeeperError:
            with suppress(GatekeeperError):
                self.host.run(host_scripts.REMOVE_INPUTS, {"run": run_id}, limit_s=60)
            raise

    def _start(self, run_id: str, slo: str, record: JobRecord, environ: Mapping[str, str], *, resume: bool) -> None:
        """Start the run in a session of its own; refuse where another one was faster."""
        environ = {**environ, GATEKEEPER_OWNER: self.owner}
        variables = {"run": run_id, "slo": slo, "resume": "yes" if resume else "", "json": record.model_dump_json()}
        words = [*record.options, *(["--resume"] if resume else [])]
        script = f"{exports(environ)}set -- {shlex.join(words)}\n{host_scripts.START_RUN}"
        answer = self.retry(lambda: self.host.run(script, {**environ, **variables}, limit_s=120))
        job = parse_job(self.host.name, answer.rstrip("\n"))
        if job.run_id != run_id:
            raise occupied_error(self.host, job)

    def attach(self, run_id: str | None, out: Path | None) -> RemoteResult:
        """Follow a run to its end, download it and judge it again; see `find_job` for one without a name."""
        jobs = self.retry(lambda: read_jobs(self.host))
        job = find_job(self.host, run_id, jobs)
        return self.finish(job.run_id, out or RUNS / job.run_id)

    def finish(self, run_id: str, out: Path) -> RemoteResult:
        """Follow a run to its end, download it to *out* and judge it again."""
        self._run_started = True
        job, log = self.follow(run_id, str(out))
        self._notify(EventKind.STAGE, {"stage": "downloading the run"})
        files = self.retry(lambda: download(self.host, run_id, out))
        result = judge_locally(out, job, log)
        if result.error is None and job.state == "died":
            self.say("run", "the shell that waited for it was killed; its checksums are complete")
        if result.verdict is not None and result.error is None:
            agree = "the same verdict, byte for byte" if result.exact else "the same outcomes, with another version"
            self.say("download", f"{files} files match their checksums; judged again locally: {agree}")
            manifest, slo = verify.read_frozen(RunDirectory(out))
            gap = tries.add_run(RunDirectory(out), manifest, slo, result.verdict.exit_code)
            if gap is not None:
                self.say("tries", gap)
        variables = {"run": run_id, "who": self.owner}
        with suppress(GatekeeperError):  # the run is downloaded; the mark only says that no other command needs to
            self.host.run(host_scripts.MARK_FETCHED, variables, limit_s=60)
        return result

    def follow(self, run_id: str, shown_as: str) -> tuple[RemoteJob, str]:
        """Show each event of a run once, from its first, until it has ended; return its job and the end of its log.

        *shown_as* is the local run directory: its name on the remote host means nothing locally.
        """
        offset = 0

        def action() -> tuple[RemoteJob, str]:
            nonlocal offset
            job, log = None, list[str]()
            variables = {"run": run_id, "offset": str(offset)}
            for line in self.host.lines(host_scripts.FOLLOW_RUN, variables, silence_s=FOLLOW_SILENCE_S, most=LINE_MOST):
                self._note_progress()
                text = line.decode(errors="replace")
                if text.startswith("{"):
                    offset += len(line) + 1
                    self._show(text, shown_as)
                elif text.startswith("log\t"):
                    log.append(printable(text.removeprefix("log\t"))[:300])
                elif text:
                    job = parse_job(self.host.name, text)
            if job is None or job.run_id != run_id or job.state == "running":
                raise make_malformed_error(self.host.name, "the events end without the run's end")
            return job, "\n".join(f"  {line}" for line in log[-LOG_LINES:])

        return self.retry(action)

    def _show(self, line: str, shown_as: str) -> None:
        """Send an event of the remote run to the observers; one without the details of its kind is left out.

        Answers and samples are in other files, so that there is nothing to show in rows of workloads.
        """
        with suppress(LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            event = EVENTS.validate_python(json_object(line))
            if event.kind in RECORDED_ELSEWHERE:
                return
            changed = {"run": shown_as, "workloads": ()} if event.kind == EventKind.BEGIN else {}
            for observer in self.observers:
                observer(Event(event.at, event.kind, {**event.detail, **changed}))


def _options(request: RemoteRequest) -> tuple[str, ...]:
    """Return the options of `certify` on the remote host; a run there is named by its id."""
    if request.baseline is None:
        return ()
    if request.baseline == "none":
        return ("--baseline", "none")
    if "/" in request.baseline or request.baseline.startswith("."):
        hint = "name the id of a run on that host (gatekeeper remote list), or none"
        raise InputError(f"--baseline {request.baseline}: this is no run of the remote host", hint=hint)
    return ("--baseline", f"runs/{request.baseline}")
