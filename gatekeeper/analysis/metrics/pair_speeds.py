"""The speeds of paired answers: how much sooner the candidate does the same work, pair by pair.

A ratio of speeds is the total time of plain decoding over that of the candidate for the same tokens. The geometric mean
of the pairs' ratios rewards a spread of ratios: with a third of the prompts at 2.2x and two thirds at 0.85x it is
1.17x, where the same work is done 1.07x as fast.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from gatekeeper.analysis.metrics.answer_table import Read
from gatekeeper.analysis.metrics.lost_pairs import Pair, similar_lengths
from gatekeeper.analysis.metrics.timing import output_tokens
from gatekeeper.analysis.stats.total_time import PairLogs, linearise_times
from gatekeeper.core.records import Generation


@dataclass(frozen=True, slots=True)
class PairSpeed:
    """What one pair shows of the speed of both arms."""

    canary: str
    log_ratio: float
    """The log of the candidate's value over plain decoding's; -inf where one of them is not positive."""
    plain_s: float
    """Seconds that plain decoding takes for the tokens of the pair: the mean of both lengths, so that a sampled answer
    that ended early favours neither arm."""
    candidate_s: float

    @property
    def times(self) -> tuple[str, float, float]:
        """Return the canary and both times."""
        return self.canary, self.plain_s, self.candidate_s


def pair_speed(pair: Pair, read: Read, least: float | None, second: Generation | None = None) -> PairSpeed | None:
    """Return the speeds of a pair by *read*, a rate; None where it is lost to a fault, a missing value or its lengths.

    Lengths whose ratio is below *least* are other work; None: any length will do. Plain decoding is the mean of the
    pair's answer and a *second* one, where that can be compared as well.
    """
    candidate, plain = pair
    if (values := _values(candidate, plain, read, least)) is None:
        return None
    value, other = values
    log_ratio, lengths, per_token_s = _log_ratio(value, other), float(output_tokens(plain.answer)), 1 / other
    if second is not None and (values := _values(candidate, second, read, least)) is not None:
        log_ratio = fmean((log_ratio, _log_ratio(*values)))
        lengths = fmean((lengths, output_tokens(second.answer)))
        per_token_s = fmean((per_token_s, 1 / values[1]))
    tokens = (output_tokens(candidate.answer) + lengths) / 2
    candidate_s = tokens / value if value > 0 else math.inf
    return PairSpeed(candidate.canary, log_ratio, tokens * per_token_s, candidate_s)


def _log_ratio(value: float, other: float) -> float:
    return math.log(value / other) if value / other > 0 else -math.inf


def _values(candidate: Generation, plain: Generation, read: Read, least: float | None) -> tuple[float, float] | None:
    """Return the values of a pair; None where it is lost."""
    if candidate.answer.fault is not None or plain.answer.fault is not None:
        return None
    value, other = read(candidate.answer), read(plain.answer)
    if value is None or not other or (least is not None and not similar_lengths((candidate, plain), least)):
        return None
    return value, other


def pair_speeds(pairs: Iterable[Pair], read: Read, least: float | None) -> tuple[list[PairSpeed], int]:
    """Return the speeds of the pairs, and how many pairs are lost."""
    speeds = [pair_speed(pair, read, least) for pair in pairs]
    kept = [speed for speed in speeds if speed is not None]
    return kept, len(speeds) - len(kept)


def pair_logs(speeds: Sequence[PairSpeed], before: Sequence[PairSpeed] = (), *, total: bool) -> PairLogs:
    """Return the logs whose mean is that of the ratio: of *total* times, else the geometric mean of the pairs."""
    if total:
        return linearise_times([speed.times for speed in speeds], [speed.times for speed in before])
    logs, earlier = ([(speed.canary, speed.log_ratio) for speed in part] for part in (speeds, before))
    return PairLogs(logs, earlier)
