"""Replays: the target reads an answer again in the rounds that verified it, and each token must be its own choice."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, by_canary, successful
from gatekeeper.analysis.metrics.words.near_ties import known_tokens
from gatekeeper.core.interfaces import RoundPasses
from gatekeeper.core.records import Answer, Generation, Replayed
from gatekeeper.core.text import counted
from gatekeeper.core.verdict import Estimate, Missing, fact

GREEDY_POSITIONS = 8000
"""Tokens of a workload's greedy answers that are read again: every canary once, at some hundred tokens an answer."""
SAMPLED_POSITIONS = 40_000
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
    for written in proposals.split(";"):
        proposal = [int(token) for token in written.split()]
        accepted = 0
        while accepted < len(proposal) and position + accepted < len(tokens) and drafted[position + accepted]:
            accepted += 1
        emits = min(accepted + 1, len(tokens) - position)
        if list(tokens[position : position + accepted]) != proposal[:accepted] or emits < 1:
            raise ImpossibleRoundsError(f"at token {position + 1} keeps drafted tokens that were not drafted there")
        passes.append((emits, *proposal[emits - 1 :]))
        position += emits
    if position != len(tokens):
        raise ImpossibleRoundsError(f"has {len(tokens)} tokens, and its rounds emit {position}")
    return tuple(passes)


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
    return [replayed for replayed in paired.replays if replayed.arm == "candidate"]


def parted_canaries(replays: Iterable[Replayed]) -> Mapping[str, bool]:
    """Return, of each canary whose answers were all read, whether a token of one is not the target's own choice."""
    parted: dict[str, bool] = {}
    for replayed in replays:
        parted[replayed.canary] = parted.get(replayed.canary, False) or not _is_exact(replayed)
    return parted


def _is_exact(replayed: Replayed) -> bool:
    return not replayed.parted and replayed.impossible is None


def replay_agreement(paired: PairedAnswers) -> Estimate | Missing:
    """Return the share of replayed answers each token of which is the target's choice in the pass that verified it."""
    if not paired.greedy:
        return Missing("at temperature above 0 the target has no one choice")
    replays = drafted_replays(paired)
    read = [replayed for replayed in replays if replayed.fault is None]
    if not replays:
        return Missing("no answer was read again round by round")
    if not read:
        return Missing(f"no answer could be read again, first {replays[0].canary}: {replays[0].fault}")
    if lost := len(replays) - len(read):
        fault = next(f"{replayed.canary}: {replayed.fault}" for replayed in replays if replayed.fault is not None)
        return Missing(f"{lost} of {len(replays)} answers could not be read again, first {fault}", len(read))
    if any(replayed.steady is False for replayed in read):
        return Missing("the target does not give the same bits again for the same rounds", len(read))
    return fact(sum(map(_is_exact, read)) / len(read), len(read), *_notes(read))


def _notes(read: Sequence[Replayed]) -> tuple[str, ...]:
    tokens, rounds = sum(replayed.positions for replayed in read), sum(replayed.rounds for replayed in read)
    notes = [f"{tokens} tokens of {counted(len(read), 'answer')}, read again in their {rounds} rounds"]
    if parted := [replayed for replayed in read if replayed.parted]:
        place = parted[0].parted[0]
        lead = "" if place.gap is None else f", which leads by {place.gap:.3g}"
        notes.append(
            f"{len(parted)} have a token that is not the target's choice in that pass, first {parted[0].canary} at token "
            f"{place.position + 1}: it chooses token {place.target_id}{lead}"
        )
    if impossible := [f"{replayed.canary} {replayed.impossible}" for replayed in read if replayed.impossible]:
        notes.append(f"{len(impossible)} cannot have come from their rounds, first {impossible[0]}")
    return tuple(notes)
