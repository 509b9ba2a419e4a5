"""`gatekeeper certify`: prepare, sweep, soak, judge and publish; every step is stored, so a run can be resumed."""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from gatekeeper import host
from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.verdict.case import compared_in_sweep
from gatekeeper.analysis.verdict.sweep_result import SweepConclusion, sweep_conclusion
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import EventKind, Generation
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.system.record_files import ANSWERS, RecordWriter
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.finished_run import open_extended, reopen, verify_finished
from gatekeeper.run.follow_ups import follow_soak
from gatekeeper.run.open_run import RunRequest, open_new, open_stored
from gatekeeper.run.plan import soak_outlook
from gatekeeper.run.publish import Finished, publish
from gatekeeper.run.requests import Client
from gatekeeper.run.run_sweep import run_sweep, sweep_once_more
from gatekeeper.run.stages.soak import soak


def certify(request: RunRequest) -> Finished:
    """Make a whole run."""
    with ExitStack() as stack:
        return _run_to_end(open_new(stack, request, compared=True))


def resume(request: RunRequest) -> Finished:
    """Continue a run: one that has measured nothing yet begins anew, and a finished one is verified.

    One that ended with its sweep, because plain decoding had no one speed, measures its baseline once more.
    """
    inputs, out = read_inputs(request.slo), request.out
    if out is None:
        raise InputError("--resume needs --output RUN_DIR", hint="name the directory of the run to continue")
    if RunDirectory(out).is_finished():
        finished = verify_finished(request.slo, inputs, out)
        if not finished.verdict.ended_with_sweep:
            return finished
    if RunDirectory.nothing_measured(out):
        return certify(request)
    with ExitStack() as stack:
        run = open_stored(stack, inputs, out, request.observers)
        if run.directory.is_finished():
            reopen(run, EventKind.CONTINUED)
        return _run_to_end(run)


def extend(request: RunRequest, seconds: float) -> Finished:
    """Continue the soaks of a finished, unproven run for *seconds*."""
    with ExitStack() as stack:
        return _run_to_end(open_extended(stack, request, seconds))


def soak_alone(request: RunRequest, *, knobs: Mapping[str, Any]) -> Finished:
    """Soak the SLO's default setting, changed by *knobs*, and judge only that: no sweep, no ladder, no policy."""
    with ExitStack() as stack:
        return _run_to_end(open_new(stack, request, knobs=knobs))


def sweep_alone(request: RunRequest) -> SweepConclusion:
    """Make the sweep in a run directory and return what it would choose, per workload."""
    with ExitStack() as stack:
        run = open_new(stack, request)
        run.begin(alone="sweep")
        weighs = run.slo.sweep.prefer == "energy"
        with run.measuring(), run.client() as client, run.sampling(client) if weighs else host.keep_awake():
            run_sweep(run, client)
        run.telemetry.close()
        run.events.finish()
        return sweep_conclusion(run.case(live=True), run.directory.path)


def _run_to_end(run: ActiveRun) -> Finished:
    """Measure what is missing, then judge and publish."""
    if run.events.finished and conclude(run.case()).verdict.incomplete:
        run.events.reopen()  # a run killed while it published, whose records were damaged since
    if not run.events.finished:
        run.begin()
        with run.measuring():
            _measure(run)
            run.end(lambda: conclude(run.case()).verdict)
        run.events.finish()
    return publish(run)


def _measure(run: ActiveRun) -> None:
    """Sweep, then soak what is due, until nothing is: a broken objective makes the next fallback step due."""
    with run.client() as client, run.sampling(client):
        run_sweep(run, client)
        run.stage_done("sweep")
        while (due := _due(run)) or sweep_once_more(run, client):
            for due_soak in due:
                _soak(run, due_soak, client)
                follow_soak(run, due_soak.plan, client)
                run.stage_done(due_soak.plan.name)
        client.close()


@dataclass(frozen=True, slots=True)
class DueSoak:
    """A soak that the records so far call for."""

    plan: SoakPlan
    expected: Mapping[str, float]
    """The forecast of its stages in seconds."""
    compared: Mapping[str, Collection[str]]
    """The canaries whose words the sweep compared, by workload."""


def _due(run: ActiveRun) -> list[DueSoak]:
    """Return the soaks that are due; the case is read anew each time and not kept: its memory is the machine's."""
    case = run.case(live=True)
    conclusion = conclude(case)
    answers = [answer for recorded in case.sweep.values() for answer in recorded.records]
    return [
        DueSoak(soak_plan, soak_outlook(run.prepared, soak_plan, answers), compared_in_sweep(case, soak_plan))
        for soak_plan in conclusion.needs
    ]


def _soak(run: ActiveRun, due: DueSoak, client: Client) -> None:
    plan = due.plan
    file = run.writer(plan.file, ANSWERS)
    if file.finished:
        return
    if plan.part > 1:  # its clock starts anew; its process goes on, where it still runs, as warm as it is
        run.segment += 1
        client.segment = run.segment
    else:
        client.close()  # a soak begins with a fresh process: memory that the sweep left must not count
        run.note_other_programs(plan.name)
    settings = {name: dict(knobs) for name, knobs in plan.settings.items()}
    run.observe(EventKind.STAGE, {"stage": "soak", "soak": plan.name, "settings": settings, "expected": due.expected})
    run.observe_launch(plan)
    with run.noting_other_programs(plan.name), run.soaking(plan):
        soak(
            run.task(plan, before=_read_answers(run, plan, file), compared=due.compared), run.prepared.inputs.profile,
            client, run.recorder(file, soak=plan.name), plain_client=run.client, clock=run.backend.clock,
            woven=run.backend.shares_process and run.slo.soak.concurrency == 1, phase=run.phase,
        )  # fmt: skip
    file.finish()


def _read_answers(run: ActiveRun, plan: SoakPlan, file: RecordWriter[Generation]) -> tuple[Generation, ...]:
    """Return the answers of a soak so far; only the soak holds them, until it has counted them."""
    return (*run.read_records((part.file for part in plan.earlier), ANSWERS), *file.release())
