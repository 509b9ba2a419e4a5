"""Timing of answers: their rates, their bursts and their acceptance."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

import numpy as np

from gatekeeper.analysis.stats.intervals import Floats, Ints
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.records.arrivals import UNKNOWN, Arrivals
from gatekeeper.core.text import counted
from gatekeeper.core.units import show_seconds

_UNKNOWN = np.int64(UNKNOWN).tobytes()
AT_ONCE = 512
"""Answers whose bursts are found together: a hundred thousand tokens in a few megabytes."""


def ttft(answer: Answer) -> float | None:
    """Return seconds from the request to the first arrival."""
    first_ns = answer.columns.first_ns
    return None if first_ns is None else (first_ns - answer.sent_ns) / 1e9


FASTEST = 5000.0
"""Tokens per second that no stream has: an answer that shows more was read at once, after a pause of ours."""


def decode_rate(answer: Answer, together_s: float = 0.0) -> float | None:
    """Return tokens per second after the first burst; None with fewer than two bursts or uncounted tokens.

    The first burst ends the prefill. While speculating it is a whole round, which ran before the first arrival:
    counting its tokens as decoded would favour speculation, the more the shorter the answer.
    """
    arrivals, second = answer.columns, 1
    gaps, drafted = arrivals.gaps_ns(), arrivals.drafted
    count = len(gaps) + 1
    while second < count and ((drafted and drafted[second - 1] == 1) or gaps[second - 1] / 1e9 < together_s):
        second += 1
    if second >= count or arrivals.first_ns is None or arrivals.last_ns is None:
        return None
    seconds = (arrivals.last_ns - arrivals.first_ns) / 1e9
    tokens: float | None = tokens_from(arrivals.tokens, second)
    if tokens is None and answer.output_tokens is not None:
        tokens = answer.output_tokens * share_from(arrivals, second)
    return tokens / seconds if tokens is not None and tokens > 0 and seconds > 0 else None


@lru_cache(maxsize=4096)
def tokens_from(column: bytes, first: int) -> int | None:
    """Return the number of tokens from the *first* arrival on; None where one arrival has no count."""
    counted = memoryview(column).cast("q")[first:].tolist()
    return sum(counted) if counted and UNKNOWN not in counted else None


def share_from(arrivals: Arrivals, first: int) -> float:
    """Return the share of an answer's tokens that its arrivals from the *first* on stand for: their share of the text.

    A server that sends the beginning at once, and the rest piece by piece, decoded the pieces alone in the time between
    them. Where no text is known, each arrival stands for as many.
    """
    if not arrivals.characters:
        return (len(arrivals) - first) / len(arrivals)
    sizes = memoryview(arrivals.characters).cast("q").tolist()
    return sum(sizes[first:]) / (sum(sizes) or 1)


def output_tokens(answer: Answer) -> int:
    """Return the tokens of an answer, counted by the backend or arrival by arrival; 0 where they are not counted."""
    return answer.output_tokens or tokens_from(answer.columns.tokens, 0) or 0


def seconds_per_token(answer: Answer) -> float | None:
    """Return the mean seconds per output token after the first burst."""
    rate = decode_rate(answer)
    return 1 / rate if rate else None


def answer_rate(answer: Answer) -> float | None:
    """Return output tokens per second from the request to its end."""
    seconds, tokens = answer.seconds, answer.generated_tokens
    return tokens / seconds if tokens and seconds > 0 else None


def decode_or_answer_rate(answer: Answer) -> float | None:
    """Return the decode rate, or the rate of the whole answer if it came in one burst."""
    return decode_rate(answer) or answer_rate(answer)


def live_rate(answer: Answer) -> float | None:
    """Return the decode rate for a live view, or that of the whole answer; None where its pieces were read together.

    On a busy machine a stream is read long after it arrived, all at once: its gaps are then those of reading. Pieces
    that carry what was drafted were timed where they were decoded.
    """
    columns = answer.columns
    gaps = columns.gaps_ns()
    reads = 1 + sum(gap > READ_TOGETHER_S * 1e9 for gap in gaps)
    if len(gaps) and not columns.drafted and reads < min(LEAST_READS, len(gaps) + 1):
        return None
    rate = decode_rate(answer, 0.0 if columns.drafted else READ_TOGETHER_S) or answer_rate(answer)
    return rate if rate is not None and rate < FASTEST else None


LEAST_READS = 4
"""Fewer reads than this say nothing of the speed at which an answer was decoded."""
READ_TOGETHER_S = 100e-6
"""Pieces closer together than this were read together."""


def prefill_rate(answer: Answer) -> float | None:
    """Return prompt tokens per second of reading them, as the server says; None where it says nothing believable.

    The time to first token holds more: queueing, templates, and with a draft its first round.
    """
    seconds, until_first = answer.claims.prompt_seconds, ttft(answer)
    tokens = answer.claims.prompt_tokens or answer.prompt_tokens
    if not tokens or seconds is None or seconds <= 0 or (until_first is not None and seconds > until_first):
        return None
    return tokens / seconds


@dataclass(frozen=True, slots=True)
class Bursts:
    """The bursts of several answers but the first of each, in columns."""

    sizes: Ints
    """How many there are of each answer."""
    gaps: Floats
    """Seconds from the start of the burst before to its own."""
    tokens: Ints
    """UNKNOWN where an arrival of the burst has no count."""

    def per_token(self) -> "TokenGaps":
        """Return each gap divided by its tokens; bursts without counted tokens are left out."""
        counted = self.tokens > 0
        tokens = self.tokens[counted].astype(np.float64)
        values = self.gaps[counted]
        values /= tokens
        sizes = np.add.reduceat(np.append(counted, False), np.cumsum(self.sizes) - self.sizes, dtype=np.int64)
        return TokenGaps(np.where(self.sizes > 0, sizes, 0), values, tokens)


@dataclass(frozen=True, slots=True)
class TokenGaps:
    """The gaps of answers per token, in columns."""

    sizes: Ints
    """How many there are of each answer."""
    values: Floats
    """Seconds."""
    tokens: Floats
    """How many tokens each of them stands for."""


def bursts(answer: Answer, together_s: float) -> list[tuple[float, int | None]]:
    """Return (gap in seconds, tokens) of each burst but the first; a gap runs from start to start."""
    gathered = gather_bursts([answer], together_s)
    tokens = [None if count == UNKNOWN else count for count in gathered.tokens.tolist()]
    return list(zip(gathered.gaps.tolist(), tokens, strict=True))


def longest_gap(answer: Answer, together_s: float) -> float | None:
    """Return the longest gap in seconds; None for an answer that came in one burst. See `gather_bursts`."""
    columns, bursts_ns, since_ns = answer.columns, list[int](), 0
    for gap_ns, drafted in zip(columns.gaps_ns(), columns.drafted or repeat(0), strict=False):
        since_ns += gap_ns
        if drafted != 1 and gap_ns / 1e9 >= together_s:
            bursts_ns.append(since_ns)
            since_ns = 0
    return max(bursts_ns) / 1e9 if bursts_ns else None


def arrived_at_once(answers: Sequence[Answer], together_s: float) -> str:
    """Return how many answers have no decode speed because they arrived at once, and what would show one.

    Empty where none did. A server's own time is no speed of ours: it shows whether the answer was held back until its
    end. Otherwise one delay on the way covered all of it, and an answer of twice the tokens cannot come in that. A few
    among many that came in pieces, and are no longer, were held back by no server: a busy machine read them late.
    """
    came = [answer for answer in answers if answer.arrivals]
    whole = [answer for answer in came if not longest_gap(answer, together_s)]
    if not whole:
        return ""
    tokens = max(map(output_tokens, whole))
    no_longer = sum(output_tokens(answer) <= tokens for answer in came)
    claimed = max((answer.claims.decode_seconds or 0.0 for answer in whole), default=0.0)
    text = f"{len(whole)} of {len(answers)} answers arrived at once, the longest of {counted(tokens, 'token')}"
    text += f", decoded in up to {show_seconds(claimed)} by the server's own timings" if claimed else ""
    if all(answer.tool_calls for answer in whole):
        return f"{text}: a tool call comes whole, use answer_throughput_ratio"
    if len(whole) <= LATE_SHARE * no_longer:
        in_pieces = f"{no_longer - len(whole)} others of at most this length came in pieces"
        return f"{text}; {in_pieces}, so these were read late: close other programs, or measure later"
    if claimed > _HELD_BACK_S:
        return f"{text}: the server holds them back, use answer_throughput_ratio"
    if all(answer.finish == "length" for answer in whole):
        return f"{text}: set max_tokens to {2 * tokens} or more"
    return f"{text}: use prompts with answers of {2 * tokens} tokens or more"


LATE_SHARE = 0.25
"""Of the answers up to a length at most this share is read late; a server that holds back one arm holds back half."""
_HELD_BACK_S = 0.1
"""Seconds: the beginning of an answer that took longer was not delayed on the way, but kept by its server."""


def gather_bursts(answers: Sequence[Answer], together_s: float) -> Bursts:
    """Find the bursts of *answers*: arrivals of one round, or closer together than *together_s* seconds, are one burst.

    A round ends with the target's own token, the one that was not drafted.
    """
    most = sum(len(answer.arrivals) for answer in answers)
    sizes, gaps, tokens = np.zeros(len(answers), np.int64), np.empty(most), np.empty(most, np.int64)
    end = 0
    for start in range(0, len(answers), AT_ONCE):
        part = _gather([answer.columns for answer in answers[start : start + AT_ONCE]], together_s)
        begin, end = end, end + len(part[1])
        sizes[start : start + AT_ONCE], gaps[begin:end], tokens[begin:end] = part
    return Bursts(sizes, gaps[:end], tokens[:end])


def _gather(answers: Sequence[Arrivals], together_s: float) -> tuple[Ints, Floats, Ints]:
    lengths = np.array([len(arrivals) for arrivals in answers], dtype=np.int64)
    with_arrivals = [arrivals for arrivals in answers if len(arrivals)]
    if not with_arrivals:
        return np.zeros(len(answers), np.int64), np.empty(0), np.empty(0, np.int64)
    drafted = (
        np.frombuffer(b"".join(arrivals.drafted or bytes(len(arrivals)) for arrivals in with_arrivals), np.uint8) == 1
    )
    counted = np.frombuffer(
        b"".join(arrivals.tokens or _UNKNOWN * len(arrivals) for arrivals in with_arrivals), np.int64
    )
    first = np.zeros(len(counted), dtype=bool)
    first[np.cumsum(lengths[lengths > 0])[:-1]] = first[0] = True
    since = np.zeros(len(counted), np.int64)
    since[~first] = gaps_of(with_arrivals)
    begins = first.copy()
    begins[1:] |= ~(drafted[:-1] | (since[1:] / 1e9 < together_s))
    starts = np.flatnonzero(begins)
    tokens = np.add.reduceat(counted, starts)
    tokens[np.logical_or.reduceat(counted == UNKNOWN, starts)] = UNKNOWN
    later = ~first[starts]
    times = np.cumsum(since)
    gaps = np.diff(times[starts], prepend=0)[later] / 1e9
    sizes = np.zeros(len(answers), np.int64)
    sizes[lengths > 0] = np.add.reduceat(begins.astype(np.int64), np.flatnonzero(first)) - 1
    return sizes, gaps, tokens[later]


def gaps_of(answers: Sequence[Arrivals]) -> Ints:
    """Return the gaps between the arrivals of each of the *answers*, one answer after the other, in nanoseconds."""
    return np.concatenate([np.empty(0, np.uint32), *(np.asarray(arrivals.gaps_ns()) for arrivals in answers)])


def came_in_bursts(answer: Answer, together_s: float) -> bool:
    """Return whether an answer came in clearly fewer bursts than it has tokens; a stop token without text adds none."""
    count = len(bursts(answer, together_s)) + bool(answer.arrivals)
    return (answer.output_tokens or 0) > BURSTY * count


BURSTY = 1.2
"""More tokens per burst than this are not one token at a time."""


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
