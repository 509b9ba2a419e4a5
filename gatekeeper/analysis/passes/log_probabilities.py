"""Log-probabilities: canaries answered once more in both arms, with what the target preferred at each token."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.words.exactness import divergent_canaries
from gatekeeper.analysis.passes.definition import Needs, Pass, Recorded, Soaked
from gatekeeper.analysis.plan.objectives import scored_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.records import Scored, Setting

CANARIES = 12
"""Of a workload: those whose answers differ come first. Both arms of three workloads take some minutes."""


def _needs(soak: Soaked) -> Needs:
    """Return canaries to answer in both arms, by workload: the first ones, of which those that differ come first."""
    canaries = {}
    for name in scored_workloads(soak.slo, soak.settings, soak.terms):
        answers = soak.answers(name)
        differing = divergent_canaries(successful(answers.answers), answers.words.plain)
        canaries[name] = tuple(dict.fromkeys((*differing, *answers.canaries)))[:CANARIES]
    return canaries


def _add(answers: PairedAnswers, recorded: Recorded[Scored]) -> PairedAnswers:
    return replace(answers, scored=recorded.records)


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    for name in scored_workloads(costs.slo, settings, costs.terms):
        for canary in costs.canaries[name][:CANARIES]:
            yield from (costs.answering(name, canary, knobs) for knobs in (settings[name], plain_of(settings[name])))


PASS = Pass(
    name="log_probabilities",
    stem="scored",
    kind=Scored,
    stage="log-probabilities",
    title="answers with log-probabilities, in both arms",
    needs=_needs,
    add=_add,
    forecast=_forecast,
    each_part=False,
)
