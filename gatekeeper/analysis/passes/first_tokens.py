"""First tokens: those of a few short prompts sampled many times in both arms, for the distribution check."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gatekeeper.analysis.metrics.words.first_token_distribution import (
    SAMPLES,
    SCOUTS,
    TOKENS,
    chosen_prompts,
    scouted_prompts,
)
from gatekeeper.analysis.passes.soak_pass import Pass
from gatekeeper.analysis.plan.objectives import first_token_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.core.records import Generation, Setting


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count the samples of both arms and the scouts: a few first tokens, each with the whole prompt."""
    for name in first_token_workloads(costs.slo, settings):
        scouts = ((canary, SCOUTS) for canary in scouted_prompts(costs.canaries[name]))
        samples = ((canary, 2 * SAMPLES) for canary in chosen_prompts(costs.canaries[name], ()))
        for canary, times in (*scouts, *samples):
            yield from [costs.assumed.seconds(canary, TOKENS)] * times


PASS = Pass(
    name="first_tokens",
    stem="draws",
    kind=Generation,
    stage="distribution",
    title="first tokens of the distribution check",
    needs=lambda soak: dict.fromkeys(first_token_workloads(soak.slo, soak.settings), ()),
    add=lambda answers, recorded: replace(answers, first_tokens=recorded.sound),
    forecast=_forecast,
    each_part=False,
)
