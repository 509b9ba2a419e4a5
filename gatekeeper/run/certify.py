"""`gatekeeper certify`: prepare, sweep, soak, judge and publish; every step is stored, so a run can be resumed."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gatekeeper import host
from gatekeeper.analysis.passes import PASSES
from gatekeeper.analysis.plan import sweep_plan
from gatekeeper.analysis.plan.settings import PLAIN, chosen_of, defaults
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict import admission
from gatekeeper.analysis.verdict.case import compared_in_sweep
from gatekeeper.analysis.verdict.conclude import conclude
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.analysis.verdict.sweep_result import sweep_conclusion
from gatekeeper.core import toml_file
from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import ExitCode, InputError, NoProofError, did_you_mean
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.manifest import sha256
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import Event, Generation, Setting, setting
from gatekeeper.core.slo import CHOSEN, ChosenKnobs, Slo
from gatekeeper.core.system import inputs, record_files, run_directory
from gatekeeper.core.text import json_text
from gatekeeper.report import junit, verdict_json
from gatekeeper.report.attestation.certificate import CERTIFICATE, TRIES
from gatekeeper.report.attestation.chain import CHAIN
from gatekeeper.report.data.decision import Decision, decide
from gatekeeper.report.data.page import page_data
from gatekeeper.report.html import page
from gatekeeper.run import try_count, verify
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.after_soak import after_soak, compare_routes, explore_regions
from gatekeeper.run.certified_baseline import find_baseline
from gatekeeper.run.certified_figures import CERTIFIED_NAME
from gatekeeper.run.load import fixed_in
from gatekeeper.run.plan import soak_outlook
from gatekeeper.run.prepare import prepare, takes_real_time
from gatekeeper.run.requests import Client
from gatekeeper.run.stages.freeze import freeze_models
from gatekeeper.run.stages.promote import POLICY, promote
from gatekeeper.run.stages.soak import soak
from gatekeeper.run.stages.sweep import sweep

NOT_GIVEN = frozenset({Reason.OTHER_SLO, Reason.OTHER_INPUTS, Reason.OTHER_ARTIFACTS, Reason.NO_ARTIFACTS})
"""Why a finished run is not of what was given: the user's input, not the evidence, is wrong."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a run."""

    decision: Decision
    text: str
    """The content of verdict.json."""
    path: Path
    promoted: bool
    """Whether policy.toml was written."""
    telemetry: str | None = None
    """Why the collector does not have all telemetry of the run; None where it has, or none is configured."""
    tries: str | None = None
    """Why the record of tries on this host is not complete; None where it is."""

    @property
    def verdict(self) -> Verdict:
        """Return the verdict that was decided."""
        return self.decision.verdict


def certify(
    slo_path: Path,
    out: Path | None,
    *,
    resume: bool = False,
    extend: float | None = None,
    baseline: str | None = None,
    observers: Sequence[Observer],
) -> Finished:
    """Make a whole run in *out*, or continue the one that is there; *extend* gives a finished one seconds of soak.

    *baseline* names the certified run that objectives compare this one with; None: the newest one beside *out*.
    """
    if extend is not None:
        return _extended(slo_path, out, extend, observers)
    if resume and out is not None and run_directory.RunDirectory(out).is_finished():
        return _finished(slo_path, out)
    with ExitStack() as stack:
        return _run_to_end(_open(stack, slo_path, out, observers, resume=resume, baseline=baseline, whole=True))


def _extended(slo_path: Path, out: Path | None, seconds: float, observers: Sequence[Observer]) -> Finished:
    """Continue the soaks of a finished, unproven run for *seconds*; what it measured counts together with the rest."""
    if out is None or not run_directory.RunDirectory(out).is_finished():
        raise InputError(
            "--extend continues a finished run, which --output names",
            hint="an unfinished run is continued with --resume",
        )
    before = _finished(slo_path, out).verdict
    if before.exit_code != ExitCode.UNPROVEN:
        raise InputError(
            f"{out} is decided: {before.outcome}", hint="only an unproven run can be extended; start a new run"
        )
    with ExitStack() as stack:
        run = _open(stack, slo_path, out, observers, resume=True)
        allowed = run.soaked() + seconds
        if not any(one.part > 1 for one in conclude(replace(run.case(), extended=allowed)).needs):
            raise InputError(
                f"{out}: a longer soak would not decide this run",
                hint='it helps where a required workload is open by an interval alone, unless until = "duration"',
            )
        run.directory.remove(run_directory.CHECKSUMS)  # from here on it is an unfinished run
        run.events.reopen()
        run.observe("extended", {"soak_seconds": allowed})
        return _run_to_end(run)


def _finished(slo_path: Path, out: Path) -> Finished:
    """Return the result of the finished run in *out*, verified as the deploy gate does against what is given now.

    Raise InputError where the run is not of this SLO, these canaries and these models, NoProofError where its evidence,
    its policy or its certificate was changed, or where it has expired.
    """
    given = inputs.read(slo_path)
    try:
        run, promoted = _verified(given, run_directory.RunDirectory(out))
    except NoProofError as error:
        message = f"{out} holds a finished run: {error.message}"
        if error.reason in NOT_GIVEN:
            hint = "give what the run was made of, or start a new run: remove --resume and choose another --output"
            raise InputError(message, hint=hint) from error
        raise NoProofError(error.reason, message, hint=error.next(slo_path, out)) from error
    policy = (out / POLICY).read_text(encoding="utf-8", errors="replace") if promoted else None
    # A run that was killed after its checksums is not in the record yet.
    gap = try_count.add_run(run.directory, run.manifest, run.slo, run.verdict.exit_code)
    text = verdict_json.render(run.verdict)
    return Finished(decide(run.verdict, policy=policy), text, out, promoted, tries=gap)


def _verified(given: inputs.Inputs, directory: run_directory.RunDirectory) -> tuple[verify.VerifiedRun, bool]:
    """Verify a finished run, and tell whether it has a policy: an unproven run and a soak alone have none."""
    manifest, frozen = verify.read_frozen(directory)
    verify.check_slo(frozen, given.slo)
    admission.same_subject(manifest, verify.present_now(given))
    verify.check_sums(directory)
    run = verify.judge_again(directory, manifest)
    alone = fixed_in(directory) is not None and not (directory.path / POLICY).exists()
    if alone or run.verdict.exit_code == ExitCode.UNPROVEN:
        return run, False
    verify.check_host(run)
    issued = verify.check_published(run).issued
    until = admission.expiry(issued=issued, ended=run.ended, valid_for=given.slo.promote.valid_for, max_age=None)
    if takes_real_time(given):  # a simulated run expires in its own time
        admission.in_time(until, issued, SystemClock().wall())
    return run, True


def sweep_alone(slo_path: Path, out: Path | None, *, observers: Sequence[Observer]) -> dict[str, Any]:
    """Make the sweep in a run directory and return what it would choose, per workload."""
    with ExitStack() as stack:
        run = _open(stack, slo_path, out, observers, resume=False)
        run.begin(alone="sweep")
        with run.measuring(), run.client() as client, host.keep_awake():
            _sweep(run, client)
        run.telemetry.close()
        run.events.finish()
        return sweep_conclusion(run.case(live=True)) | {"run": str(run.directory.path)}


def soak_alone(
    slo_path: Path, out: Path | None, *, knobs: Mapping[str, Any], observers: Sequence[Observer]
) -> Finished:
    """Soak the SLO's default setting, changed by *knobs*, and judge only that: no sweep, no ladder, no policy."""
    with ExitStack() as stack:
        return _run_to_end(_open(stack, slo_path, out, observers, resume=False, knobs=knobs))


def _open(
    stack: ExitStack,
    slo_path: Path,
    out: Path | None,
    observers: Sequence[Observer],
    *,
    resume: bool,
    knobs: Mapping[str, Any] | None = None,
    baseline: str | None = None,
    whole: bool = False,
) -> ActiveRun:
    """Prepare a run and open its directory; nothing is written before it is known that the objectives can be proven."""
    given = inputs.read(slo_path)
    fixed = None if knobs is None else fixed_setting(given.slo, knobs)
    if resume and out is None:
        raise InputError("--resume needs --output RUN_DIR", hint="name the directory of the run to continue")
    path = out or run_directory.RUNS / run_directory.new_run_id(given.slo.name, SystemClock().wall())
    run_directory.check_writable(path)
    resume = resume and not run_directory.RunDirectory.nothing_measured(path)
    directory = _directory(stack, path, resume=True) if resume else None
    if directory is not None:
        with run_directory.unreadable_as_no_proof(path):
            inputs.load_manifest(directory.read(run_directory.MANIFEST))
            fixed = fixed_in(directory)  # a soak alone is continued as one
    against = find_baseline(given.slo, baseline, path.parent) if whole and directory is None else None
    # A run that measures real time locks the host until it has ended.
    hold = host.hold_host(path.absolute().name) if takes_real_time(given) else None
    remark = stack.enter_context(hold) if hold is not None else None
    prepared = prepare(given, path / "logs", measuring=not resume, fixed=fixed, stored=directory, certified=against)
    if directory is None:
        directory = _directory(stack, path, resume=False)
        for name, text in given.texts.items():
            directory.write(name, text)
        if against is not None and against.text is not None:
            directory.write(CERTIFIED_NAME, against.text)
        directory.write(
            "plan.json", json_text(sweep_plan.plan_document(given.slo, prepared.plan, (each.stem for each in PASSES)))
        )
        directory.write("manifest.json", prepared.text)  # the last: with it, there is a run to resume
    return stack.enter_context(ActiveRun(prepared, directory, observers, remark))


def _directory(stack: ExitStack, path: Path, *, resume: bool) -> run_directory.RunDirectory:
    directory = run_directory.RunDirectory.open(path, resume=resume)
    stack.callback(directory.close)
    return directory


def fixed_setting(slo: Slo, knobs: Mapping[str, Any]) -> Setting:
    """Return the SLO's default setting, changed by *knobs*; raise InputError for an unknown knob, value or draft."""
    for knob in knobs:
        if knob not in CHOSEN:
            raise InputError(f"--set {knob}: not a knob that --set can change", hint=did_you_mean(knob, CHOSEN))
    try:
        turned = {**defaults(slo), **ChosenKnobs.model_validate(knobs, strict=True).model_dump(exclude_unset=True)}
    except ValidationError as error:
        first = toml_file.distinct_errors(error)[0]
        message, hint = toml_file.describe_error("", "--set", ChosenKnobs, first)
        message = message.replace("--set: line 1: ", "--set ")
        raise InputError(message, hint=hint.replace(" = ", "=") or f"for example --set {first['loc'][0]}=4") from error
    if turned.get("draft") not in {None, *slo.subject.drafts}:
        raise InputError(
            f"--set draft: '{turned['draft']}' is not one of subject.drafts",
            hint=did_you_mean(str(turned["draft"]), slo.subject.drafts),
        )
    return chosen_of(setting(**turned)) if turned.get("draft") is not None else PLAIN


def _run_to_end(run: ActiveRun) -> Finished:
    """Measure what is missing, then judge and publish."""
    if run.events.finished and conclude(run.case()).verdict.incomplete:
        run.events.reopen()  # a run killed while it published, whose records were damaged since
    if not run.events.finished:
        run.begin()
        with run.measuring():
            _measure(run)
            run.observe("stage", {"stage": "judge"})
            _check_models(run)
            run.observe(TRIES, try_count.before(run.directory, run.prepared.manifest, run.slo))
            run.telemetry.close(lambda: conclude(run.case()).verdict)
        run.events.finish()
    return _publish(run)


def _measure(run: ActiveRun) -> None:
    """Sweep, then soak what is due, until nothing is: a broken objective makes the next fallback step due."""
    with run.client() as client, run.sampling(client):
        _sweep(run, client)
        run.stage_done("sweep")
        while due := _due(run):
            for soak_plan, expected, compared in due:
                _soak(run, soak_plan, client, expected, compared)
                after_soak(run, soak_plan, client)
                run.stage_done(soak_plan.name)
        compare_routes(run, client)
        explore_regions(run, client)
        client.close()


def _due(run: ActiveRun) -> list[tuple[SoakPlan, Mapping[str, float], Mapping[str, Collection[str]]]]:
    """Return the soaks that are due, each with its forecast and the canaries whose words the sweep compared.

    No record is kept: their memory is the machine's.
    """
    case = run.case(live=True)
    answered = [one for recorded in case.sweep.values() for one in recorded.records]
    return [
        (one, soak_outlook(run.prepared, one, answered), compared_in_sweep(case, one)) for one in conclude(case).needs
    ]


def _sweep(run: ActiveRun, client: Client) -> None:
    plan = run.prepared.plan
    files = {trial.name: run.writer(trial.file, record_files.ANSWERS) for trial in plan.trials}
    if all(file.finished for file in files.values()):
        return
    run.observe("stage", {"stage": "sweep", "settings": len(plan.trials)})

    def record(made: Generation) -> None:
        files[made.trial](made)

    before = {name: file.release() for name, file in files.items()}
    sweep(run.slo, plan, client, record=record, before=before, observe=run.observe)
    for file in files.values():
        file.finish()


def _soak(
    run: ActiveRun,
    soak_plan: SoakPlan,
    client: Client,
    expected: Mapping[str, float],
    compared: Mapping[str, Collection[str]],
) -> None:
    file = run.writer(soak_plan.file, record_files.ANSWERS)
    if file.finished:
        return
    if soak_plan.part > 1:  # its clock starts anew; its process goes on, where it still runs, as warm as it is
        run.begin_segment(client)
    else:
        client.close()  # a soak begins with a fresh process: memory that the sweep left must not count
    settings = {name: dict(knobs) for name, knobs in soak_plan.settings.items()}
    run.observe("stage", {"stage": "soak", "soak": soak_plan.name, "settings": settings, "expected": expected})
    run.observe_launch(soak_plan)
    profile = run.prepared.inputs.profile
    load = profile.background
    with host.apply_load(load.memory, load.cpu, load.disk_read) as background:
        _conditions(run, soak_plan)
        try:
            soak(
                replace(
                    run.task(
                        soak_plan,
                        (
                            *run.recorded((part.file for part in soak_plan.earlier), record_files.ANSWERS),
                            *file.release(),
                        ),
                    ),
                    compared=compared,
                ),
                profile,
                client,
                run.client,
                run.backend.clock,
                woven=run.backend.shares_process and run.slo.soak.concurrency == 1,
                record=file,
                phase=run.phase,
                observe=run.observe,
            )
        finally:
            run.phase("")
        _conditions(run, soak_plan)
        for fault in background.faults():
            run.observe("load_died", {"soak": soak_plan.name, "because": fault})
    file.finish()


def _conditions(run: ActiveRun, soak_plan: SoakPlan) -> None:
    run.observe("conditions", {"soak": soak_plan.name, "segment": run.segment, "facts": host.conditions()})


def _check_models(run: ActiveRun) -> None:
    """Hash the models again, and record which ones changed during the run."""
    now = freeze_models(run.prepared.inputs, afresh=True)
    then = run.prepared.manifest
    for before, after in zip((then.target, *then.drafts), (now.target, *now.drafts), strict=True):
        if before is not None and after is not None and before.digest != after.digest:
            run.observe("artifact_changed", {"model": before.name})


def _publish(run: ActiveRun) -> Finished:
    """Judge the records; write the verdict, the policy where the verdict allows one, the reports and the checksums."""
    case, directory, manifest = run.case(), run.directory, run.prepared.manifest
    verdict = conclude(case).verdict
    text = verdict_json.render(verdict)
    directory.write("verdict.json", text)
    now = run.backend.clock.wall()
    whole = run.prepared.plan.fixed is None  # a soak alone promotes nothing
    events = record_files.read_records(directory.path / run_directory.EVENTS_FILE, record_files.EVENTS).records
    wrote = whole and promote(
        run.slo, verdict, manifest, events, verdict_sha256=sha256(text), now=now, write=directory.write
    )
    if not wrote:  # killed between these files, and resumed to another verdict
        directory.remove(POLICY)
        directory.remove(CHAIN)
        directory.remove(CERTIFICATE)
    else:
        policy = tomllib.loads(directory.read(POLICY).decode())
        directory.write(CHAIN, json_text(verify.chain_of(directory, manifest, events)))
        directory.write(CERTIFICATE, json_text(verify.certificate_of(directory, manifest, verdict, policy, events)))
    directory.write("junit.xml", junit.render(verdict))
    shown = page_data(
        case,
        verdict,
        events,
        finished=True,
        manifest=manifest.model_dump(mode="json", by_alias=True),
        policy=directory.read(POLICY).decode() if wrote else None,
    )
    directory.write("report.html", page.render(shown))
    directory.write_checksums()
    gap = try_count.add_run(directory, manifest, run.slo, verdict.exit_code)
    for observer in run.observers:
        observer(Event(stamp(now), "verdict", {"outcome": verdict.outcome, "exit_code": verdict.exit_code}))
    return Finished(shown.decision, text, directory.path, wrote, run.telemetry.trouble, gap)
