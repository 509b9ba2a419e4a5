"""Verify rounds from the timing of bursts, for servers that report none: a mixture of two kinds of gaps an answer.

Tokens of one round follow each other at once; between two rounds the target makes a pass. A pass takes at least about
as long as a plain token, which the plain arm shows. It also shows what a server does to the timing: where plain
decoding comes in bursts as well, the server buffers, and rounds cannot be seen.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, successful
from gatekeeper.analysis.stats.intervals import Floats
from gatekeeper.core.records import Answer, Generation, Rounds
from gatekeeper.core.slo import ADAPTIVE
from gatekeeper.core.verdict import UNSEEN, Estimate, Missing

TIMING_NOTE = "inferred from the timing of bursts"
LEAST_TOKENS = 16
"""A shorter answer has too few gaps to fit a mixture."""
LEAST_PLAIN = 60
"""Gaps of plain decoding: where none of them looks merged, a share of 5 % is excluded with 95 % confidence."""
MOST_MERGED = 0.05
"""Share of plain decoding's gaps that may look like gaps within a round."""
MOST_HELD_BACK = 0.10
"""Share of plain decoding's tokens that may come without a chunk of their own."""
SPLIT = 0.22
"""The mixture starts with gaps under this share of a plain token's as within a round: between a tenth and a half."""
SEPARATION = 3.0
"""The least distance of both kinds, in standard deviations of the logarithm."""
LEAST_SPREAD = 0.25
"""Standard deviation of a logarithm: no kind of gap is steadier, however few of them there are."""
FASTEST_ROUND = 0.8
"""A round holds a pass of the target: where the median round takes less of a plain token's time, the server paces."""
SLOW_ROUND, TIMER, PILED_UP = 1.1, 0.02, 0.2
"""Under so many plain tokens' time, a fifth of the gaps within 2 % of each other are a timer's, not rounds."""
STALL = 0.6
"""A gap under this share of the median between rounds may be a stall within one: both readings are in the interval."""
SPLIT_ROUNDS = 0.02
"""Share of the gaps within rounds that may be as long as a pass: the machine was busy with something else."""
MOST_REFUSED = 0.10
"""With a larger share of answers whose rounds cannot be seen, the others do not stand for all."""
_FLOOR_S = 1e-6
_STEPS = 100


@dataclass(frozen=True, slots=True)
class PlainTiming:
    """What plain decoding shows of a server's timing."""

    gap: float
    """Seconds: the median between two chunks."""
    merged: float
    """An upper bound of the share of gaps that look like gaps within a round."""
    held_back: float
    """Share of the tokens without a chunk of their own."""


@dataclass(frozen=True, slots=True)
class TimedRounds:
    """The rounds of one answer, and the interval for them."""

    tokens: int
    rounds: float
    least: float
    most: float
    silent: int = 0
    """1 where a stop token without text may belong to a round as well."""

    @property
    def length(self) -> tuple[float, float, float]:
        """Return tokens per round: the estimate, and both ends of its interval."""
        least, most = max(1.0, self.tokens / self.most), (self.tokens + self.silent) / self.least
        return self.tokens / self.rounds, least, most


def plain_timing(plain: Iterable[Generation]) -> PlainTiming | Missing:
    """Return the timing of plain answers; Missing where it shows that rounds cannot be seen."""
    answers = [
        generation.answer
        for generation in successful(plain)
        if not generation.answer.rounds and generation.answer.output_tokens
    ]
    gaps = np.concatenate([np.empty(0), *map(_gaps, answers)])
    if len(gaps) < LEAST_PLAIN:
        return Missing(
            f"plain decoding shows {len(gaps)} gaps; {LEAST_PLAIN} are needed to tell rounds from its timing"
        )
    gap = float(np.median(gaps))
    merged = int((gaps < SPLIT * gap).sum()) if gap > 0 else len(gaps)
    tokens, chunks = (
        sum(column) for column in zip(*((_tokens(answer), len(answer.arrivals)) for answer in answers), strict=True)
    )
    held_back = 1 - chunks / tokens
    if merged > MOST_MERGED * len(gaps) or held_back > MOST_HELD_BACK:
        joined = f"{100 * merged / len(gaps):.0f} % come together with the one before"
        inside = f"{100 * max(0.0, held_back):.0f} % inside another's chunk"
        reason = f"rounds {UNSEEN}: of plain decoding's tokens {joined}, {inside}"
        return Missing(f"{reason}, so the server buffers or this machine is busy", len(answers))
    return PlainTiming(gap, (merged + 3) / len(gaps), max(0.0, held_back))  # 3: the rule of three for none seen


def timed_rounds(answer: Answer, plain: PlainTiming, drafted: int | None) -> TimedRounds | str:
    """Return the rounds of a speculating *answer*, or why they cannot be seen.

    *drafted* is the draft length, where it is known: a burst of more tokens than it allows holds several rounds.
    """
    gaps, tokens = _gaps(answer), _tokens(answer)
    if tokens < LEAST_TOKENS:
        counted = answer.output_tokens is not None
        return f"it has {tokens} tokens, under {LEAST_TOKENS}" if counted else "its tokens are not counted"
    between = _between_rounds(gaps, plain.gap)
    if isinstance(between, str):
        return between
    long = gaps[between > 0.5]
    if _is_paced(long, plain.gap, alone=len(long) == len(gaps)):
        return "its rounds would take less than a plain token, or all the same: the server sends at a pace of its own"
    rounds = 1 + float(between.sum())
    doubt = 2 * math.sqrt(float((between * (1 - between)).sum()))
    bursts = np.diff(np.concatenate([[0], np.flatnonzero(between > 0.5) + 1, [len(gaps) + 1]]))
    if drafted is not None and tokens < (1 + MOST_HELD_BACK) * (len(gaps) + 1):
        merged = int(np.ceil(bursts / (drafted + 1)).sum()) - len(bursts)
        if merged > max(1, MOST_MERGED * len(bursts)):
            return f"{merged} of its {len(bursts)} bursts hold more tokens than a round has: the server buffers"
        rounds += merged
    elif drafted is not None and tokens > (1 + MOST_MERGED) * (drafted + 1) * rounds + 1:
        return "its bursts hold more tokens than rounds have: the server buffers"
    split = SPLIT_ROUNDS * float((1 - between).sum()) + float((long < STALL * np.median(long)).sum())
    # The first token may come from reading the prompt (llama-server) or from a round (mlx-lm).
    prefilled = int(bursts[0] == 1)
    # A last round that brought only the stop token has no chunk of its own.
    most = (rounds + doubt) / (1 - plain.merged) * (1 + plain.held_back) + 1
    least = max(1.0, rounds - doubt - split - prefilled, tokens / (drafted + 1) if drafted is not None else 1.0)
    silent = int(answer.finish == "stop")
    most = max(least, min(most, float(tokens + silent)))
    return TimedRounds(tokens, min(max(rounds, least), tokens), min(least, tokens), most, silent)


def _between_rounds(gaps: Floats, plain_gap: float) -> Floats | str:
    """Return for each gap the chance that it lies between two rounds, from a mixture fitted to their logarithms."""
    if len(gaps) < 2:
        return "it came in one piece"
    logs, start = np.log(np.maximum(gaps, _FLOOR_S)), math.log(SPLIT * plain_gap)
    chance = (logs >= start).astype(np.float64)
    if chance.all():
        return chance  # no gap is short: each chunk is a round
    if not chance.any():
        return "it came all at once: the server buffers"
    for _ in range(_STEPS):
        kinds = [_kind(logs, weights) for weights in (1 - chance, chance)]
        (low, low_spread, low_share), (high, high_spread, high_share) = kinds
        if low_share <= 0 or high_share <= 0:
            return "its gaps are of one kind: rounds and tokens cannot be distinguished"
        odds = np.log(high_share / low_share) + np.log(low_spread / high_spread)
        odds = odds + ((logs - low) / low_spread) ** 2 / 2 - ((logs - high) / high_spread) ** 2 / 2
        # A bell curve that is wide also covers what is far on the other side: between the means the order holds.
        odds = np.where(logs <= low, -50.0, np.where(logs >= high, 50.0, odds))
        fresh: Floats = 1 / (1 + np.exp(-np.clip(odds, -50, 50)))
        if np.abs(fresh - chance).max() < 1e-6:
            break
        chance = fresh
    if high - low < SEPARATION * math.hypot(low_spread, high_spread):
        return "gaps within rounds and between them overlap: rounds and tokens cannot be distinguished"
    return fresh


def _is_paced(long: Floats, plain_gap: float, *, alone: bool) -> bool:
    """Return whether gaps between rounds are too short for one, or pile up at a length that only a timer makes."""
    if np.median(long) < (1.0 if alone else FASTEST_ROUND) * plain_gap:
        return True
    floor = float(np.quantile(long, 0.1))
    alike = float((np.abs(long - floor) < TIMER * floor).mean())
    return floor < SLOW_ROUND * plain_gap and alike > PILED_UP


def _kind(logs: Floats, weights: Floats) -> tuple[float, float, float]:
    """Return the mean, the standard deviation and the share of one kind of gaps."""
    total = float(weights.sum())
    if total < 0.5:
        return 0.0, LEAST_SPREAD, 0.0
    mean = float((weights * logs).sum() / total)
    spread = math.sqrt(float((weights * (logs - mean) ** 2).sum() / total))
    return mean, max(LEAST_SPREAD, spread), total / len(logs)


def _gaps(answer: Answer) -> Floats:
    return np.asarray(answer.columns.gaps_ns()) / 1e9


def _tokens(answer: Answer) -> int:
    """Return the tokens that could be seen; a stop token without text never is."""
    count = answer.output_tokens or 0
    return count - (answer.finish == "stop" and count == len(answer.arrivals) + 1)


def with_timed_rounds(paired: PairedAnswers) -> tuple[Sequence[tuple[Generation, ...]], str] | Missing:
    """Return the answers with inferred rounds three times (the estimate, the fewest and the most accepted), and a note.

    Drafted tokens are rounds times the draft length: without it only `acceptance_length` has a value.
    """
    plain = plain_timing(paired.plain)
    if isinstance(plain, Missing):
        return plain
    timed: list[tuple[Generation, TimedRounds, int | None]] = []
    refused: Counter[str] = Counter()
    generations = successful(paired.answers)
    for generation in generations:
        setting: dict[str, Any] = dict(generation.setting)
        drafted = setting.get("num_draft_tokens")
        if drafted == ADAPTIVE or (setting.get("draft_p_min") or 0) > 0 or setting.get("draft_n_min") is not None:
            drafted = None  # rounds of different lengths
        rounds = timed_rounds(generation.answer, plain, drafted)
        if isinstance(rounds, str):
            refused[rounds] += 1
        else:
            timed.append((generation, rounds, drafted))
    if not timed or sum(refused.values()) > MOST_REFUSED * len(generations):
        reason = refused.most_common(1)[0][0] if refused else "no answer was without a fault"
        return Missing(
            f"the rounds of {sum(refused.values())} of {len(generations)} answers {UNSEEN}: {reason}", len(timed)
        )
    sets = [
        tuple(_with(answer, rounds.tokens, rounds.rounds, drafted) for answer, rounds, drafted in timed),
        tuple(_with(answer, rounds.tokens, rounds.most, drafted) for answer, rounds, drafted in timed),
        tuple(_with(answer, rounds.tokens + rounds.silent, rounds.least, drafted) for answer, rounds, drafted in timed),
    ]
    note = f"{TIMING_NOTE} of {len(timed)} answers"
    return sets, f"{note}; {sum(refused.values())} left out" if refused else note


def estimate_from_timing(name: str, paired: PairedAnswers) -> Estimate | Missing:
    """Return the estimate of a metric of rounds from inferred ones; its interval holds that of the rounds as well."""
    timed = with_timed_rounds(paired)
    if isinstance(timed, Missing):
        return timed
    sets, note = timed
    estimates = []
    for answers in sets:
        estimated = estimate(name, replace(paired, answers=answers, cache={}))
        if isinstance(estimated, Missing):
            return estimated
        estimates.append(estimated)
    return replace(_widened(estimates), notes=(*estimates[0].notes, note))


def _widened(estimates: Sequence[Estimate]) -> Estimate:
    """Return the first estimate with the outermost ends of all."""
    populations = [estimated.population for estimated in estimates if estimated.population is not None]
    return replace(
        estimates[0],
        lo=min(estimated.lo for estimated in estimates),
        hi=max(estimated.hi for estimated in estimates),
        population=_widened(populations) if len(populations) == len(estimates) else None,
    )


def _with(generation: Generation, tokens: int, rounds: float, drafted: int | None) -> Generation:
    """Return an answer with its inferred counters, in thousandths of a round so that rounding moves nothing."""
    scale = 1000
    accepted = max(0, scale * tokens - round(scale * rounds))
    proposed = max(accepted, round(scale * rounds) * drafted) if drafted is not None else 0
    counted = Rounds(round(scale * rounds), proposed, accepted)
    return replace(generation, answer=replace(generation.answer, rounds=counted))
