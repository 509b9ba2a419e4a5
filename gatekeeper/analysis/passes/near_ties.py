"""Near-ties: the target's logits where greedy answers diverge, which tell a near-tie from a wrong answer."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gatekeeper.analysis.metrics.words.exactness import divergences
from gatekeeper.analysis.passes.soak_pass import Needs, Pass, Soaked
from gatekeeper.analysis.plan.objectives import forced_workloads, workloads_with
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.core.records import Setting, Tie


def _needs(soak: Soaked) -> Needs:
    """Return, by workload, where greedy answers diverge from plain decoding's against an objective."""
    places = {}
    for name in workloads_with(soak.slo, soak.settings, "token_agreement", soak.terms):
        words = soak.answers(name).words
        if words.greedy and (diverged := divergences(words.answers, words.plain)):
            places[name] = diverged
    return places


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count one pass per canary, as if each diverged once: the target reads the prompt and the shared tokens."""
    if not costs.assumed.logits or costs.slo.sampling.temperature != 0:
        return
    forced = forced_workloads(costs.slo, settings, costs.terms)  # the forced check reads every canary already
    for name in workloads_with(costs.slo, settings, "token_agreement", costs.terms):
        if name not in forced:
            yield from map(costs.reading, costs.canaries[name])


PASS = Pass(
    name="near_ties",
    stem="ties",
    kind=Tie,
    stage="near-ties",
    title="near-ties, if every canary diverges",
    needs=_needs,
    add=lambda answers, recorded: replace(answers, ties=recorded.records),
    forecast=_forecast,
)
