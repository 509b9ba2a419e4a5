"""The whole job: freeze, sweep, soak, judge, then promote or grade back; each step is stored and can be resumed."""

import json
import secrets
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.analysis.plan import settings
from gatekeeper.analysis.plan import sweep_plan as planning
from gatekeeper.analysis.plan.settings import PLAIN
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.conclude import conclude
from gatekeeper.analysis.verdict.host_checks import host_segment
from gatekeeper.analysis.verdict.sweep_result import sweep_choices
from gatekeeper.core import inputs, run_directory
from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import seed_of, sha256
from gatekeeper.core.records import RECORDED_ELSEWHERE, Event, Generation, HostSample, Setting, setting
from gatekeeper.core.slo import CHOSEN, Slo
from gatekeeper.core.verdict import Verdict
from gatekeeper.report import certificate, junit, verdict_json
from gatekeeper.report.certificate import CERTIFICATE
from gatekeeper.report.data.page import page_data
from gatekeeper.report.html import page
from gatekeeper.report.otel import LiveExport
from gatekeeper.run.after_soak import Following, follow
from gatekeeper.run.load import SAMPLE_S, judge, load_case
from gatekeeper.run.prepare import Prepared, as_frozen, frozen_artifacts, outlook, prepare, takes_real_time
from gatekeeper.run.requests import Desk
from gatekeeper.run.stages.promote import POLICY, promote
from gatekeeper.run.stages.soak import Soak, soak
from gatekeeper.run.stages.sweep import sweep
from gatekeeper.run.verify import certificate_of


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run ends in."""

    verdict: Verdict
    text: str
    """The content of verdict.json."""
    path: Path
    promoted: bool
    """policy.toml was written."""
    telemetry: str | None = None
    """Why the collector does not have all of the run's telemetry, if somebody asked for it."""


def default_path(slo_name: str, now: datetime) -> Path:
    """Return where a run goes that was given no place."""
    return Path("runs") / f"{now:%Y-%m-%dT%H%MZ}-{slo_name}-{secrets.token_hex(2)}"


def certify(slo_path: Path, out: Path | None, *, resume: bool, observers: Sequence[Observer]) -> Finished:
    """Run the whole job into *out*, or go on with the run that lies there."""
    if resume and out is not None and (out / run_directory.SUMS).is_file():
        verdict = judge(out)
        return Finished(verdict, verdict_json.render(verdict), out, (out / POLICY).is_file())
    with ExitStack() as stack:
        return _open_run(stack, slo_path, out, observers, resume=resume).finish()


def sweep_alone(slo_path: Path, out: Path | None, *, observers: Sequence[Observer]) -> dict[str, Any]:
    """Run the sweep into a run directory and return what it would choose, per workload."""
    with ExitStack() as stack:
        run = _open_run(stack, slo_path, out, observers, resume=False)
        choices = run.sweep_only()
        found = {name: choice.document() for name, choice in choices.items()}
        return {"schema": 1, "slo": run.slo.name, "run": str(run.directory.path), "workloads": found}


def soak_alone(
    slo_path: Path, out: Path | None, *, knobs: Mapping[str, Any], observers: Sequence[Observer]
) -> Finished:
    """Soak the SLO's default setting, with *knobs* turned, and judge that alone: no sweep, no ladder, no policy."""
    with ExitStack() as stack:
        return _open_run(stack, slo_path, out, observers, resume=False, knobs=knobs).finish()


def _open_run(
    stack: ExitStack,
    slo_path: Path,
    out: Path | None,
    observers: Sequence[Observer],
    *,
    resume: bool,
    knobs: Mapping[str, Any] | None = None,
) -> "_Run":
    given = inputs.read(slo_path)
    fixed = None if knobs is None else fixed_setting(given.slo, knobs)
    if resume:
        if out is None:
            raise InputError("--resume needs --out RUN_DIR", hint="name the folder of the run to go on with")
        directory = run_directory.RunDirectory.open(out, resume=True)
        stack.callback(directory.close)
        remark = _occupy(stack, given, out)
        ready = as_frozen(prepare(given, out / "logs", refuse=False), directory)
        if not (directory.path / "plan.json").is_file():  # killed between the two first files
            directory.write("plan.json", _json(planning.plan_document(given.slo, ready.plan)))
        return _Run(ready, directory, observers, remark)
    # Nothing is written before the promises were found provable.
    path = out or default_path(given.slo.name, SystemClock().wall())
    remark = _occupy(stack, given, path)
    ready = prepare(given, path / "logs", fixed=fixed)
    directory = run_directory.RunDirectory.open(path, resume=False)
    stack.callback(directory.close)
    for name, text in given.texts.items():
        directory.write(name, text)
    directory.write("manifest.json", ready.text)
    directory.write("plan.json", _json(planning.plan_document(given.slo, ready.plan)))
    return _Run(ready, directory, observers, remark)


def _occupy(stack: ExitStack, given: inputs.Inputs, path: Path) -> str | None:
    """Hold the host until the run has ended, if it measures a real clock; return what has to be said of the lock."""
    return stack.enter_context(host.occupied(path.absolute().name)) if takes_real_time(given) else None


def fixed_setting(slo: Slo, knobs: Mapping[str, Any]) -> Setting:
    """Return the SLO's default setting with *knobs* turned; refuse a knob that is not one."""
    for knob in knobs:
        if knob not in CHOSEN:
            raise InputError(f"--set {knob}: not a knob of a setting", hint=did_you_mean(knob, CHOSEN))
    turned = {**settings.defaults(slo), **knobs}
    if turned.get("draft") not in {None, *slo.subject.drafts}:
        raise InputError(
            f"--set draft: '{turned['draft']}' is not one of subject.drafts",
            hint=did_you_mean(str(turned["draft"]), slo.subject.drafts),
        )
    return settings.chosen_of(setting(**turned)) if turned.get("draft") is not None else PLAIN


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


class _Run:
    """One process's share of a run: from where the records end to the verdict."""

    def __init__(
        self,
        ready: Prepared,
        directory: run_directory.RunDirectory,
        observers: Sequence[Observer],
        remark: str | None,
    ) -> None:
        self.ready, self.directory = ready, directory
        self._remark = remark
        self.slo, self.backend = ready.inputs.slo, ready.backend
        self._observers = observers
        self._open = ExitStack()
        self._events = directory.events()
        self._open.callback(self._events.close)
        self.segment = 1 + max((one.detail.get("segment", 0) for one in self._events.records), default=-1)
        self._sampler: host.Sampler | None = None
        self._telemetry = LiveExport(directory.path, self.slo.telemetry, self.observe)
        self._desk: Desk | None = None

    def observe(self, kind: str, detail: dict[str, Any]) -> None:
        """Tell every observer; events.jsonl keeps what no record file has."""
        event = Event(stamp(self.backend.clock.wall()), kind, detail)
        if kind not in RECORDED_ELSEWHERE:
            self._events(event)
        for observer in self._observers:
            observer(event)

    def finish(self) -> Finished:
        """Do what is missing, then judge and promote."""
        with self._open:
            if not self._events.finished:
                self._begin()
                try:
                    self._measure()
                    self.observe("stage", {"stage": "judge"})
                    self._check_artifacts()
                    self._telemetry.close(lambda: conclude(self._load()).verdict)
                except KeyboardInterrupt:
                    self.observe("interrupted", {"segment": self.segment})
                    raise
                self._events.finish()
            case = self._load()
            return self._publish(case, conclude(case).verdict)

    def sweep_only(self) -> Mapping[str, Choice]:
        """Run the sweep and return what it chooses."""
        with self._open:
            self._begin(alone="sweep")
            with Desk(self.backend, self.observe, self.segment) as desk, host.keep_awake():
                self._sweep(desk)
            self._telemetry.close()
            self._events.finish()
            return sweep_choices(self._load(live=True))[0]

    def _load(self, *, live: bool = False) -> Case:
        ready = self.ready
        return load_case(self.directory, ready.inputs, ready.manifest, ready.text, live=live)

    def _begin(self, *, alone: str | None = None) -> None:
        self.observe("begin", {"segment": self.segment, "run": str(self.directory.path)} | outlook(self.ready, alone))
        for doubt in self.ready.manifest.doubts:
            self.observe("doubt", {"because": doubt})
        if self._remark is not None:
            self.observe("warning", {"about": "the host", "because": self._remark})
        for complaint in self.ready.complaints:
            self.observe("warning", {"about": complaint.about, "because": complaint.message})
        self._telemetry.begin()

    def _measure(self) -> None:
        samples = self.directory.samples()
        self._open.callback(samples.close)
        desk = self._open.enter_context(Desk(self.backend, self.observe, self.segment))
        with self._sampling(desk, samples), host.keep_awake():
            self._sweep(desk)
            self._telemetry.stage("sweep")
            following = Following(self.ready.inputs, self.backend, self.directory, self.segment, self.observe)
            while needs := self._needs():
                for leg in needs:
                    self._soak(leg, desk)
                    follow(following, leg, self._load(live=True))
                    self._telemetry.stage(leg.name)
            desk.close()
        if self._sampler is not None and self._sampler.fault is not None:
            self.observe("sampler_died", {"because": self._sampler.fault})
        samples.finish()

    def _needs(self) -> Sequence[SoakPlan]:
        return conclude(self._load(live=True)).needs

    @contextmanager
    def _sampling(self, desk: Desk, samples: run_directory.Appender[HostSample]) -> Iterator[None]:
        def keep(sample: HostSample) -> None:
            samples(sample)
            self.observe("sample", {"values": sample.values})

        self._sampler = host.Sampler(
            None, clock=self.backend.clock, pids=desk.pids, record=keep, interval=SAMPLE_S, phase=""
        )
        with self._sampler:
            yield

    def _phase(self, name: str, stretch: int = 0) -> None:
        # Host counters are never compared across a break, be it a resumed run or the plain block midway.
        if self._sampler is not None:
            self._sampler.segment = host_segment(self.segment, stretch)
            self._sampler.phase = name

    def _sweep(self, desk: Desk) -> None:
        plan = self.ready.plan
        files = {trial.name: self.directory.answers(trial.file) for trial in plan.trials}
        for file in files.values():
            self._open.callback(file.close)
        if all(file.finished for file in files.values()):
            return
        self.observe("stage", {"stage": "sweep", "settings": len(plan.trials)})

        def record(made: Generation) -> None:
            files[made.trial](made)

        before = {name: tuple(file.records) for name, file in files.items()}
        sweep(self.slo, plan, desk, record=record, before=before, observe=self.observe)
        for file in files.values():
            file.finish()

    def _soak(self, leg: SoakPlan, desk: Desk) -> None:
        given = self.ready.inputs
        file = self.directory.answers(leg.file)
        self._open.callback(file.close)
        if file.finished:
            return
        self.observe(
            "stage", {"stage": "soak", "soak": leg.name, "settings": {n: dict(k) for n, k in leg.settings.items()}}
        )
        task = Soak(
            slo=self.slo,
            name=leg.name,
            settings=leg.settings,
            resident=leg.resident,
            canaries=given.canaries,
            profile=given.profile,
            woven=self.backend.shares_process and self.slo.soak.concurrency == 1,
            seed=seed_of(self.ready.sha256),
            segment=self.segment,
            before=tuple(file.records),
        )
        desk.close()  # a soak begins with a fresh process: what the sweep left in memory is not its own
        load = given.profile.background
        with host.background(load.memory, load.cpu, load.disk_read) as beside:
            self._conditions(leg.name)
            try:
                soak(
                    task,
                    desk,
                    lambda: Desk(self.backend, self.observe, self.segment),
                    self.backend.clock,
                    record=file,
                    phase=self._phase,
                    observe=self.observe,
                )
            finally:
                self._phase("")
            self._conditions(leg.name)
            for fault in beside.faults():
                self.observe("load_died", {"soak": leg.name, "because": fault})
        desk.close()
        file.finish()

    def _conditions(self, soak: str) -> None:
        self.observe("conditions", {"soak": soak, "segment": self.segment, "facts": host.conditions()})

    def _check_artifacts(self) -> None:
        """Hash the artifacts again: what was judged is what ships."""
        _, target, drafts, _ = frozen_artifacts(self.ready.inputs, afresh=True)
        then = (self.ready.manifest.target, *self.ready.manifest.drafts)
        for before, after in zip(then, (target, *drafts), strict=True):
            if before is not None and after is not None and before.digest != after.digest:
                self.observe("artifact_changed", {"model": before.name})

    def _publish(self, case: Case, verdict: Verdict) -> Finished:
        text = verdict_json.render(verdict)
        self.directory.write("verdict.json", text)
        now = self.backend.clock.wall()
        whole = self.ready.plan.fixed is None  # a soak alone promotes nothing
        wrote = whole and promote(self.slo, verdict, verdict_sha256=sha256(text), now=now, write=self.directory.write)
        if wrote:
            policy = tomllib.loads(self.directory.read(POLICY).decode())
            document = certificate_of(self.directory, self.ready.manifest, verdict, policy)
            self.directory.write(CERTIFICATE, certificate.render(document))
        self.directory.write("junit.xml", junit.render(verdict))
        told = page_data(
            case,
            verdict,
            self._events.records,
            finished=True,
            manifest=self.ready.manifest.model_dump(mode="json", by_alias=True),
            policy=self.directory.read(POLICY).decode() if wrote else None,
        )
        self.directory.write("report.html", page.render(told))
        self.directory.seal()
        for observer in self._observers:
            observer(Event(stamp(now), "verdict", {"outcome": verdict.outcome, "exit_code": verdict.exit_code}))
        return Finished(verdict, text, self.directory.path, wrote, self._telemetry.trouble)
