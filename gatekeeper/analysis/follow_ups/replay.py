"""Replay: the target reads the soak's answers again in the rounds that verified them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gatekeeper.analysis.follow_ups.follow_up import FollowUp, Needs, PlannedReading, ReadingStep, Soaked
from gatekeeper.analysis.metrics.words.near_tie_rule import known_tokens
from gatekeeper.analysis.metrics.words.replayed_rounds import (
    GREEDY_POSITIONS,
    SAMPLED_POSITIONS,
    TWICE,
    ImpossibleRoundsError,
    replayed_answers,
    round_passes,
)
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import is_greedy, speculates
from gatekeeper.core.interfaces import DecodeRequest, ReplaysRounds, RoundPasses, RunningSystem
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Generation, Replayed, Setting

AT_ONCE = 64
"""Tokens of a plain answer in one pass, which is read for its likelihood alone."""


def _workloads(settings: Mapping[str, Setting], terms: Terms) -> tuple[str, ...]:
    """Return the workloads whose answers the target can read again round by round."""
    if (Sight.REPLAY | Sight.TOKEN_IDS | Sight.ROUNDS) & ~terms.sight:
        return ()
    return tuple(name for name, knobs in settings.items() if speculates(knobs))


def _find_needs(soak: Soaked) -> Needs:
    """Return the answers to read again, by workload."""
    answers = {name: replayed_answers(soak.answers(name)) for name in _workloads(soak.settings, soak.terms)}
    return {name: chosen for name, chosen in answers.items() if chosen}


def _plan_steps(_soak: Soaked, needs: Needs, _records: Sequence[Replayed]) -> Iterator[ReadingStep[Replayed]]:
    twice = {generation.key for answers in needs.values() for generation in answers[:TWICE]}
    readings = []
    for name, answers in needs.items():
        for answer in answers:
            record = Replayed(
                workload=name, canary=answer.canary, key=answer.key, arm=answer.arm,
                positions=len(known_tokens(answer.answer)),
            )  # fmt: skip
            readings.append(PlannedReading(record, partial(_replay, answer, twice=answer.key in twice)))
    yield ReadingStep(readings)


def _replay(
    answer: Generation, record: Replayed, subject: RunningSystem | None, request: DecodeRequest, *, twice: bool
) -> Replayed:
    tokens, drafted = known_tokens(answer.answer), answer.arm == "candidate"
    try:
        passes = round_passes(answer.answer) if drafted else _read_at_once(len(tokens))
    except ImpossibleRoundsError as error:
        return replace(record, impossible=str(error))
    if not passes:
        return replace(record, fault="its rounds were not kept")
    reading = None
    if isinstance(subject, ReplaysRounds):
        reading = subject.replay(request, tokens, passes, twice=twice and drafted)
    if reading is None:
        return replace(record, fault="the target could not read it again")
    record = replace(record, rounds=len(passes), nll=reading.nll, steady=reading.steady)
    return replace(record, parted=reading.parted, scores=reading.scores) if drafted else record


def _read_at_once(tokens: int) -> RoundPasses:
    """Return passes of many tokens: the likelihood needs no more."""
    return tuple((min(AT_ONCE, tokens - begun),) for begun in range(0, tokens, AT_ONCE))


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count answers as long as they may be until their tokens suffice, and plain decoding's, which are read at once.

    A round is a pass of the target, which takes about as long as the round did with its draft.
    """
    for name in _workloads(settings, costs.terms):
        knobs = settings[name]
        most, tokens = GREEDY_POSITIONS if is_greedy(costs.slo, knobs) else SAMPLED_POSITIONS, 0
        for canary in costs.canaries[name]:
            if tokens < most:
                yield from (costs.answering(name, canary, knobs), costs.reading(canary))
                tokens += costs.longest(canary, knobs)


FOLLOW_UP = FollowUp(
    name="replay",
    kind=Replayed,
    title="answers read again, round by round",
    needs=_find_needs,
    steps=_plan_steps,
    identity=lambda replayed: (replayed.workload, replayed.key),
    forecast=_forecast,
)
