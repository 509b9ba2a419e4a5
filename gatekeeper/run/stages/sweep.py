"""The sweep: plain decoding and every setting on the same canaries, close to each other in time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from gatekeeper.analysis.plan.sweep_plan import Block, SweepPlan, SweepRequest, Trial
from gatekeeper.analysis.sweep.early_stop import EarlyStops, early_stops
from gatekeeper.analysis.sweep.sweep_answers import sweep_answers
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Client, Observe, Request, build_request


def sweep(
    slo: Slo,
    plan: SweepPlan,
    client: Client,
    *,
    record: Callable[[Generation], None],
    before: Mapping[str, Sequence[Generation]],
    observe: Observe,
) -> None:
    """Send every request of the plan that *before* (records by trial) lacks and that was not stopped early.

    Each answer is recorded before the next request. Early stops follow from the records of earlier stretches alone, so
    a resumed sweep leaves out the same requests; a block without a missing answer does not start its process.
    """
    seen = {trial.name: list(before.get(trial.name, ())) for trial in plan.trials}
    done = {name: {one.key for one in many if one.role is not Role.WARMUP} for name, many in seen.items()}
    answered, warm = sum(len(keys) for keys in done.values()), set[str]()
    progress = {"answered": answered, "of": len(plan.requests)}

    def note(made: Generation) -> None:
        progress["answered"] += made.role is not Role.WARMUP
        record(made)
        seen[made.trial].append(made)
        observe("answer", {"generation": made, **progress})

    for block, wanted in _wanted(slo, plan, seen, observe):
        progress["of"] -= len(block.requests) - len(wanted)
        missing = [step for step in wanted if step.key not in done[step.trial.name]]
        if not missing:
            continue
        observe("block", {"block": block.name, "resident": dict(block.resident), "answers": len(missing)})
        if client.open(block.resident):
            warm.clear()
        cold = [trial for trial in block.trials if trial.name not in warm]
        client.send_all(_warmups(slo, cold, missing), 1, note)
        warm |= {step.trial.name for step in missing}
        for group in _groups(block, missing):
            requests = (_request(slo, step, block.concurrency) for step in group)
            client.send_all(requests, block.concurrency, note)


def _wanted(
    slo: Slo, plan: SweepPlan, seen: Mapping[str, Sequence[Generation]], observe: Observe
) -> Iterator[tuple[Block, list[SweepRequest]]]:
    """Yield each block with the requests that were not stopped early; this is decided between two stretches."""
    known = dict[str, EarlyStops]()
    for stretch, blocks in groupby(plan.blocks, key=lambda block: block.stretch):
        found = {one.name: early_stops(sweep_answers(slo, plan, seen, one.name), stretch) for one in slo.workload}
        _report_stops(plan, known, found, observe)
        for block in blocks:
            yield block, [step for step in block.requests if found[step.workload].wants(block, step.trial)]


def _report_stops(
    plan: SweepPlan, known: dict[str, EarlyStops], found: Mapping[str, EarlyStops], observe: Observe
) -> None:
    """Report which trials were stopped since the last look, and why."""
    settings = {trial.name: dict(trial.setting) for trial in plan.trials}
    for workload, now in found.items():
        before = known[workload].stops if workload in known else {}
        for trial, stop in now.stops.items():
            if trial not in before:
                detail = {"workload": workload, "trial": trial, "setting": settings[trial], **stop.document()}
                observe("stopped", detail)
        known[workload] = now


def _groups(block: Block, steps: list[SweepRequest]) -> Iterator[list[SweepRequest]]:
    """Split a concurrent block by trial, so that its streams serve one trial at a time."""
    if block.concurrency == 1:
        yield steps
        return
    for trial in block.trials:
        yield [step for step in steps if step.trial is trial]


def _warmups(slo: Slo, cold: Sequence[Trial], missing: list[SweepRequest]) -> Iterator[Request]:
    """Warm up each cold trial of a process with its first prompts; these records are labelled and never judged."""
    for trial in cold:
        mine = [step for step in missing if step.trial is trial][: slo.sweep.warmups]
        for step in mine:
            yield _request(slo, step, 1, warmup=True)


def _request(slo: Slo, step: SweepRequest, concurrency: int, *, warmup: bool = False) -> Request:
    return build_request(
        slo,
        step.trial.name,
        f"warmup:{step.pair}" if warmup else step.pair,
        step.workload,
        step.canary,
        step.trial.arm,
        step.trial.setting,
        Role.WARMUP if warmup else Role.MEASURED,
        repeat=step.repeat,
        pair=step.pair,
        concurrency=concurrency,
    )
