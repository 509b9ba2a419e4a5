"""The sweep of a run: what it lacks is sent, and once more where its baseline had no one speed."""

from collections.abc import Mapping, Sequence

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.metrics.comparability import MIN_ANSWERS, after_slow_start, instability
from gatekeeper.analysis.metrics.paired_answers import successful
from gatekeeper.analysis.plan.sweep_plan import BASELINE, baseline_alone
from gatekeeper.core.records import EventKind, Generation
from gatekeeper.core.system.record_files import ANSWERS, EVENTS
from gatekeeper.core.system.run_directory import EVENTS_FILE
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.busy_sweep import BusySweep
from gatekeeper.run.requests import Client
from gatekeeper.run.stages.sweep import sweep
from gatekeeper.run.stored.load import AGAIN

ASIDE = ".aside-"
"""Ends, with a number, the name of a record file of a sweep that was given up: it is kept, and counts for nothing."""


def run_sweep(run: ActiveRun, client: Client) -> None:
    """Send what the sweep lacks; the record files of one that was given up are set aside first."""
    plan = run.prepared.plan
    for event in run.read_records([EVENTS_FILE], EVENTS):
        if event.kind != EventKind.BASELINE_AGAIN or not event.detail["set_aside"]:
            continue
        for trial in plan.trials:
            run.directory.set_aside(trial.file, f"{ASIDE}{int(event.detail['attempt'])}")
    files = {trial.name: run.writer(trial.file, ANSWERS) for trial in plan.trials}
    if all(file.finished for file in files.values()):
        return
    run.observe(EventKind.STAGE, {"stage": "sweep", "settings": len(plan.trials)})

    busy = BusySweep(run)

    def record(generation: Generation) -> None:
        files[generation.trial](generation)
        busy.take(generation)

    before = {name: file.release() for name, file in files.items()}
    with run.noting_other_programs():
        sweep(run.slo, plan, client, run.recorder(record), before=before)
    for file in files.values():
        file.finish()


def sweep_once_more(run: ActiveRun, client: Client) -> bool:
    """Measure the baseline of a sweep that it could not be compared with once more; tell whether all was swept again.

    All is, where the baseline has one speed now in a workload: a ratio needs both arms close in time. It is tried once
    after each start of the run.
    """
    if any(run.directory.path.glob("soak-*.jsonl")):
        return False
    verdict = conclude(run.case(live=True)).verdict
    attempt = 1 + sum(event.kind == EventKind.CONTINUED for event in run.read_records([EVENTS_FILE], EVENTS))
    name = f"{BASELINE}-again-{attempt}.jsonl"
    if not verdict.ended_with_sweep or (file := run.writer(name, ANSWERS)).finished:
        return False
    doubts = {
        workload.name: workload.choice.doubt
        for workload in verdict.workloads
        if workload.choice is not None and workload.choice.doubt is not None
    }
    run.observe(
        EventKind.WARNING,
        {"about": "the sweep", "because": f"{_list_reasons(doubts)}; the baseline is measured once more"},
    )
    run.observe(EventKind.STAGE, {"stage": "sweep"})
    before = {BASELINE: file.release()}
    with run.noting_other_programs(AGAIN):
        sweep(run.slo, baseline_alone(run.prepared.plan), client, run.recorder(file), before=before)
    file.finish()
    answers = run.read_records([name], ANSWERS)
    by_workload = {workload: [answer for answer in answers if answer.workload == workload] for workload in doubts}
    unsteady = {workload: reason for workload, plain in by_workload.items() if (reason := _unsteadiness(plain))}
    steady = len(unsteady) < len(doubts)
    because = _list_reasons(doubts if steady else unsteady)
    run.observe(EventKind.BASELINE_AGAIN, {"attempt": attempt, "set_aside": steady, "because": because})
    if steady:
        run.events.sync()
        run_sweep(run, client)
    run.stage_done("sweep")
    return steady


def _unsteadiness(plain: Sequence[Generation]) -> str | None:
    """Return why plain decoding is not known to have one speed; None where it is."""
    if len(successful(plain)) < MIN_ANSWERS:
        return f"fewer than {MIN_ANSWERS} answers, which show no speed"
    return instability(after_slow_start(plain))


def _list_reasons(reasons: Mapping[str, str | None]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
