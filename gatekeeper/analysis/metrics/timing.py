"""Timing of one answer: its rates, its bursts and its acceptance."""

from collections.abc import Sequence
from itertools import pairwise

from gatekeeper.core.records import Answer, Arrival


def ttft(answer: Answer) -> float | None:
    """Return seconds from the request to the first arrival."""
    return (answer.arrivals[0].at_ns - answer.sent_ns) / 1e9 if answer.arrivals else None


def decode_rate(answer: Answer, together_s: float = 0.0) -> float | None:
    """Return tokens per second after the first burst; None with fewer than two bursts or uncounted tokens.

    The first burst ends the prefill. While speculating it is a whole round, which ran before the first arrival:
    counting its tokens as decoded would favour speculation, the more the shorter the answer.
    """
    pairs = enumerate(pairwise(answer.arrivals), start=1)
    second = next((at for at, (before, arrival) in pairs if not _together(before, arrival, together_s)), None)
    if second is None:
        return None
    later = answer.arrivals[second:]
    seconds = (later[-1].at_ns - answer.arrivals[0].at_ns) / 1e9
    tokens: float | None = _tokens(later)
    if tokens is None and answer.output_tokens is not None:  # each chunk stands for its share of the tokens
        tokens = answer.output_tokens * len(later) / len(answer.arrivals)
    return tokens / seconds if tokens is not None and tokens > 0 and seconds > 0 else None


def answer_rate(answer: Answer) -> float | None:
    """Return output tokens per second from the request to its end."""
    seconds = (answer.ended_ns - answer.sent_ns) / 1e9
    return answer.output_tokens / seconds if answer.output_tokens and seconds > 0 else None


def decode_or_answer_rate(answer: Answer) -> float | None:
    """Return the decode rate, or the rate of the whole answer if it came in one burst."""
    return decode_rate(answer) or answer_rate(answer)


def prefill_rate(answer: Answer) -> float | None:
    """Return prompt tokens per second until the first arrival."""
    seconds = ttft(answer)
    return answer.prompt_tokens / seconds if answer.prompt_tokens and seconds else None


def bursts(answer: Answer, together_s: float) -> list[tuple[float, int | None]]:
    """Return (gap in seconds, tokens) of each burst but the first; a gap runs from start to start."""
    return [
        ((burst[0].at_ns - before[0].at_ns) / 1e9, _tokens(burst))
        for before, burst in pairwise(split_bursts(answer.arrivals, together_s))
    ]


def split_bursts(arrivals: Sequence[Arrival], together_s: float) -> list[list[Arrival]]:
    """Return the arrivals burst by burst: those of one round, or closer together than *together_s*, are one burst.

    A round ends with the target's own token, the one that was not drafted.
    """
    out = [[one] for one in arrivals[:1]]
    for before, arrival in pairwise(arrivals):
        if _together(before, arrival, together_s):
            out[-1].append(arrival)
        else:
            out.append([arrival])
    return out


def _together(before: Arrival, arrival: Arrival, together_s: float) -> bool:
    return before.drafted is True or (arrival.at_ns - before.at_ns) / 1e9 < together_s


def came_in_bursts(answer: Answer, together_s: float) -> bool:
    """Return whether an answer came in clearly fewer bursts than it has tokens; a stop token without text adds none."""
    return (answer.output_tokens or 0) > BURSTY * len(split_bursts(answer.arrivals, together_s))


BURSTY = 1.2
"""More tokens per burst than this are not one token at a time."""


def _tokens(arrivals: Sequence[Arrival]) -> int | None:
    """Return the number of tokens; None where one arrival has no count."""
    counted = [one.tokens for one in arrivals if one.tokens is not None]
    return sum(counted) if len(counted) == len(arrivals) else None


def acceptance_rate(answer: Answer) -> float | None:
    """Return accepted over drafted tokens, as we counted them."""
    return answer.rounds.accepted / answer.rounds.drafted if answer.rounds and answer.rounds.drafted else None


def acceptance_length(answer: Answer) -> float | None:
    """Return tokens per verify round."""
    counted = answer.rounds
    return (counted.accepted + counted.rounds) / counted.rounds if counted and counted.rounds else None
