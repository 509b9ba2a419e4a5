"""A server's own counters (claims): used where ours are missing, and labelled."""

from collections.abc import Iterable
from dataclasses import replace

from gatekeeper.core.judgement import Estimate
from gatekeeper.core.records import Answer, Generation, Rounds

CLAIMS_NOTE = "as the server reports"


def with_claimed_rounds(answers: Iterable[Generation]) -> tuple[Generation, ...]:
    """Return *answers* with the server's counters instead of ours; None where it reports none."""
    return tuple(map(_with_claimed_rounds, answers))


def _with_claimed_rounds(generation: Generation) -> Generation:
    rounds = claimed_rounds(generation.answer)
    if rounds == generation.answer.rounds:
        return generation
    return replace(generation, answer=replace(generation.answer, rounds=rounds))


def claimed_rounds(answer: Answer) -> Rounds | None:
    """Return a server's counters of one answer, in our terms.

    Rounds that it does not report follow from its figures: each round emits the accepted tokens and one more. Without
    the drafted tokens there is an acceptance length and no rate.
    """
    claims = answer.claims
    rounds = claims.rounds
    if claims.accepted is None or (claims.drafted is None and rounds is None):
        return None
    if rounds is None:
        rounds = max(0, (answer.generated_tokens or 0) - claims.accepted)
    accepted = claims.accepted_by_position
    tried = claims.tried_by_position if len(claims.tried_by_position) == len(accepted) else ()
    return Rounds(rounds, claims.drafted or 0, claims.accepted, tried, accepted)


def tallies(answer: Answer) -> list[tuple[str, int, int]]:
    """Return (whose, drafted, accepted) of an answer: ours, the server's claim, both or neither."""
    counted = [("counted", answer.rounds.drafted, answer.rounds.accepted)] if answer.rounds is not None else []
    claims = answer.claims
    if claims.drafted is None or claims.accepted is None:
        return counted
    return [*counted, ("claimed", claims.drafted, claims.accepted)]


def drafted_by_answer(answers: Iterable[Generation]) -> list[int]:
    """Return the drafted tokens of each answer that has them counted or claimed, and more than one token."""
    return [
        max(drafted for _, drafted, _ in counted)
        for generation in answers
        if (generation.answer.output_tokens or 0) > 1 and (counted := tallies(generation.answer))
    ]


def counted_or_claimed(answers: tuple[Generation, ...]) -> tuple[tuple[Generation, ...], bool]:
    """Return *answers* with the best counters there are, and whether these are the server's claims."""
    if any(generation.answer.rounds is not None for generation in answers):
        return answers, False
    claimed = with_claimed_rounds(answers)
    return claimed, any(generation.answer.rounds is not None for generation in claimed)


def labelled_as_claims(estimate: Estimate) -> Estimate:
    """Return *estimate*, labelled as resting on claims."""
    return replace(estimate, notes=(*estimate.notes, CLAIMS_NOTE))
