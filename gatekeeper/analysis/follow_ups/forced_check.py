"""The forced check: the target reads answers in one pass, which shows what plain decoding would write."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.follow_ups.follow_up import FollowUp, Needs, PlannedReading, ReadingStep, Soaked
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.forced import CONTROLS, CROSS_CHECKS, passes_wanted, stand_ins
from gatekeeper.analysis.plan.objectives import forced_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.core.interfaces import DecodeRequest, ForcesTokens, RunningSystem
from gatekeeper.core.judgement import Missing
from gatekeeper.core.records import Forced, Setting, StoredRecords


def _find_needs(soak: Soaked) -> Needs:
    """Return the passes of the target to make, without their results, by workload."""
    names = forced_workloads(soak.slo, soak.settings, soak.terms)
    passes_by_workload = {name: passes_wanted(replace(soak.answers(name), untimed=())) for name in names}
    return {name: passes for name, passes in passes_by_workload.items() if passes}


def _plan_steps(_soak: Soaked, needs: Needs, _records: Sequence[Forced]) -> Iterator[ReadingStep[Forced]]:
    yield ReadingStep([PlannedReading(forced, _force) for passes in needs.values() for forced in passes])


def _force(forced: Forced, subject: RunningSystem | None, request: DecodeRequest) -> Forced:
    forced_pass = subject.force(request, forced.tokens, forced.width) if isinstance(subject, ForcesTokens) else None
    if forced_pass is None:
        return replace(forced, fault="the target could not read the tokens")
    return replace(forced, parted=forced_pass.parted, ended=forced_pass.ended)


def _add(answers: PairedAnswers, recorded: StoredRecords[Forced]) -> PairedAnswers:
    """Return *answers* with the plain ones that the records stand in for."""
    if not recorded.records or not answers.greedy:
        return answers
    plain = stand_ins(answers, recorded.records)
    if isinstance(plain, Missing):
        return replace(answers, not_forced=plain.because)
    return replace(answers, untimed=(*answers.untimed, *plain))


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count one pass per canary, the cross-checks and the controls; none of them leads to a plain answer."""
    for name in forced_workloads(costs.slo, settings, costs.terms):
        for number, canary in enumerate(costs.canaries[name]):
            yield costs.reading(canary) * (1 + (number < CROSS_CHECKS) + (number < CONTROLS))


FOLLOW_UP = FollowUp(
    name="forced_check",
    kind=Forced,
    title="forced passes of the target over answers",
    needs=_find_needs,
    steps=_plan_steps,
    identity=lambda forced: (forced.workload, forced.canary, forced.tokens, forced.altered, forced.width),
    add=_add,
    forecast=_forecast,
)
