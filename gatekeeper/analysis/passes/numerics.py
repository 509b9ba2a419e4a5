"""Numerics: plain answers read at two kinds of passes, which shows what the arithmetic alone does to the logits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.numerics import POSITIONS, answers_to_read, widest_pass
from gatekeeper.analysis.passes.definition import Needs, Pass, Recorded, Soaked
from gatekeeper.analysis.plan.objectives import replay_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import is_greedy, plain_of
from gatekeeper.core.records import Generation, Numerics, Setting


@dataclass(frozen=True, slots=True)
class PlainReading:
    """A plain answer to read one token at a time, and *width* tokens at a time."""

    generation: Generation
    width: int


def _needs(soak: Soaked) -> Needs:
    readings = {}
    for name in replay_workloads(soak.settings, soak.terms):
        if is_greedy(soak.slo, soak.settings[name]):
            answers = soak.answers(name)
            width = widest_pass(answers.answers)
            readings[name] = tuple(PlainReading(generation, width) for generation in answers_to_read(answers))
    return {name: planned for name, planned in readings.items() if planned}


def _add(answers: PairedAnswers, recorded: Recorded[Numerics]) -> PairedAnswers:
    return replace(answers, numerics=recorded.records)


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count plain answers of POSITIONS tokens, as long as they may be, one token at a time and several at once."""
    for name in replay_workloads(settings, costs.terms):
        tokens, knobs = 0, plain_of(settings[name])
        for canary in costs.canaries[name] if is_greedy(costs.slo, settings[name]) else ():
            if tokens < POSITIONS:
                yield 1.5 * costs.answering(name, canary, knobs)
                tokens += costs.longest(canary, knobs)


PASS = Pass(
    name="numerics",
    stem="numerics",
    kind=Numerics,
    stage="numerics",
    title="plain answers read at two widths",
    needs=_needs,
    add=_add,
    forecast=_forecast,
)
