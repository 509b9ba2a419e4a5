"""The sweep: plain decoding and every setting on the same canaries, close to each other in time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby

from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.sweep_plan import Block, SweepPlan, Trial
from gatekeeper.analysis.sweep.early_stop import early_stops, wants_answers
from gatekeeper.analysis.sweep.sweep_answers import Stop, sweep_answers
from gatekeeper.core.records import EventKind, Generation, Role
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Client, Observe, Recorder


def sweep(
    slo: Slo, plan: SweepPlan, client: Client, recorder: Recorder, *, before: Mapping[str, Sequence[Generation]]
) -> None:
    """Send every request of the plan that *before* (records by trial) lacks and that was not stopped early.

    Each answer is recorded before the next request. Early stops follow from the records of earlier stretches alone, so
    a resumed sweep leaves out the same requests; a block without a missing answer does not start its process.
    """
    records = {trial.name: list(before.get(trial.name, ())) for trial in plan.trials}
    done = {
        name: {answer.key for answer in answers if answer.role is not Role.WARMUP} for name, answers in records.items()
    }
    warm, planned = set[str](), len(plan.requests)
    recorder.answered, recorder.planned = sum(len(keys) for keys in done.values()), planned

    def note(generation: Generation) -> None:
        recorder(generation)
        records[generation.trial].append(generation)

    for block, requests in _due_requests(slo, plan, records, recorder.observe):
        planned -= len(block.requests) - len(requests)
        recorder.planned = planned
        missing = [request for request in requests if request.key not in done[request.trial]]
        if not missing:
            continue
        detail = {"block": block.name, "resident": dict(block.resident), "answers": len(missing)}
        recorder.observe(EventKind.BLOCK, detail)
        if client.open(block.resident):
            warm.clear()
        cold = [trial for trial in block.trials if trial.name not in warm]
        client.send_all(_warmups(slo, cold, missing), 1, note)
        warm |= {request.trial for request in missing}
        for group in _groups(block, missing):
            client.send_all(iter(group), block.concurrency, note)


def _due_requests(
    slo: Slo, plan: SweepPlan, records: Mapping[str, Sequence[Generation]], observe: Observe
) -> Iterator[tuple[Block, list[PlannedRequest]]]:
    """Yield each block with the requests that were not stopped early; this is decided between two stretches."""
    trials = {trial.name: trial for trial in plan.trials}
    reported = dict[str, Mapping[str, Stop]]()
    for stretch, blocks in groupby(plan.blocks, key=lambda block: block.stretch):
        stops = {
            workload.name: early_stops(sweep_answers(slo, plan, records, workload.name), stretch)
            for workload in slo.workload
        }
        _report_stops(trials, reported, stops, observe)
        for block in blocks:
            wanting = (
                request
                for request in block.requests
                if wants_answers(stops[request.workload], block, trials[request.trial])
            )
            yield block, list(wanting)


def _report_stops(
    trials: Mapping[str, Trial],
    reported: dict[str, Mapping[str, Stop]],
    stops: Mapping[str, Mapping[str, Stop]],
    observe: Observe,
) -> None:
    """Report which trials were stopped since the last look, and why."""
    for workload, now in stops.items():
        for name, stop in now.items():
            if name not in reported.get(workload, {}):
                setting = dict(trials[name].setting)
                observe(EventKind.STOPPED, {"workload": workload, "trial": name, "setting": setting, **asdict(stop)})
        reported[workload] = now


def _groups(block: Block, requests: list[PlannedRequest]) -> Iterator[list[PlannedRequest]]:
    """Split a concurrent block by trial, so that its streams serve one trial at a time."""
    if block.concurrency == 1:
        yield requests
        return
    for trial in block.trials:
        yield [request for request in requests if request.trial == trial.name]


def _warmups(slo: Slo, cold: Sequence[Trial], missing: list[PlannedRequest]) -> Iterator[PlannedRequest]:
    """Warm up each cold trial of a process with its first prompts."""
    for trial in cold:
        first = [request for request in missing if request.trial == trial.name][: slo.sweep.warmups]
        for request in first:
            yield request.as_warmup()
