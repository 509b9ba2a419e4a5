"""The table of answers: their bursts and what follows from them, computed once, in columns with a row an answer.

What an answer shows alone, such as the time to its first token, is in `timing`. Plain decoding shows what a burst is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gatekeeper.analysis.metrics.timing import CHUNKS_PER_TOKEN, answer_rate
from gatekeeper.analysis.stats.intervals import Floats, Ints, WeightedValues
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.records.arrivals import UNKNOWN, Arrivals

BURST_SHARE = 0.10
"""Arrivals closer together than this share of plain decoding's mean gap are one burst."""
AT_ONCE = 256
"""Answers that are read together: a hundred thousand tokens in a few megabytes."""
UNCOUNTED = -1
"""A count of tokens that is not known: a chunk of the burst has none."""
_UNKNOWN = np.int64(UNKNOWN).tobytes()

Column = Literal["decode_rate", "seconds_per_token", "speed", "longest_gap"]
Read = Callable[[Answer], float | None]
_Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTable:
    """Answers in columns. Arrivals of one round, or closer together than the burst gap, are one burst.

    A round ends with the target's own token, the one that was not drafted.
    """

    arrivals: tuple[Arrivals, ...]
    row: Mapping[int, int]
    """The row by the identity of an answer's arrivals, which its copies that have a server's counters share."""
    burst_gap: Floats
    """Seconds."""
    decode_rate: Floats
    """Tokens per second after the first burst; NaN with fewer than two bursts or uncounted tokens.

    The first burst ends the prefill. While speculating it is a whole round, which ran before the first arrival:
    counting its tokens as decoded would favour speculation, the more the shorter the answer.
    """
    speed: Floats
    """The decode rate, else the rate of the whole answer."""
    longest_gap: Floats
    """Seconds; NaN for an answer that came in one burst."""
    joined: _Bools
    """Whether a chunk counts as one token, because there are hardly more tokens than uncounted chunks.

    A server holds back the token that ends inside a character, so one such character would leave the gaps of a whole
    workload unproven. Counting fewer tokens than there were makes gaps per token longer, never shorter.
    """
    offsets: Ints
    """Where the bursts of each row begin in the two columns below, and where those of the last row end."""
    gaps_ns: Ints
    """From the start of the burst before to that of each burst; the first of an answer has none."""
    tokens: Ints
    """The tokens of each burst but the first of an answer, or UNCOUNTED."""

    @property
    def seconds_per_token(self) -> Floats:
        """Return the mean seconds per token after the first burst."""
        return 1 / self.decode_rate

    def read(self, column: Column) -> Read:
        """Return the function from an answer of this table to its value in *column*; None where it has none."""
        values: list[float] = getattr(self, column).tolist()

        def value_of(answer: Answer) -> float | None:
            value = values[self.row[id(answer.columns)]]
            return value if value == value else None  # noqa: PLR0124 (NaN alone differs from itself)

        return value_of

    def has(self, answers: Iterable[Generation]) -> bool:
        """Return whether all *answers* have a row."""
        return all(id(generation.answer.columns) in self.row for generation in answers)

    def rows(self, answers: Iterable[Generation]) -> Ints:
        """Return the rows of *answers*."""
        return np.array([self.row[id(generation.answer.columns)] for generation in answers], dtype=np.int64)

    def count_bursts(self, answer: Answer) -> int:
        """Return in how many bursts an answer came, the first one included."""
        row = self.row[id(answer.columns)]
        return int(self.offsets[row + 1] - self.offsets[row]) + bool(len(answer.columns))

    def pool_gaps(self, answers: Sequence[Generation], *, per_token: bool) -> WeightedValues | None:
        """Return the gaps between the bursts of *answers* in seconds, each divided by its tokens where *per_token*.

        A gap then counts as often as it has tokens, and one of no tokens is left out. None where they are not counted.
        """
        bursts = [slice(*self.offsets[row : row + 2]) for row in self.rows(answers)]
        sizes = np.array([part.stop - part.start for part in bursts], dtype=np.int64)
        values = np.concatenate([np.empty(0, np.int8), *(self.gaps_ns[part] for part in bursts)]) / 1e9
        weights = np.broadcast_to(1.0, len(values))
        if per_token:
            tokens = np.concatenate([np.empty(0, np.int8), *(self.tokens[part] for part in bursts)])
            if (tokens == UNCOUNTED).any():
                return None
            if (counted := tokens > 0).all():
                weights = tokens.astype(np.float64) if (tokens > 1).any() else weights
            else:
                sizes = np.array([np.count_nonzero(part) for part in np.split(counted, np.cumsum(sizes)[:-1])])
                values, weights = values[counted], tokens[counted].astype(np.float64)
            values /= weights
        canaries = [generation.canary for generation, size in zip(answers, sizes.tolist(), strict=True) if size]
        return WeightedValues(canaries, sizes[sizes > 0], values, weights)


def burst_gap(plain: Iterable[Generation]) -> float:
    """Return the seconds below which arrivals are one burst: a share of the mean gap of *plain* answers, 0 if unknown.

    Of the means of all answers but warm-ups the median counts, which no pause of the server or this machine moves.
    """
    means = []
    for generation in plain:
        arrivals = generation.answer.columns
        if generation.answer.fault is None and generation.role is not Role.WARMUP and len(arrivals) > 1:
            means.append(arrivals.seconds() / (len(arrivals) - 1))
    return BURST_SHARE * median(means) if means else 0.0


def tabulate(*parts: tuple[Iterable[Generation], float]) -> AnswerTable:
    """Return the table of the answers of all *parts*, each with its burst gap in seconds."""
    answer_and_gap: dict[int, tuple[Answer, float]] = {}
    for answers, gap in parts:
        answer_and_gap |= {id(generation.answer.columns): (generation.answer, gap) for generation in answers}
    rows = [answer for answer, _ in answer_and_gap.values()]
    gaps = np.array([gap for _, gap in answer_and_gap.values()])
    sizes, joined = np.zeros(len(rows), np.int64), np.zeros(len(rows), dtype=bool)
    decode_rate, longest_gap = np.full((2, len(rows)), np.nan)
    # The gaps are written into one column: parts of it, joined at the end, leave holes as large as it in the memory.
    gaps_ns, tokens = np.empty(sum(len(answer.columns) for answer in rows), np.int64), list[Ints]()
    end = 0
    for at in range(0, len(rows), AT_ONCE):
        part = slice(at, at + AT_ONCE)
        sizes[part], decode_rate[part], longest_gap[part], joined[part], *bursts = _read_bursts(rows[part], gaps[part])
        begin, end = end, end + len(bursts[0])
        gaps_ns[begin:end] = bursts[0]
        tokens.append(_narrow(bursts[1]))
    answer_rates = [rate if (rate := answer_rate(answer)) is not None else np.nan for answer in rows]
    return AnswerTable(
        arrivals=tuple(answer.columns for answer in rows),
        row={identity: number for number, identity in enumerate(answer_and_gap)},
        burst_gap=gaps,
        decode_rate=decode_rate,
        speed=np.where(np.isnan(decode_rate), np.array(answer_rates), decode_rate),
        longest_gap=longest_gap,
        joined=joined,
        offsets=np.append(0, np.cumsum(sizes)),
        gaps_ns=_narrow(gaps_ns[:end]),
        tokens=np.concatenate([np.empty(0, np.int8), *tokens]),
    )


def _read_bursts(answers: Sequence[Answer], apart_s: Floats) -> tuple[Ints, Floats, Floats, _Bools, Ints, Ints]:
    """Return the columns of some answers: how many bursts follow the first, what they show, their gaps and tokens."""
    sizes = np.zeros(len(answers), np.int64)
    decode_rate, longest_gap = np.full(len(answers), np.nan), np.full(len(answers), np.nan)
    joined = np.zeros(len(answers), dtype=bool)
    lengths = np.array([len(answer.columns) for answer in answers], dtype=np.int64)
    came = np.flatnonzero(lengths)
    if not len(came):
        return sizes, decode_rate, longest_gap, joined, np.empty(0, np.int64), np.empty(0, np.int64)
    lengths, pieces = lengths[came], [answers[row].columns for row in came.tolist()]
    drafted = np.frombuffer(b"".join(piece.drafted or bytes(len(piece)) for piece in pieces), np.uint8) == 1
    counts = np.frombuffer(b"".join(piece.tokens or _UNKNOWN * len(piece) for piece in pieces), np.int64)
    # Of every arrival: whether it is the first of its answer, and the time since the one before.
    first_of_row = np.cumsum(lengths) - lengths
    is_first = np.zeros(len(counts), dtype=bool)
    is_first[first_of_row] = True
    since_ns = np.zeros(len(counts), np.int64)
    since_ns[~is_first] = np.concatenate([np.empty(0, np.uint32), *(np.asarray(piece.gaps_ns()) for piece in pieces)])
    begins = is_first.copy()
    begins[1:] |= ~(drafted[:-1] | (since_ns[1:] / 1e9 < np.repeat(apart_s[came], lengths)[1:]))
    # Of every burst: where it begins, how many arrivals and tokens it has.
    starts = np.flatnonzero(begins)
    is_later = ~is_first[starts]
    arrived = np.diff(starts, append=len(counts))
    unknown = counts == UNKNOWN
    uncounted = np.logical_or.reduceat(unknown, starts)
    tokens = np.add.reduceat(np.where(unknown, 0, counts), starts)
    times_ns = np.cumsum(since_ns)
    gaps_ns = np.diff(times_ns[starts], prepend=0)[is_later]
    # Of every answer with arrivals: its first burst, and the tokens and seconds after it.
    bursts = np.add.reduceat(begins.astype(np.int64), first_of_row)
    first_burst = np.cumsum(bursts) - bursts
    sizes[came] = bursts - 1
    decoded = np.add.reduceat(tokens * is_later, first_burst).astype(np.float64)
    unsure = np.logical_or.reduceat(uncounted & is_later, first_burst)
    seconds = (times_ns[first_of_row + lengths - 1] - times_ns[first_of_row]) / 1e9
    for at in np.flatnonzero(unsure).tolist():
        output = answers[came[at]].output_tokens
        decoded[at] = 0 if output is None else output * pieces[at].share_from(int(arrived[first_burst[at]]))
    has_rate = (bursts > 1) & (decoded > 0) & (seconds > 0)
    decode_rate[came[has_rate]] = decoded[has_rate] / seconds[has_rate]
    later = sizes[sizes > 0]
    if len(later):
        longest_gap[sizes > 0] = np.maximum.reduceat(gaps_ns, np.cumsum(later) - later) / 1e9
    for at in np.flatnonzero(np.logical_or.reduceat(uncounted, first_burst)).tolist():
        output = answers[came[at]].output_tokens
        joined[came[at]] = output is not None and lengths[at] >= CHUNKS_PER_TOKEN * output
    tokens = np.where(np.repeat(joined[came], bursts), arrived, np.where(uncounted, UNCOUNTED, tokens))[is_later]
    return sizes, decode_rate, longest_gap, joined, gaps_ns, tokens


def _narrow(column: Ints) -> Ints:
    """Return whole numbers in as few bytes as hold them all: a day has millions."""
    least, most = (column.min(), column.max()) if len(column) else (0, 0)
    kinds = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
    fitting = (kind for kind in kinds if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max)
    return column.astype(next(fitting, np.int64))
