"""Log-probabilities: canaries answered once more in both arms, with what the target preferred at each token.

Where a drafted answer leaves plain decoding's, plain decoding goes on from the token that the draft wrote there, again
and again: so every token of that answer is held against what plain decoding would write in its place. Where a server
tells what its verify passes preferred, plain decoding first writes two pieces of each answer that differs, and goes
through those whole whose leads moved most there; through all where it then prefers another token by far.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, zip_longest
from typing import NamedTuple

from gatekeeper.analysis.follow_ups.follow_up import FollowUp, Needs, PlannedReading, ReadingStep, Soaked
from gatekeeper.analysis.metrics.paired_answers import successful
from gatekeeper.analysis.metrics.words.exactness import divergent_canaries
from gatekeeper.analysis.metrics.words.likelihood import LEAST as NLL_CANARIES
from gatekeeper.analysis.metrics.words.scored_answers import (
    Continuation,
    Place,
    left_to_continue,
    read_whole,
    windows,
)
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import is_greedy, plain_of, speculates
from gatekeeper.analysis.plan.soak_schedule import ENOUGH_PAIRS
from gatekeeper.core.interfaces import DecodeRequest, RunningSystem, TellsLogProbabilities
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Scored, Setting
from gatekeeper.core.slo import Slo

CANARIES = 12
"""For each workload; where the answers of one workload alone differ, most are its own. Three take some minutes."""
DIFFERING = 18
"""For each workload, where so many answers differ: a defect that few of them have hides among those that numerics turn.
"""
LEAST = 4
"""Canaries of each workload that are always read."""
TAIL = 0.5
"""The share of a plain answer that is read once more where a drafted one differs, in the forecast."""


class CanaryToRead(NamedTuple):
    """A canary to answer in both arms."""

    id: str
    differs: bool
    """Its answers are not the same in both arms."""
    least: int
    """So many answers of its workload are to be read whole."""


def scored_workloads(slo: Slo, settings: Mapping[str, Setting], terms: Terms) -> tuple[str, ...]:
    """Return the greedy workloads that are answered again with log-probabilities: where nothing can be replayed."""
    shows_them = bool((Sight.LOGPROBS | Sight.VERIFIED) & terms.sight)
    if Sight.REPLAY in terms.sight or not shows_them:
        return ()
    return tuple(name for name, knobs in settings.items() if speculates(knobs) and is_greedy(slo, knobs))


def _find_needs(soak: Soaked) -> Needs:
    """Return canaries to answer in both arms, by workload: those whose answers differ come first.

    Not those that set options: with a response format or a penalty the token that is written need not be the likeliest
    one of its pass, so that sound answers would look wrong.
    """
    chosen, differing, alike = (
        dict[str, list[CanaryToRead]](),
        list[list[tuple[str, CanaryToRead]]](),
        list[list[tuple[str, CanaryToRead]]](),
    )
    for workload in scored_workloads(soak.slo, soak.settings, soak.terms):
        answers = soak.answers(workload)
        readable = [name for name, canary in answers.canaries.items() if not canary.options]
        divergent = divergent_canaries(successful(answers.answers), answers.words.plain)
        differ = [name for name in divergent if name in readable]
        alike_names = [name for name in readable if name not in divergent]
        in_both = {answer.canary for answer in answers.answers} & {answer.canary for answer in answers.words.plain}
        least = max(NLL_CANARIES, ENOUGH_PAIRS - len(in_both - set(divergent)))
        canaries = [CanaryToRead(name, name in differ, least) for name in (*differ, *alike_names)]
        chosen[workload] = canaries[:LEAST]
        differing.append([(workload, canary) for canary in canaries[LEAST:] if canary.differs])
        alike.append([(workload, canary) for canary in canaries[LEAST:] if not canary.differs])
    for places, most in ((differing, DIFFERING), (alike, CANARIES)):
        left = most * len(chosen) - sum(map(len, chosen.values()))
        for name, canary in islice(_take_in_turn(places), max(0, left)):
            chosen[name].append(canary)
    return {name: tuple(canaries) for name, canaries in chosen.items() if canaries}


def _take_in_turn(places: Iterable[Sequence[tuple[str, CanaryToRead]]]) -> Iterator[tuple[str, CanaryToRead]]:
    """Yield the first canary of each workload, then the second ones."""
    return (place for turn in zip_longest(*places) for place in turn if place is not None)


def _plan_steps(_soak: Soaked, needs: Needs, records: Sequence[Scored]) -> Iterator[ReadingStep[Scored]]:
    """Yield drafted answers, then pieces of those that differ, then plain answers, as far as they are to be read."""
    differs = {(name, canary.id): canary.differs for name, canaries in needs.items() for canary in canaries}
    least = {name: max(canary.least for canary in canaries) for name, canaries in needs.items()}
    yield ReadingStep([_plan_answer(place, "candidate") for place in _by_place(differs, records)])
    of_place = _by_place(differs, records)
    yield ReadingStep(
        [
            _plan_continuation(place, window)
            for place, are_different in differs.items()
            if are_different
            for window in windows(of_place[place][0])
        ]
    )
    while unread := _find_unread(_by_place(differs, records), least):
        for number, place in enumerate(unread):
            # Each piece depends on the one before it, so that no two of them can be planned at once.
            while reading := _plan_next(place, _by_place(differs, records)[place]):
                yield ReadingStep([reading], number, len(unread))


def _by_place(differs: Iterable[Place], records: Iterable[Scored]) -> dict[Place, list[Scored]]:
    """Return the records of each place, the drafted answer first: a damaged file may have lost it, and has it last."""
    of_place: dict[Place, list[Scored]] = {place: [] for place in differs}
    for record in records:
        of_place.setdefault((record.workload, record.canary), []).append(record)
    return {
        place: sorted(records_of_place, key=lambda record: record.arm == "plain")
        for place, records_of_place in of_place.items()
    }


def _find_unread(of_place: Mapping[Place, Sequence[Scored]], least: Mapping[str, int]) -> list[Place]:
    """Return the answers that plain decoding is to go through whole, and has not."""
    return [place for place in read_whole(of_place, least) if _plan_next(place, of_place[place])]


def _plan_next(place: Place, records: Sequence[Scored]) -> PlannedReading[Scored] | None:
    """Return the plain answer of a place, or what goes on from a beginning of its drafted one; None: all is read."""
    if not any(record.arm == "plain" and not record.after for record in records):
        return _plan_answer(place, "plain")
    continuation = left_to_continue(records)
    return None if continuation is None else _plan_continuation(place, continuation)


def _plan_answer(place: Place, arm: str) -> PlannedReading[Scored]:
    return PlannedReading(Scored(*place, arm), _answer, arm)


def _answer(record: Scored, subject: RunningSystem | None, request: DecodeRequest) -> Scored:
    scored = subject.request_scores(request) if isinstance(subject, TellsLogProbabilities) else None
    if scored is None:
        return replace(record, fault="the server told no log-probabilities")
    return replace(scored, workload=record.workload, canary=record.canary, arm=record.arm)


def _plan_continuation(place: Place, continuation: Continuation) -> PlannedReading[Scored]:
    return PlannedReading(Scored(*place, "plain", after=continuation.after), partial(_continue, continuation))


def _continue(
    continuation: Continuation, record: Scored, subject: RunningSystem | None, request: DecodeRequest
) -> Scored:
    scored = None
    if isinstance(subject, TellsLogProbabilities):
        scored = subject.continue_answer(request, continuation.drafting.first(continuation.after), continuation.tokens)
    if scored is None:
        return replace(record, fault="the server cannot read the beginning of an answer")
    return replace(scored, workload=record.workload, canary=record.canary, arm=record.arm, after=record.after)


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    for name in scored_workloads(costs.slo, settings, costs.terms):
        for canary in costs.canaries[name][:CANARIES]:
            plain = costs.answering(name, canary, plain_of(settings[name]))
            yield from (costs.answering(name, canary, settings[name]), plain, TAIL * plain)


FOLLOW_UP = FollowUp(
    name="log_probabilities",
    kind=Scored,
    title="answers with log-probabilities, in both arms",
    needs=_find_needs,
    steps=_plan_steps,
    identity=lambda record: (record.workload, record.canary, record.arm, record.after),
    forecast=_forecast,
    each_part=False,
    of_all_workloads=True,
)
