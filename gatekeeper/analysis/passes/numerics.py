"""Numerics: plain answers read at two kinds of passes, which shows what the arithmetic alone does to the logits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle, islice

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.near_tie_rule import known_tokens
from gatekeeper.analysis.metrics.words.numerics_null import POSITIONS, answers_to_read, widest_pass
from gatekeeper.analysis.metrics.words.scored_answers import by_canary_and_arm
from gatekeeper.analysis.passes.soak_pass import Needs, Pass, Recorded, Soaked
from gatekeeper.analysis.plan.objectives import scored_workloads, width_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Numerics, Scored, Setting

PLACES = 60
"""Beginnings of plain answers of a workload that are read as a prompt over HTTP."""


@dataclass(frozen=True, slots=True)
class PlainReading:
    """A plain answer to read in two kinds of passes."""

    workload: str
    canary: str
    tokens: tuple[int, ...]
    """To read one token at a time, and *width* tokens at a time."""
    width: int | None
    scored: Scored | None = None
    """Over HTTP: the answer whose leads while decoding are held against those after a beginning read as a prompt."""
    positions: tuple[int, ...] = ()
    """The places to read there."""


def _needs(soak: Soaked) -> Needs:
    readings = {}
    if Sight.LOGPROBS in soak.terms.sight:
        for name in scored_workloads(soak.slo, soak.settings, soak.terms):
            readings[name] = tuple(_places(name, soak.answers(name).scored))
    for name in width_workloads(soak.slo, soak.settings, soak.terms):
        answers = soak.answers(name)
        width = widest_pass(answers.answers)
        readings[name] = tuple(
            PlainReading(name, generation.canary, known_tokens(generation.answer), width)
            for generation in answers_to_read(answers)
        )
    return {name: planned for name, planned in readings.items() if planned}


def _places(name: str, scored: tuple[Scored, ...]) -> Iterator[PlainReading]:
    """Yield places of plain answers, PLACES in all, spread evenly over the answers that tell their likeliest tokens."""
    plain = [record for (_, arm), record in by_canary_and_arm(scored).items() if arm == "plain"]
    share = PLACES // len(plain) if plain else 0
    for record in plain:
        told = [position for position, likely in enumerate(record.likeliest) if len(likely) > 1]
        step = max(1, len(told) // max(1, share))
        yield PlainReading(name, record.canary, (), None, record, tuple(told[::step][:share]))


def _add(answers: PairedAnswers, recorded: Recorded[Numerics]) -> PairedAnswers:
    """Over HTTP the places of all workloads are one null, because the kernels are the model's; a width has its own."""
    records = (record for record in recorded.records if record.width is None or record.workload == answers.workload)
    return replace(answers, numerics=tuple(records))


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count plain answers of POSITIONS tokens, as long as they may be, one token at a time and several at once."""
    for name in width_workloads(costs.slo, settings, costs.terms):
        tokens, knobs = 0, plain_of(settings[name])
        for canary in costs.canaries[name]:
            if tokens < POSITIONS:
                yield 1.5 * costs.answering(name, canary, knobs)
                tokens += costs.longest(canary, knobs)
    if Sight.LOGPROBS in costs.terms.sight:
        for name in scored_workloads(costs.slo, settings, costs.terms):
            yield from map(costs.reading, islice(cycle(costs.canaries[name]), PLACES))


PASS = Pass(
    name="numerics",
    stem="numerics",
    kind=Numerics,
    stage="numerics",
    title="plain answers read at two widths",
    needs=_needs,
    add=_add,
    forecast=_forecast,
    of_all_workloads=True,
)
