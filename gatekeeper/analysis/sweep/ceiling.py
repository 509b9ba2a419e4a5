"""The ceiling: what a round of drafted tokens costs on this machine, and so the most that any draft can give.

After Leviathan, Kalman and Matias (2023, arXiv 2211.17192): a round of k drafted tokens emits 1 to k + 1 tokens, and
takes the time of k draft steps and one pass of the target over k + 1 tokens. With R(k) that time over plain decoding's
per token, no draft gives more than (k + 1) / R(k), and one pays where 1 + k * acceptance exceeds R(k). Both hold
whatever the acceptance by position is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

import numpy as np

from gatekeeper.analysis.stats.intervals import mean_log
from gatekeeper.analysis.sweep.cost_model import break_even_chance
from gatekeeper.core.records import PassTimes, Rounds
from gatekeeper.core.verdict import Estimate, Missing, rounded

LENGTHS = range(1, 16)
"""Draft lengths about which something is said."""
WIDTHS = (1, *(length + 1 for length in LENGTHS))
"""Widths of the passes that are timed; a width of 1 shows what a pass costs beyond a token of plain decoding."""
BLOCKS = 8
"""Consecutive turns are joined into so many blocks, whose medians are compared: one slow pass of three moves none."""
LEAST_BLOCKS = 5

CEILING = "ceiling"
"""The kind of the event that holds the ceiling of a run, as `Ceiling.document` writes it."""

Pays = Literal["always", "never", "above"]


@dataclass(frozen=True, slots=True)
class LengthCost:
    """What a round of one draft length costs; the bounds of all lengths hold together."""

    length: int
    seconds: float
    cost: Estimate
    """In tokens of plain decoding."""

    @property
    def most(self) -> Estimate:
        """Return the speed over plain decoding's where every drafted token is accepted."""
        emitted = self.length + 1
        cost = self.cost
        return Estimate(emitted / cost.center, emitted / cost.hi, emitted / cost.lo, cost.n, confidence=cost.confidence)

    @property
    def break_even(self) -> Estimate:
        """Return the acceptance, accepted over drafted tokens, at which a round pays; below 0 or above 1 none does."""
        center, lo, hi = ((cost - 1) / self.length for cost in (self.cost.center, self.cost.lo, self.cost.hi))
        return Estimate(center, lo, hi, self.cost.n, confidence=self.cost.confidence)

    @property
    def pays(self) -> Pays:
        """Return whether a draft of this length pays at any acceptance, at none, or above the break-even."""
        needed = self.break_even.center
        return "always" if needed <= 0 else "never" if needed >= 1 else "above"

    def document(self) -> dict[str, object]:
        """Return it as `ceiling --json` writes it."""
        chance = break_even_chance(self.cost.center, self.length) if self.pays == "above" else None
        return {
            "draft_length_tokens": self.length,
            "round_s": rounded(self.seconds),
            "round_plain_tokens": _figures(self.cost),
            "most_ratio": _figures(self.most),
            "pays": self.pays,
            "break_even_acceptance_ratio": _figures(self.break_even) if self.pays == "above" else None,
            "break_even_chance_if_equal_at_all_positions_ratio": None if chance is None else rounded(chance),
        }


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The costs of rounds by draft length, and the most that a draft can give at the best of them."""

    turns: int
    blocks: int
    plain_s: float
    """A token of plain decoding."""
    pass_s: dict[int, float]
    """A pass of the target, by its width."""
    rounds: tuple[LengthCost, ...]
    with_draft: bool
    """The rounds hold the steps of a draft; else a draft that takes no time is assumed."""
    first_s: float = 0.0
    """What the first pass of an answer takes longer than the others, plain or not."""

    @property
    def best(self) -> LengthCost:
        """Return the round of the length that can give most."""
        return max(self.rounds, key=lambda cost: cost.most.center)

    @property
    def most(self) -> Estimate:
        """Return the most that a draft can give, whatever its length among the measured ones.

        The bounds of all lengths hold together, so the largest lower and the largest upper bound hold for the largest
        of the true values, although the same times chose the length.
        """
        best = self.best.most
        lo, hi = (max(getattr(cost.most, bound) for cost in self.rounds) for bound in ("lo", "hi"))
        return Estimate(best.center, lo, hi, best.n, confidence=best.confidence)

    def document(self) -> dict[str, object]:
        """Return it as `ceiling --json` writes it."""
        return {
            "turns": self.turns,
            "blocks": self.blocks,
            "plain_token_s": rounded(self.plain_s),
            "first_round_longer_s": rounded(self.first_s),
            "pass_s": {str(width): rounded(seconds) for width, seconds in self.pass_s.items()},
            "with_draft": self.with_draft,
            "most_ratio": _figures(self.most) | {"draft_length_tokens": self.best.length},
            "rounds": [cost.document() for cost in self.rounds],
        }


def ceiling_of(turns: Sequence[PassTimes], level: float) -> Ceiling | Missing:
    """Return the ceiling that *turns* show, its bounds each at *level* for all lengths together, or why there is none.

    Times of one block alone are divided by each other, so that a machine that slows down moves no ratio. Student's
    intervals of the blocks' logarithms are corrected for the number of lengths (Bonferroni).
    """
    if not turns:
        return Missing("no pass was timed")
    blocks = _blocks(turns)
    widths = [width for width in WIDTHS if sum(width in block.passes for block in blocks) >= LEAST_BLOCKS]
    with_draft = any(block.rounds for block in blocks)
    rounds = [
        block.rounds if with_draft else {width - 1: block.passes[width] for width in block.passes} for block in blocks
    ]
    times = [time for block, costs in zip(blocks, rounds, strict=True) for time in (block.plain, *costs.values())]
    if not all(math.isfinite(time) and time > 0 for time in times):
        return Missing("the passes take less time than this machine can tell apart", len(blocks))
    lengths = [length for length in LENGTHS if sum(length in times for times in rounds) >= LEAST_BLOCKS]
    if len(blocks) < LEAST_BLOCKS:
        return Missing(f"too few turns of timed passes: {len(turns)}, need {LEAST_BLOCKS}", len(blocks))
    if 1 not in widths or not lengths:
        return Missing("no pass of two tokens or more was timed beside one of one token", len(blocks))
    costs = []
    for length in lengths:
        timed = [(times[length], block.plain) for times, block in zip(rounds, blocks, strict=True) if length in times]
        cost = mean_log([math.log(time / plain) for time, plain in timed], 1 - (1 - level) / len(lengths))
        if isinstance(cost, Missing):
            return cost
        costs.append(LengthCost(length, median(time for time, _ in timed), cost))
    return Ceiling(
        turns=len(turns),
        blocks=len(blocks),
        plain_s=median(block.plain for block in blocks),
        pass_s={width: median(block.passes[width] for block in blocks if width in block.passes) for width in widths},
        rounds=tuple(costs),
        with_draft=with_draft,
        first_s=max(0.0, median(block.anew for block in blocks)),
    )


def rounds_of_answers(answers: Sequence[tuple[int, Rounds, float]]) -> dict[int, float]:
    """Return the seconds of a whole round by draft length, from the length, rounds and seconds of answers to a prompt.

    An answer takes what any request takes, and its rounds, less a common time for each token that the last rounds draft
    less than its length, before its limit. Empty where the answers do not tell these apart.
    """
    lengths = sorted({length for length, _, _ in answers})
    rows = [
        [1, rounds.drafted - length * rounds.rounds, *(rounds.rounds * (length == other) for other in lengths)]
        for length, rounds, _ in answers
    ]
    if not rows:
        return {}
    solution, _, rank, _ = np.linalg.lstsq(np.array(rows, float), np.array([seconds for *_, seconds in answers]))
    times = zip(lengths, solution[2:].tolist(), strict=True)
    return {length: seconds for length, seconds in times if seconds > 0} if rank == len(rows[0]) else {}


def _blocks(turns: Sequence[PassTimes]) -> list[PassTimes]:
    """Join consecutive turns into blocks of medians."""
    count = min(BLOCKS, len(turns))
    cuts = [round(number * len(turns) / count) for number in range(count + 1)]
    return [medians_of(turns[begun:ended]) for begun, ended in pairwise(cuts)]


def medians_of(turns: Sequence[PassTimes]) -> PassTimes:
    """Return the medians of the times of *turns*."""
    return PassTimes(
        median(turn.plain for turn in turns),
        _medians_by_key([turn.passes for turn in turns]),
        _medians_by_key([turn.rounds for turn in turns]),
        median(turn.anew for turn in turns),
    )


def _medians_by_key(times: Sequence[Mapping[int, float]]) -> dict[int, float]:
    keys = sorted({key for row in times for key in row})
    return {key: median(row[key] for row in times if key in row) for key in keys}


def _figures(estimate: Estimate) -> dict[str, object]:
    return {
        "center": rounded(estimate.center),
        "lo": rounded(estimate.lo),
        "hi": rounded(estimate.hi),
        "confidence": estimate.confidence,
    }
