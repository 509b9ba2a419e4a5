"""What an answer shows alone: the time to its first token, its rates and its acceptance."""

from collections import Counter
from collections.abc import Iterable

from gatekeeper.core.records import Answer, Generation

CHUNKS_PER_TOKEN = 0.9
"""With fewer chunks a token a server joins tokens, and a chunk says nothing of one token's time."""
FASTEST = 5000.0
"""Tokens per second that no stream has: an answer that shows more was read at once, after a pause of ours."""


def ttft(answer: Answer) -> float | None:
    """Return seconds from the request to the first arrival."""
    first_ns = answer.columns.first_ns
    return None if first_ns is None else (first_ns - answer.sent_ns) / 1e9


def output_tokens(answer: Answer) -> int:
    """Return the tokens of an answer, counted by the backend or arrival by arrival; 0 where they are not counted."""
    return answer.output_tokens or answer.columns.count_tokens() or 0


def answer_rate(answer: Answer) -> float | None:
    """Return output tokens per second from the request to its end."""
    seconds, tokens = answer.seconds, answer.generated_tokens
    return tokens / seconds if tokens and seconds > 0 else None


def prefill_rate(answer: Answer) -> float | None:
    """Return prompt tokens per second of reading them, as the server says; None where it says nothing believable.

    The time to first token holds more: queueing, templates, and with a draft its first round.
    """
    seconds, until_first = answer.claims.prompt_seconds, ttft(answer)
    tokens = answer.claims.prompt_tokens or answer.prompt_tokens
    if not tokens or seconds is None or seconds <= 0 or (until_first is not None and seconds > until_first):
        return None
    return tokens / seconds


def acceptance_rate(answer: Answer) -> float | None:
    """Return accepted over drafted tokens, as we counted them."""
    return answer.rounds.accepted / answer.rounds.drafted if answer.rounds and answer.rounds.drafted else None


def acceptance_length(answer: Answer) -> float | None:
    """Return tokens per verify round."""
    counted = answer.rounds
    return (counted.accepted + counted.rounds) / counted.rounds if counted and counted.rounds else None


def acceptance_by_position(generations: Iterable[Generation]) -> list[float]:
    """Return, by position in a round, the accepted share of the proposed tokens that were reached there."""
    reached, accepted = Counter[int](), Counter[int]()
    for generation in generations:
        if (rounds := generation.answer.rounds) is not None:
            reached.update(dict(enumerate(rounds.tried_by_position)))
            accepted.update(dict(enumerate(rounds.accepted_by_position)))
    shares = list[float]()
    while reached[position := len(shares)]:
        shares.append(accepted[position] / reached[position])
    return shares
