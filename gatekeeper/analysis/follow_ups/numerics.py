"""Numerics: plain answers read at two kinds of passes, which shows what the arithmetic alone does to the logits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice

from gatekeeper.analysis.follow_ups.follow_up import FollowUp, Needs, PlannedReading, ReadingStep, Soaked
from gatekeeper.analysis.follow_ups.log_probabilities import scored_workloads
from gatekeeper.analysis.metrics.words.near_tie_rule import known_tokens
from gatekeeper.analysis.metrics.words.numerics_null import POSITIONS, answers_to_read, widest_pass
from gatekeeper.analysis.metrics.words.scored_answers import by_canary_and_arm, own_answers
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import is_greedy, plain_of, speculates
from gatekeeper.core.interfaces import DecodeRequest, ReplaysRounds, RunningSystem, TellsLogProbabilities
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Numerics, Scored, Setting
from gatekeeper.core.slo import Slo

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


def _width_workloads(slo: Slo, settings: Mapping[str, Setting], terms: Terms) -> tuple[str, ...]:
    """Return the greedy workloads whose plain answers are read at two widths."""
    if (Sight.WIDTHS | Sight.TOKEN_IDS) & ~terms.sight:
        return ()
    return tuple(name for name, knobs in settings.items() if speculates(knobs) and is_greedy(slo, knobs))


def _find_needs(soak: Soaked) -> Needs:
    """Return, by workload, the plain answers to read, or places of them."""
    readings = {}
    if Sight.LOGPROBS in soak.terms.sight:
        for name in scored_workloads(soak.slo, soak.settings, soak.terms):
            readings[name] = tuple(_choose_places(name, own_answers(soak.answers(name))))
    for name in _width_workloads(soak.slo, soak.settings, soak.terms):
        answers = soak.answers(name)
        width = widest_pass(answers.answers)
        readings[name] = tuple(
            PlainReading(name, generation.canary, known_tokens(generation.answer), width)
            for generation in answers_to_read(answers)
        )
    return {name: planned for name, planned in readings.items() if planned}


def _choose_places(name: str, scored: tuple[Scored, ...]) -> Iterator[PlainReading]:
    """Yield places of plain answers, PLACES in all, spread evenly over the answers that tell their likeliest tokens."""
    plain = [record for (_, arm), record in by_canary_and_arm(scored).items() if arm == "plain"]
    share = PLACES // len(plain) if plain else 0
    for record in plain:
        places = [position for position, likely in enumerate(record.likeliest) if len(likely) > 1]
        step = max(1, len(places) // max(1, share))
        yield PlainReading(name, record.canary, (), None, record, tuple(places[::step][:share]))


def _plan_steps(_soak: Soaked, needs: Needs, _records: Sequence[Numerics]) -> Iterator[ReadingStep[Numerics]]:
    yield ReadingStep(
        [
            PlannedReading(Numerics(name, reading.canary, reading.width), partial(_read, reading))
            for name, readings in needs.items()
            for reading in readings
        ]
    )


def _read(reading: PlainReading, record: Numerics, subject: RunningSystem | None, request: DecodeRequest) -> Numerics:
    if isinstance(subject, TellsLogProbabilities) and reading.scored is not None:
        return _read_places(record, subject, request, reading.scored, reading.positions)
    widths = None
    if isinstance(subject, ReplaysRounds) and reading.width is not None:
        widths = subject.read_widths(request, reading.tokens, reading.width)
    if widths is None:
        return replace(record, fault="the target could not read it")
    places = tuple(range(len(reading.tokens)))
    readings = {"gaps": widths.gaps, "other_gaps": widths.wide_gaps, "unit": widths.unit, "nll": widths.nll}
    return replace(record, positions=places, **readings)


def _read_places(
    record: Numerics, subject: TellsLogProbabilities, request: DecodeRequest, scored: Scored, positions: tuple[int, ...]
) -> Numerics:
    """Return the leads while decoding, and after the same beginning is read as a prompt.

    A beginning that the server reads as other tokens, because it was sent as text, is left out.
    """
    read, gaps, others = [], [], []
    for position in positions:
        best, second = scored.likeliest[position][:2]
        next_token = subject.continue_answer(request, scored.first(position), 1)
        lead, name = (None, None) if next_token is None else next_token.lead
        if lead is not None:
            read.append(position)
            gaps.append(best.logprob - second.logprob)
            others.append({best.name: lead, second.name: -lead}.get(name or ""))
    if positions and not read:
        return replace(record, fault="the server cannot read the beginning of an answer")
    return replace(record, positions=tuple(read), gaps=tuple(gaps), other_gaps=tuple(others))


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count plain answers of POSITIONS tokens, as long as they may be, one token at a time and several at once."""
    for name in _width_workloads(costs.slo, settings, costs.terms):
        tokens, knobs = 0, plain_of(settings[name])
        for canary in costs.canaries[name]:
            if tokens < POSITIONS:
                yield 1.5 * costs.answering(name, canary, knobs)
                tokens += costs.longest(canary, knobs)
    if Sight.LOGPROBS in costs.terms.sight:
        for name in scored_workloads(costs.slo, settings, costs.terms):
            yield from map(costs.reading, islice(cycle(costs.canaries[name]), PLACES))


FOLLOW_UP = FollowUp(
    name="numerics",
    kind=Numerics,
    title="plain answers read at two widths",
    needs=_find_needs,
    steps=_plan_steps,
    identity=lambda record: (record.workload, record.canary, record.width),
    forecast=_forecast,
    of_all_workloads=True,
)
