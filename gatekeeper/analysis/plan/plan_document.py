"""The content of plan.json: the trials of a sweep, the order of its requests, and the record files of the run."""

from collections import Counter
from collections.abc import Iterable

from gatekeeper.analysis.plan.sweep_plan import SweepPlan
from gatekeeper.core.slo import Slo


def plan_document(slo: Slo, plan: SweepPlan, pass_files: Iterable[str]) -> dict[str, object]:
    """Return the content of plan.json; *pass_files* are the record files of the passes."""
    answers = Counter(request.trial for request in plan.requests)
    return {
        "schema": 1,
        "slo": slo.name,
        "design": slo.sweep.design,
        "stop": slo.sweep.stop,
        "looks": {workload: list(counts) for workload, counts in plan.looks.items()},
        "seed": plan.seed,
        "fixed": dict(plan.fixed) if plan.fixed is not None else None,
        "trials": [
            {
                "name": trial.name,
                "file": trial.file,
                "arm": trial.arm,
                "setting": dict(trial.setting),
                "changed": trial.changed,
                "twin": trial.baseline if trial.arm == "candidate" else None,
                "answers": answers[trial.name],
            }
            for trial in plan.trials
        ],
        "order": [
            {
                "block": block.name,
                "resident": dict(block.resident),
                "concurrency": block.concurrency,
                "answers": [
                    f"{request.trial}/{request.workload}/{request.canary.id}/{request.repeat}"
                    for request in block.requests
                ],
            }
            for block in plan.blocks
        ],
        "records": [*(trial.file for trial in plan.trials), "soak-1*.jsonl", *pass_files, "host.jsonl", "events.jsonl"],
    }
