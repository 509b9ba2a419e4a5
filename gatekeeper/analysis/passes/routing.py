"""Routing: a few requests at the end of a run, so that the routes can be compared with one setting for all."""

from collections.abc import Iterator

from gatekeeper.analysis.passes.definition import FinalPass, RunAhead
from gatekeeper.analysis.plan.settings import PLAIN, chosen_of
from gatekeeper.analysis.plan.sweep_plan import ROUTED_CANARIES
from gatekeeper.core.records import Generation

ROUTING = "routing.jsonl"


def _forecast(run: RunAhead) -> Iterator[float]:
    """Count what a whole sweep leaves to it: plain answers again, and the best of two knobs together.

    What else it requests, a sweep that stopped early has saved.
    """
    slo, plan = run.costs.slo, run.plan
    routed = [workload.name for workload in slo.workload if run.profile.weight(workload.name, workload.tier)]
    if len(routed) < 2 or slo.soak.concurrency != 1 or plan.fixed or not plan.candidates:
        return
    chosen = {knob for trial in plan.candidates for knob in dict(chosen_of(trial.setting)).items()}
    knobs = {name for name, _ in chosen if len({value for knob, value in chosen if knob == name}) > 1}
    settings = [PLAIN] * bool(knobs) + [plan.candidates[0].setting] * (len(knobs) > 1)
    for name in routed:
        for canary in run.costs.canaries[name][:ROUTED_CANARIES]:
            for setting in settings:
                yield run.costs.answering(name, canary, setting)


PASS = FinalPass(
    name="routing",
    title="routing pass, which compares the routes with one setting for all",
    files={ROUTING: Generation},
    forecast=_forecast,
)
