"""Replays: the target reads an answer again in the rounds that verified it, and each token must be its own choice."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.words.exactness import NOT_CORRECT
from gatekeeper.analysis.metrics.words.near_tie_rule import known_tokens
from gatekeeper.analysis.metrics.words.numerics_null import null_of, numerics_of
from gatekeeper.analysis.metrics.words.scored_answers import find_partings, own_answers, tells_its_passes
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.core.interfaces import RoundPasses
from gatekeeper.core.judgement import Estimate, Missing, fact
from gatekeeper.core.records import Answer, Generation, Parting, Replayed
from gatekeeper.core.text import show_count
from gatekeeper.core.units import show_number

GREEDY_POSITIONS = 6000
"""Tokens of a workload's greedy answers that are read again: every canary once, at some hundred tokens an answer."""
SAMPLED_POSITIONS = 20_000
"""The same above temperature 0, where only many tokens together show whether they are sampled from the target."""
TWICE = 4
"""Answers of a workload whose rounds are read twice, to see whether a pass gives the same bits again."""


class ImpossibleRoundsError(ValueError):
    """The tokens of an answer cannot have come from the rounds that it reports."""


def round_passes(answer: Answer) -> RoundPasses | None:
    """Return the passes of an answer, as `RoundPasses` has them; None where its proposals or tokens were not kept.

    Raise ImpossibleRoundsError where an emitted token was to be a drafted one and is not, or tokens are left over.
    """
    tokens, proposals = known_tokens(answer), answer.rounds.proposals if answer.rounds is not None else ""
    drafted = [arrival.drafted for arrival in answer.arrivals]
    if not tokens or not proposals or None in drafted:
        return None
    passes, position = [], 0
    proposed = _by_round(proposals)
    chosen = _by_round(answer.rounds.chosen if answer.rounds is not None else "")
    if chosen and len(chosen) != len(proposed):
        raise ImpossibleRoundsError(f"has {len(proposed)} rounds, and {len(chosen)} passes verified them")
    for number, proposal in enumerate(proposed):
        accepted = 0
        while accepted < len(proposal) and position + accepted < len(tokens) and drafted[position + accepted]:
            accepted += 1
        emits = min(accepted + 1, len(tokens) - position)
        if list(tokens[position : position + accepted]) != proposal[:accepted] or emits < 1:
            raise ImpossibleRoundsError(f"at token {position + 1} keeps drafted tokens that were not drafted there")
        if chosen and list(tokens[position : position + emits]) != chosen[number][:emits]:
            raise ImpossibleRoundsError(f"has tokens from {position + 1} on that its target did not choose there")
        passes.append((emits, *proposal[emits - 1 :]))
        position += emits
    if position != len(tokens):
        raise ImpossibleRoundsError(f"has {len(tokens)} tokens, and its rounds emit {position}")
    return tuple(passes)


def _by_round(written: str) -> list[list[int]]:
    return [[int(token) for token in of_round.split()] for of_round in written.split(";")] if written else []


def replayed_answers(paired: PairedAnswers) -> tuple[Generation, ...]:
    """Return the answers of the soak to read again: distinct ones, canary by canary in turn; and plain ones to compare.

    Greedy answers to a canary are the same again and again, so that these are nearly all of the soak.
    """
    distinct = {_output(generation): generation for generation in reversed(successful(paired.answers))}
    most = GREEDY_POSITIONS if paired.greedy else SAMPLED_POSITIONS
    chosen = tuple(_until(most, _in_turn(reversed(distinct.values()))))
    canaries = {generation.canary for generation in chosen}
    plain = {generation.canary: generation for generation in reversed(successful(paired.plain))}
    return (*chosen, *(plain[name] for name in paired.canaries if name in canaries and name in plain))


def _output(generation: Generation) -> tuple[object, ...]:
    answer = generation.answer
    return generation.canary, answer.columns.token_ids, answer.rounds.proposals if answer.rounds is not None else ""


def _in_turn(answers: Iterable[Generation]) -> Iterator[Generation]:
    """Yield the first answer to each canary, then the second ones."""
    queues = list(by_canary((generation.canary, generation) for generation in answers).values())
    for turn in range(max(map(len, queues), default=0)):
        yield from (queue[turn] for queue in queues if turn < len(queue))


def _until(most: int, answers: Iterable[Generation]) -> Iterator[Generation]:
    """Yield answers until they have *most* tokens together."""
    tokens = 0
    for generation in answers:
        if tokens >= most:
            return
        tokens += generation.answer.output_tokens or 0
        yield generation


def drafted_replays(paired: PairedAnswers) -> list[Replayed]:
    """Return the replays of speculating answers."""
    return [replayed for replayed in paired.readings(Replayed) if replayed.arm == "candidate"]


def is_exact(replayed: Replayed) -> bool:
    """Return whether each token is the target's own choice in the pass that verified it."""
    return not replayed.parted and replayed.impossible is None


def replay_agreement(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of answers each token of which is the target's choice in the pass that verified it."""
    if not paired.greedy:
        return Missing("at temperature above 0 the target has no one choice")
    replays = drafted_replays(paired)
    if not replays:
        return _told_agreement(paired) if own_answers(paired) else Missing("no answer was read again round by round")
    faults = [f"{replayed.canary}: {replayed.fault}" for replayed in replays if replayed.fault is not None]
    if faults:
        because = f"{len(faults)} of {len(replays)} answers could not be read again, first {faults[0]}"
        return Missing(because, len(replays) - len(faults))
    if all(replayed.steady is not False for replayed in replays):
        return _share(list(map(is_exact, replays)), *_notes(replays))
    null = null_of(numerics_of(paired), paired.level)
    if isinstance(null, Missing):
        return Missing(f"the same rounds read twice give other bits, and {null.because}", len(replays))
    within = [replace(replayed, parted=_beyond(replayed.parted, null.tolerance)) for replayed in replays]
    unsteady = f"the same rounds read twice give other bits: leads up to {show_number(null.tolerance)} are numerics"
    return _share(list(map(is_exact, within)), *_notes(within), unsteady)


def _share(right: Sequence[bool], *notes: str) -> Estimate:
    return replace(fact(sum(right) / len(right), len(right), *notes), shows=NOT_CORRECT)


def _told_agreement(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of answers each token of which is the likeliest, by what the server tells of its own passes."""
    drafted = [record for record in own_answers(paired) if record.arm == "candidate"]
    told = [record for record in drafted if tells_its_passes(record)]
    if len(told) < len(drafted) or not told:
        return Missing(f"{len(told)} of {len(drafted)} drafted answers tell what their passes preferred", len(told))
    wrong = {record.canary: find_partings(record) for record in told if find_partings(record)}
    tokens = sum(len(record.tokens) for record in told)
    notes = [f"{tokens} tokens of {show_count(len(told), 'answer')}, by what the server tells of its passes"]
    if wrong:
        canary, places = next(iter(wrong.items()))
        place = f"token {places[0].position + 1}, where another one leads by {show_number(places[0].gap or 0)} nats"
        notes.append(f"{len(wrong)} have a token that is not the likeliest, first {canary} at {place}")
    return _share([record.canary not in wrong for record in told], *notes)


def _beyond(parted: tuple[Parting, ...], tolerance: float) -> tuple[Parting, ...]:
    return tuple(place for place in parted if place.gap is None or place.gap > tolerance)


def _notes(read: Sequence[Replayed]) -> tuple[str, ...]:
    tokens, rounds = sum(replayed.positions for replayed in read), sum(replayed.rounds for replayed in read)
    notes = [f"{tokens} tokens of {show_count(len(read), 'answer')}, read again in their {rounds} rounds"]
    if parted := [replayed for replayed in read if replayed.parted]:
        place = parted[0].parted[0]
        lead = "" if place.gap is None else f", which leads by {show_number(place.gap)}"
        notes.append(
            f"{len(parted)} have a token that is not the target's choice in its pass, first {parted[0].canary} at "
            f"token {place.position + 1}: there it chooses token {place.target_id}{lead}"
        )
    if impossible := [f"{replayed.canary} {replayed.impossible}" for replayed in read if replayed.impossible]:
        notes.append(f"{len(impossible)} cannot have come from their rounds, first {impossible[0]}")
    return tuple(notes)
