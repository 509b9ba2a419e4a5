"""Routing: a few requests at the end of a run, so that the routes can be compared with one setting for all."""

from collections.abc import Iterator
from dataclasses import replace

from gatekeeper.analysis.final_passes.final_pass import FinalPass, Routes
from gatekeeper.analysis.passes.soak_pass import RunAhead
from gatekeeper.analysis.plan.settings import PLAIN, chosen_of, speculates
from gatekeeper.analysis.plan.sweep_plan import ROUTED_CANARIES
from gatekeeper.analysis.sweep.routing_gain import RoutingRequest, routing, routing_requests
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.records import Generation
from gatekeeper.core.verdict import Missing

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


def _lacks(case: Case, _: Verdict, routes: Routes) -> list[RoutingRequest]:
    """Return the requests that the comparison of the routes lacks; nothing before all routes are known."""
    if not any(map(speculates, routes.values())):
        return []
    return routing_requests(case.slo, case.plan, case.sweep_records, case.weights, routes)


def _judge(case: Case, verdict: Verdict, routes: Routes) -> Verdict:
    """Add what the routes gain."""
    recorded = case.recorded_at_end(ROUTING)
    if recorded.trouble is not None:
        return replace(verdict, routing=Missing(recorded.trouble))
    reasons = {workload.name: workload.because for workload in verdict.workloads}
    for workload in verdict.workloads:
        if workload.choice is not None and not workload.steps:
            reasons[workload.name] = workload.choice.because
    reasons |= {transition.workload: transition.because for transition in verdict.transitions}
    gains = routing(
        case.slo, case.plan, case.sweep_records, case.weights, routes,
        routing_answers=recorded.records, reasons=reasons,
    )  # fmt: skip
    return replace(verdict, routing=gains)


PASS = FinalPass(
    name="routing",
    title="routing pass, which compares the routes with one setting for all",
    about="the comparison of the routes",
    files={ROUTING: Generation},
    forecast=_forecast,
    lacks=_lacks,
    judge=_judge,
)
