"""Replay: the target reads the soak's answers again in the rounds that verified them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.replayed_rounds import replayed_answers
from gatekeeper.analysis.passes.definition import Needs, Pass, Recorded, Soaked
from gatekeeper.analysis.plan.objectives import replay_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.core.records import Replayed, Setting


def _needs(soak: Soaked) -> Needs:
    """Return the answers to read again, by workload."""
    answers = {name: replayed_answers(soak.answers(name)) for name in replay_workloads(soak.settings, soak.terms)}
    return {name: chosen for name, chosen in answers.items() if chosen}


def _add(answers: PairedAnswers, recorded: Recorded[Replayed]) -> PairedAnswers:
    return replace(answers, replays=recorded.records)


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count each canary's answer once, as its rounds are passes of the target; and plain decoding's, read at once."""
    for name in replay_workloads(settings, costs.terms):
        for canary in costs.canaries[name]:
            yield costs.answering(name, canary, settings[name])
            yield costs.reading(canary)


PASS = Pass(
    name="replay",
    stem="replay",
    kind=Replayed,
    stage="replay",
    title="answers read again, round by round",
    needs=_needs,
    add=_add,
    forecast=_forecast,
)
