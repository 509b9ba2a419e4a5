"""Replay: the target reads the soak's answers again in the rounds that verified them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gatekeeper.analysis.metrics.words.replayed_rounds import GREEDY_POSITIONS, SAMPLED_POSITIONS, replayed_answers
from gatekeeper.analysis.passes.soak_pass import Needs, Pass, Soaked
from gatekeeper.analysis.plan.objectives import replay_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import is_greedy
from gatekeeper.core.records import Replayed, Setting


def _needs(soak: Soaked) -> Needs:
    """Return the answers to read again, by workload."""
    answers = {name: replayed_answers(soak.answers(name)) for name in replay_workloads(soak.settings, soak.terms)}
    return {name: chosen for name, chosen in answers.items() if chosen}


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count answers as long as they may be until their tokens suffice, and plain decoding's, which are read at once.

    A round is a pass of the target, which takes about as long as the round did with its draft.
    """
    for name in replay_workloads(settings, costs.terms):
        knobs = settings[name]
        most, tokens = GREEDY_POSITIONS if is_greedy(costs.slo, knobs) else SAMPLED_POSITIONS, 0
        for canary in costs.canaries[name]:
            if tokens < most:
                yield from (costs.answering(name, canary, knobs), costs.reading(canary))
                tokens += costs.longest(canary, knobs)


PASS = Pass(
    name="replay",
    stem="replay",
    kind=Replayed,
    stage="replay",
    title="answers read again, round by round",
    needs=_needs,
    add=lambda answers, recorded: replace(answers, replays=recorded.records),
    forecast=_forecast,
)
