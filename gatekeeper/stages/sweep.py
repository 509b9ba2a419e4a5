"""The sweep: plain decoding and every setting on the same canaries, next to each other in time."""

from collections.abc import Callable, Iterator, Mapping

from gatekeeper.desk import Desk, Request
from gatekeeper.terms.records import Generation, Role
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict.plan import Block, Plan, Step, Trial, sampling_for

Observe = Callable[[str, dict[str, object]], None]


def sweep(
    slo: Slo,
    plan: Plan,
    desk: Desk,
    *,
    record: Callable[[Generation], None],
    done: Mapping[str, set[str]],
    observe: Observe,
) -> None:
    """Ask every step of the plan that is not *done* yet (keys by trial); each answer is recorded before the next.

    A block whose answers are all there is passed over, so a resumed sweep does not even start its process.
    """
    total = sum(len(block.steps) for block in plan.blocks)
    answered = sum(len(keys) for keys in done.values())
    for block in plan.blocks:
        missing = [step for step in block.steps if step.key not in done.get(step.trial.name, ())]
        if not missing:
            continue
        observe("block", {"block": block.name, "resident": dict(block.resident), "answers": len(missing)})
        desk.open(block.resident)

        def note(made: Generation) -> None:
            nonlocal answered
            answered += made.role is not Role.WARMUP
            record(made)
            observe("answer", {"generation": made, "answered": answered, "of": total})

        desk.ask_all(_warmups(slo, block, missing), 1, note)
        for group in _groups(block, missing):
            requests = (_request(slo, step, block.concurrency) for step in group)
            desk.ask_all(requests, block.concurrency, note)


def _groups(block: Block, steps: list[Step]) -> Iterator[list[Step]]:
    """Keep the streams of a concurrent block to one trial at a time."""
    if block.concurrency == 1:
        yield steps
        return
    for trial in block.trials:
        yield [step for step in steps if step.trial is trial]


def _warmups(slo: Slo, block: Block, missing: list[Step]) -> Iterator[Request]:
    """Warm each trial of the block up with its first prompts; the records say so and are never judged."""
    for trial in block.trials:
        mine = [step for step in missing if step.trial is trial][: slo.sweep.warmups]
        for step in mine:
            yield _request(slo, step, 1, warmup=True)


def _request(slo: Slo, step: Step, concurrency: int, *, warmup: bool = False) -> Request:
    trial: Trial = step.trial
    return Request(
        trial=trial.name,
        key=f"warmup:{step.key}" if warmup else step.key,
        workload=step.workload,
        canary=step.canary,
        arm=trial.arm,
        setting=trial.setting,
        sampling=sampling_for(slo, step.canary, trial.setting, concurrency),
        role=Role.WARMUP if warmup else Role.MEASURED,
        repeat=step.repeat,
        pair=step.pair,
        concurrency=concurrency,
    )
