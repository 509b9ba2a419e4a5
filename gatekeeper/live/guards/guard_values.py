"""The values of a guard's metric in recent answers, and how a stretch of them is bounded."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from statistics import NormalDist
from typing import Any, TypeVar

from gatekeeper.analysis.metrics.pair_speeds import pair_speed
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.metrics.readers import answer_reader
from gatekeeper.analysis.metrics.server_claims import CLAIMS_NOTE, counted_or_claimed
from gatekeeper.analysis.stats import intervals, sequential
from gatekeeper.analysis.stats.total_time import linearise_times
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.metrics import BY_NAME, DECODE_RATIO
from gatekeeper.core.policy import MeasuredRoute, MeasuredValue
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.slo import CONFIDENCE
from gatekeeper.core.text import quote
from gatekeeper.live.guards.fall_detection import WeightedValue
from gatekeeper.live.running.deployed_server import CounterGain

T = TypeVar("T")

MIN_SHARE_VALUES = 8
"""The fewest values for which a share is judged; one failed answer is not enough."""

BoundSeries = Callable[[Sequence[Any], float], Estimate | Missing]


@dataclass(frozen=True, slots=True)
class GuardSeries:
    """The values of one metric, the oldest first, and how a stretch of them is bounded at an error on each side.

    A canary set is frozen and requested in a shuffled rotation, and each answer counts as an independent draw from it.
    Whole rounds of the set scatter less than independent draws, so the interval errs towards undecided.
    """

    values: tuple[Any, ...]
    """Numbers; of a ratio of speeds the seconds of both arms for the same tokens, plain decoding's first."""
    newest_ns: int | None
    bounded: BoundSeries
    least: Callable[[float], int]
    """The fewest values that can be bounded at a given error."""
    notes: tuple[str, ...] = ()
    slack: float = 0.0
    """A violation by less than this share of the bound does not count."""
    missing: str = ""
    """Why the values are not available or not reliable."""


def ratio_series(evidence: PairedAnswers, measured: MeasuredRoute, slack: float) -> GuardSeries:
    """Return speculative over plain speed, pair by pair; without plain answers the speed over the certified one.

    The second also falls when both arms slow down (heat, another program), so a loss of up to *slack* is ignored.
    """
    if not evidence.plain:
        return _against_certified(evidence, measured, slack)
    read = answer_reader(DECODE_RATIO).on(evidence)
    speeds = [(pair, pair_speed(pair, read, evidence.least_length)) for pair in evidence.pairs]
    times = [
        (max(generation.answer.ended_ns for generation in pair), (speed.plain_s, speed.candidate_s))
        for pair, speed in speeds
        if speed is not None
    ]
    lost = len(speeds) - len(times)
    return GuardSeries(
        *_in_time_order(times),
        bounded=partial(total_time_bounds, least_spread=certified_spread(measured.throughput_ratio)),
        least=lambda _: sequential.MIN_CANARIES,
        notes=("against paired plain requests",),
        missing=evidence.too_many_lost(lost) or "",
    )


def certified_spread(certified: MeasuredValue | None) -> float:
    """Return how much the canaries of a frozen set differ (deviation of their logs), by their certified interval.

    Eight canaries in a row may be similar by chance; the soak saw all of them. 0 where the interval is unusable. Read
    at the default confidence, which widens it where the run split its error over ladder steps.
    """
    if certified is None or certified.n < 2 or not 0 < certified.lo <= certified.hi:
        return 0.0
    half = math.log(certified.hi / certified.lo) / 2
    return half * math.sqrt(certified.n) / intervals.student_quantile(CONFIDENCE, certified.n - 1)


def _against_certified(evidence: PairedAnswers, measured: MeasuredRoute, slack: float) -> GuardSeries:
    speed, ratio = measured.decode_throughput, measured.throughput_ratio
    speed_series = median_series("decode_throughput", evidence)
    if speed is None or ratio is None or speed.center <= 0:
        reason = "plain decoding is not available, and the policy has no measured speed to compare with"
        return GuardSeries((), None, speed_series.bounded, speed_series.least, missing=reason)
    certified = ratio.center / speed.center
    note = f"against the certified speed, as plain decoding is not available; {slack:.0%} slower is tolerated"
    scaled = tuple(value * certified for value in speed_series.values)
    return replace(speed_series, values=scaled, notes=(note,), slack=slack)


def median_series(metric: str, evidence: PairedAnswers) -> GuardSeries:
    """Return a metric answer by answer, its median to be bounded; rounds are counted, or else the server's claims."""
    from_rounds = BY_NAME[metric].from_rounds
    answers, claimed = counted_or_claimed(evidence.answers) if from_rounds else (evidence.answers, False)
    values = _in_time_order(_read_values(answers, answer_reader(metric).on(evidence)))
    return GuardSeries(*values, bounded=median_bounds, least=median_min_values, notes=(CLAIMS_NOTE,) if claimed else ())


MOST_DRAFTED = 16
"""Draft tokens of a round, at most: a server that counts no rounds had at least so many fewer."""
LEAST_SPREAD = 0.15
"""Least deviation of one answer's acceptance: real prompts differ more than canaries do."""


def acceptance_spread(certified: MeasuredValue | None) -> float:
    """Return the deviation of one answer's acceptance, by the certified interval of their median."""
    if certified is None or certified.n < 2:
        return LEAST_SPREAD
    median_error = math.sqrt(math.pi / 2) * NormalDist().inv_cdf(CONFIDENCE)
    return max(LEAST_SPREAD, (certified.hi - certified.lo) / 2 * math.sqrt(certified.n) / median_error)


def acceptance_units(evidence: PairedAnswers) -> tuple[list[WeightedValue], tuple[str, ...]]:
    """Return acceptance answer by answer, the oldest first, for the detection of a fall, and the notes about it."""
    answers, claimed = counted_or_claimed(evidence.answers)
    values = sorted(_read_values(answers, answer_reader("acceptance_rate").on(evidence)))
    units = [WeightedValue(ended_ns, value) for ended_ns, value in values]
    return units, (CLAIMS_NOTE,) if claimed else ()


def counter_units(gains: Iterable[CounterGain], answer_tokens: int) -> list[WeightedValue]:
    """Return acceptance by the server's own counters, joined until each value holds the tokens of a whole answer.

    *answer_tokens* are those of the longest certified answer, so no value counts for more answers than it has.
    """
    units: list[WeightedValue] = []
    drafted = accepted = tokens = 0
    for gain in gains:
        drafted, accepted = drafted + gain.drafted, accepted + gain.accepted
        tokens += gain.accepted + (gain.drafted // MOST_DRAFTED if gain.rounds is None else gain.rounds)
        if drafted and tokens >= answer_tokens:
            units.append(WeightedValue(gain.at_ns, accepted / drafted, tokens // answer_tokens))
            drafted = accepted = tokens = 0
    return units


def fault_series(evidence: PairedAnswers) -> GuardSeries:
    """Return 1 for each answer that failed, else 0, and what failed last."""
    answers = [generation.answer for generation in evidence.answers]
    failed = [answer for answer in answers if answer.fault is not None]
    last = max(failed, key=lambda answer: answer.ended_ns, default=None)
    notes = (f"last fault: {quote(last.fault or '')}",) if last is not None else ()
    return _share_series(((answer.ended_ns, answer.fault is not None) for answer in answers), *notes)


def pass_series(evidence: PairedAnswers, kind: str | None = None) -> GuardSeries:
    """Return 1 for each answer that its canary expects, else 0; canaries of one *kind*, or all."""
    return _share_series((generation.answer.ended_ns, passed) for generation, passed in _grade_answers(evidence, kind))


def pass_rate_of_whole_set(evidence: PairedAnswers, kind: str | None) -> float | None:
    """Return the share of a frozen set that passes, once every canary of a *kind* was graded alike twice; else None."""
    grades: dict[str, list[bool]] = {name: [] for name in _of_kind(evidence, kind)}
    for generation, passed in _grade_answers(evidence, kind):
        grades[generation.canary].append(passed)
    if not grades or any(len(passes) < 2 or len(set(passes)) > 1 for passes in grades.values()):
        return None
    return sum(passes[0] for passes in grades.values()) / len(grades)


def _of_kind(evidence: PairedAnswers, kind: str | None) -> dict[str, Canary]:
    """Return the canaries that expect an answer of a *kind*, or any answer."""
    expecting = {
        name: (canary, canary.expect) for name, canary in evidence.canaries.items() if canary.expect is not None
    }
    return {name: canary for name, (canary, expect) in expecting.items() if kind in {None, expect.kind}}


def _grade_answers(evidence: PairedAnswers, kind: str | None) -> Iterator[tuple[Generation, bool]]:
    canaries = _of_kind(evidence, kind)
    for generation in evidence.answers:
        passed = canaries[generation.canary].grade(generation.answer) if generation.canary in canaries else None
        if passed is not None:
            yield generation, passed


def _read_values(
    answers: Iterable[Generation], value_of: Callable[[Answer], float | None]
) -> Iterator[tuple[int, float]]:
    for generation in successful(answers):
        if (value := value_of(generation.answer)) is not None:
            yield generation.answer.ended_ns, value


def _share_series(values: Iterable[tuple[int, bool]], *notes: str) -> GuardSeries:
    numbers = ((ended_ns, float(value)) for ended_ns, value in values)
    return GuardSeries(*_in_time_order(numbers), bounded=share_bounds, least=lambda _: MIN_SHARE_VALUES, notes=notes)


def _in_time_order(values: Iterable[tuple[int, T]]) -> tuple[tuple[T, ...], int | None]:
    ordered = sorted(values, key=lambda pair: pair[0])
    return tuple(value for _, value in ordered), ordered[-1][0] if ordered else None


def total_time_bounds(times: Sequence[tuple[float, float]], error: float, least_spread: float) -> Estimate | Missing:
    """Bound the total plain time over the total time of the candidate, each side with *error*; a pair is a unit."""
    logs = linearise_times([(str(number), *seconds) for number, seconds in enumerate(times)]).logs
    return sequential.interval([log for _, log in logs], error, least_spread)


def median_bounds(values: Sequence[float], error: float) -> Estimate | Missing:
    """Bound the median by order statistics, each side with *error*."""
    return intervals.quantile(values, 0.5, 1 - error)


def median_min_values(error: float) -> int:
    """Return the fewest values whose median can be bounded."""
    return intervals.samples_needed(0.5, 1 - error)


def share_bounds(values: Sequence[float], error: float) -> Estimate | Missing:
    """Bound the share of ones exactly, each side with *error*."""
    n, count = len(values), round(math.fsum(values))
    if not n:
        return Missing("no graded answers yet")
    return Estimate(count / n, *_proportion(count, n, 1 - error), n, confidence=1 - error)


_proportion = lru_cache(maxsize=4096)(intervals.proportion_bounds)
