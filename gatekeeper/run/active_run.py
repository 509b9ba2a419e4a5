"""A run while it is made: its directory, event log, client, host sampler and telemetry."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Self

from pydantic import TypeAdapter

from gatekeeper import host
from gatekeeper.analysis.metrics.host.host_series import host_segment
from gatekeeper.analysis.plan.objectives import forced_workloads
from gatekeeper.analysis.plan.settings import PLAIN, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.core.errors import GatekeeperError, InputError, OutOfTimeError, UnresponsiveError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import EventKind, Generation, HostSample, Kind
from gatekeeper.core.system import record_files, run_directory
from gatekeeper.core.system.record_files import DAMAGED, RecordWriter
from gatekeeper.core.system.run_directory import EVENTS_FILE, HOST_FILE
from gatekeeper.core.text import show_count
from gatekeeper.report.attestation import build_url
from gatekeeper.report.otel.live_export import LiveExport
from gatekeeper.run.events import EventRecorder
from gatekeeper.run.plan import outlook
from gatekeeper.run.prepare import Prepared
from gatekeeper.run.requests import Client, Recorder
from gatekeeper.run.stages.freeze import changed_models
from gatekeeper.run.stages.soak import SoakTask
from gatekeeper.run.stored import tries
from gatekeeper.run.stored.load import FIRST, SWEEP, load_case, terms_of


class ActiveRun:
    """One process's part of a run, from where the records end; close it by leaving its context."""

    def __init__(
        self,
        prepared: Prepared,
        directory: run_directory.RunDirectory,
        observers: Sequence[Observer],
        remark: str | None,
    ) -> None:
        self.prepared, self.directory, self.remark = prepared, directory, remark
        self.slo, self.backend = prepared.inputs.slo, prepared.backend
        self.observers = observers
        self.open = ExitStack()
        """Closes everything that the run opens."""
        self.events = directory.writer(EVENTS_FILE, record_files.EVENTS)
        self.open.callback(self.events.close)
        self.observe = EventRecorder(self.events, self.backend.clock, observers)
        self.segment = 1 + max((event.detail.get("segment", 0) for event in self.events.records), default=-1)
        self.telemetry = LiveExport(directory.path, self.slo.telemetry, self.observe)
        self._sampler: host.Sampler | None = None
        self._samples: RecordWriter[HostSample] | None = None

    def begin(self, *, alone: str | None = None) -> None:
        """Record that this process begins its part, with every doubt and warning; *alone* names the only stage."""
        prepared = self.prepared
        forecast = outlook(prepared, alone)
        owner = {"by": host.this_owner(), "build": build_url()}
        self.observe(EventKind.BEGIN, {"segment": self.segment, "run": str(self.directory.path), **owner} | forecast)
        for doubt in prepared.manifest.doubts:
            self.observe(EventKind.DOUBT, {"because": doubt})
        if self.remark is not None:
            self.observe(EventKind.WARNING, {"about": "the host", "because": self.remark})
        for complaint in prepared.complaints:
            self.observe(EventKind.WARNING, {"about": complaint.about, "because": complaint.message})
        self.note_other_programs(FIRST)
        self._warn_of_damage(EVENTS_FILE, self.events)
        self.telemetry.begin()

    def note_other_programs(self, before: str) -> None:
        """Record which other programs keep the machine busy *before* a stage, while no system under test runs."""
        if self.backend.realtime and (others := host.other_programs()).busy:
            self._observe_busy(others, before=before, because=str(others))

    @property
    def knows_other_programs(self) -> bool:
        """Return whether other programs count: a server that was already running would count as one of them."""
        return self.backend.realtime and self.slo.subject.url is None

    @contextmanager
    def noting_other_programs(self, stage: str = SWEEP) -> Iterator[None]:
        """Record how much of the processor other programs used during a stage: it is what its times rest on."""
        if not self.knows_other_programs:
            yield
            return
        before = host.processor_use()
        try:
            yield
        finally:
            others = host.used_between(before, host.processor_use())
            self._observe_busy(others, during=stage, busy=others.busy, because=others.in_words("used"))

    def _observe_busy(self, others: host.OtherPrograms, **detail: Any) -> None:
        self.observe(EventKind.BUSY, {**detail, "cores": round(others.cores, 2), "of": others.of})

    def case(self, *, live: bool = False) -> Case:
        """Read the records so far; *live*: an unfinished soak counts as not started."""
        prepared = self.prepared
        return load_case(self.directory, prepared.inputs, prepared.manifest, prepared.text, live=live)

    def writer(self, name: str, kind: TypeAdapter[Kind]) -> RecordWriter[Kind]:
        """Open a record file until the run is closed; warn where it was damaged."""
        file = self.directory.writer(name, kind)
        self.open.callback(file.close)
        self._warn_of_damage(name, file)
        return file

    def _warn_of_damage(self, name: str, file: RecordWriter[Any]) -> None:
        if file.damage is not None:
            remedy = f"its {show_count(file.count, 'intact record')} count, and the whole file is kept beside it"
            self.observe(EventKind.WARNING, {"about": name, "because": f"{file.damage}: {remedy} ({name}{DAMAGED})"})

    def client(self, *, cache: bool = False) -> Client:
        """Return another client of the backend."""
        return Client(self.slo, self.backend, self.observe, self.segment, cache=cache)

    def recorder(self, record: Callable[[Generation], None], **detail: Any) -> Recorder:
        """Return what records the answers of a stage with *record*; every report of one also says *detail*."""
        return Recorder(record, self.observe, detail)

    def task(self, soak_plan: SoakPlan, **fields: Any) -> SoakTask:
        """Return what is needed to send a soak."""
        canaries, seed = self.prepared.inputs.canaries, self.prepared.plan.seed
        forced = forced_workloads(self.slo, soak_plan.settings, terms_of(self.prepared.manifest))
        return SoakTask(self.slo, soak_plan, canaries, seed, self.segment, forced=forced, **fields)

    @contextmanager
    def sampling(self, client: Client) -> Iterator[None]:
        """Sample the host and the processes of *client* while the context is open."""
        samples = self._samples = self.writer(HOST_FILE, record_files.SAMPLES)
        samples.release()
        samples.reopen()  # a run that was killed after its last answer samples once more

        def record(sample: HostSample) -> None:
            try:
                samples(sample)
                self.observe(EventKind.SAMPLE, {"values": sample.values})
            except GatekeeperError as error:  # a full disk is no fault of the host: the run ends, and can be continued
                self.observe.trouble = error
                raise

        interval = self.prepared.manifest.sample_interval
        self._sampler = host.Sampler(
            None, clock=self.backend.clock, pids=client.pids, record=record, interval=interval, phase=""
        )
        with self._sampler, host.keep_awake():
            yield
        if self.observe.trouble is not None:
            raise self.observe.trouble
        if self._sampler.fault is not None:
            self.observe(EventKind.SAMPLER_DIED, {"because": self._sampler.fault})
        samples.finish()

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Record why measuring ends early: an interrupt, no time left, or a system that cannot be started: unproven."""
        try:
            seconds = self.slo.max_duration
            message = f"the run was ended after its max_duration of {seconds or 0:g} s"
            hint = "what was measured is kept: continue with --resume, which has as much time again"
            with ending_after(seconds, message, hint):
                yield
        except (KeyboardInterrupt, OutOfTimeError):
            self.observe(EventKind.INTERRUPTED, {"segment": self.segment})
            raise
        except (InputError, UnresponsiveError) as error:  # the inputs were read before: a start has failed
            self.observe(EventKind.SUBJECT_LOST, {"because": error.message})
            hint = f"{error.hint}; then continue with --resume: what was recorded is kept"
            raise UnresponsiveError(f"the system under test cannot be started: {error.message}", hint=hint) from error

    def observe_launch(self, soak_plan: SoakPlan) -> None:
        """Record how the servers of a soak are launched, and what their requests must carry, for the policy."""
        if not isinstance(self.backend, ServerBackend):
            return
        arms = [(soak_plan.resident, tuple(soak_plan.settings))]
        arms += [] if self.backend.shares_process or not speculates(soak_plan.resident) else [(PLAIN, ())]
        lines = [(knobs, names, self.backend.launch(knobs)) for knobs, names in arms]
        servers = [
            {"workloads": names, "speculation": speculates(knobs), **line} for knobs, names, line in lines if line
        ]
        detail = {"soak": soak_plan.name, "servers": servers, "request": self.backend.required_fields()}
        self.observe(EventKind.LAUNCH, detail)

    @contextmanager
    def soaking(self, soak_plan: SoakPlan) -> Iterator[None]:
        """Apply the background load of the profile, and record the host's facts before and after the context."""
        load = self.prepared.inputs.profile.background
        with host.apply_load(load.memory, load.cpu, load.disk_read) as background:
            self._observe_conditions(soak_plan)
            try:
                yield
            finally:
                self.phase("")
            self._observe_conditions(soak_plan)
            for fault in background.faults():
                self.observe(EventKind.LOAD_DIED, {"soak": soak_plan.name, "because": fault})

    def _observe_conditions(self, soak_plan: SoakPlan) -> None:
        facts = host.facts()
        self.observe(EventKind.CONDITIONS, {"soak": soak_plan.name, "segment": self.segment, "facts": facts})

    def end(self, verdict: Callable[[], Verdict]) -> None:
        """Record what is known once all is measured: models that changed, and earlier tries; then end the telemetry."""
        self.observe(EventKind.STAGE, {"stage": "judge"})
        for name in changed_models(self.prepared.inputs, self.prepared.manifest):
            self.observe(EventKind.ARTIFACT_CHANGED, {"model": name})
        self.observe(EventKind.TRIES, tries.earlier_tries(self.directory, self.prepared.manifest, self.slo))
        self.telemetry.close(verdict)

    def stage_done(self, name: str) -> None:
        """Bring the records of the stage *name* to the disk, and send them to the collector."""
        self.events.sync()
        if self._samples is not None:
            self._samples.sync()
        self.telemetry.stage(name)

    def read_records(self, names: Iterable[str], kind: TypeAdapter[Kind]) -> list[Kind]:
        """Return the records of finished files."""
        files = (record_files.read_records(self.directory.path / name, kind) for name in names)
        return [record for file in files for record in file.records]

    def phase(self, name: str, stretch: int = 0) -> None:
        """Name the phase of the host samples that follow; counters are never compared across a break in a segment."""
        if self._sampler is not None:
            self._sampler.segment = host_segment(self.segment, stretch)
            self._sampler.phase = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.close()


@contextmanager
def ending_after(seconds: float | None, message: str, hint: str) -> Iterator[None]:
    """Raise OutOfTimeError of *message* in the context after *seconds*, whatever it waits for; None: never.

    As Ctrl-C does, it cuts off the answer under way, which is then not recorded. Only the main thread may enter it.
    """
    if seconds is None:
        yield
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError(message, hint=hint)

    # A signal of its own: it wakes the main thread from any wait, and Ctrl-C may be switched off.
    before = signal.signal(signal.SIGUSR1, end)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), signal.pthread_kill, (main, signal.SIGUSR1))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)
