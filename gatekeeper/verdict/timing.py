"""The timing of one answer: its rates, its bursts, and what was accepted of its drafts."""

from itertools import pairwise

from gatekeeper.terms.records import Answer


def ttft(answer: Answer) -> float | None:
    """Return seconds from the request to the first arrival."""
    return (answer.arrivals[0].at_ns - answer.sent_ns) / 1e9 if answer.arrivals else None


def decode_rate(answer: Answer, together_s: float = 0.0) -> float | None:
    """Return tokens per second after the first burst; None with fewer than two bursts or uncounted tokens.

    The first burst ends the prefill. While speculating it holds a whole round, whose time lies before the first
    arrival: counting its tokens as decoded would flatter speculation, the more the shorter the answer.
    """
    first = first_burst(answer, together_s)
    later = answer.arrivals[first:]
    if not later:
        return None
    seconds = (later[-1].at_ns - answer.arrivals[0].at_ns) / 1e9
    counted = [arrival.tokens for arrival in later]
    if all(tokens is not None for tokens in counted):
        tokens = float(sum(tokens or 0 for tokens in counted))
    elif answer.output_tokens is not None:  # chunks of unknown size: each stands for its share of the tokens
        tokens = answer.output_tokens * len(later) / len(answer.arrivals)
    else:
        return None
    return tokens / seconds if seconds > 0 and tokens > 0 else None


def first_burst(answer: Answer, together_s: float) -> int:
    """Count the arrivals of the first burst: a round up to the target's own token, or what arrives together."""
    size = 0
    for before, arrival in pairwise((None, *answer.arrivals)):
        inside = before is not None and (
            before.drafted is True or (arrival is not None and (arrival.at_ns - before.at_ns) / 1e9 < together_s)
        )
        if size and not inside:
            break
        size += 1
    return size


def answer_rate(answer: Answer) -> float | None:
    """Return output tokens per second from the request to its end."""
    seconds = (answer.ended_ns - answer.sent_ns) / 1e9
    return answer.output_tokens / seconds if answer.output_tokens and seconds > 0 else None


def prefill_rate(answer: Answer) -> float | None:
    """Return prompt tokens per second until the first arrival."""
    seconds = ttft(answer)
    return answer.prompt_tokens / seconds if answer.prompt_tokens and seconds else None


def bursts(answer: Answer, together_s: float) -> list[tuple[float, int | None]]:
    """Return (gap in seconds, tokens) of each burst but the first.

    Arrivals of one round, or closer together than *together_s*, are one burst. A round ends with the target's own
    token, the one that was not drafted.
    """
    out: list[tuple[float, int | None]] = []
    begun, last = 0, 0
    inside_round = False
    for number, arrival in enumerate(answer.arrivals):
        joins = number > 0 and (inside_round or (arrival.at_ns - last) / 1e9 < together_s)
        if joins and out:
            gap, tokens = out[-1]
            out[-1] = (gap, None if tokens is None or arrival.tokens is None else tokens + arrival.tokens)
        elif not joins:
            out.append(((arrival.at_ns - begun) / 1e9, arrival.tokens))
        if not joins:
            begun = arrival.at_ns
        last = arrival.at_ns
        inside_round = arrival.drafted is True
    return out[1:]


def acceptance(answer: Answer) -> float | None:
    """Return accepted over drafted tokens, as we counted them."""
    return answer.rounds.accepted / answer.rounds.drafted if answer.rounds and answer.rounds.drafted else None


def acceptance_length(answer: Answer) -> float | None:
    """Return tokens per verify round."""
    counted = answer.rounds
    return (counted.accepted + counted.rounds) / counted.rounds if counted and counted.rounds else None
