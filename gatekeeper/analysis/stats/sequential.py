"""Looks at records that are still growing: after how many answers they come, and which error each of them may spend.

An error-spending design (Lan & DeMets 1983): each look at a soak spends its share of the allowed error, and the bounds
of all looks hold together. Confidence sequences that hold at every moment (Waudby-Smith et al., arXiv:2103.06476) are
not used: they are asymptotic, and spend error on moments beyond the budget, which no run can reach. At each look the
nominal level of the normal theory is applied to Student's t (Jennison & Turnbull 2000, section 4.4), as the spread is
unknown.

The unit is the canary: one log each, its part in the ratio, its repeats averaged; tokens and repeats never count as
more.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.stats.root_finding import root
from gatekeeper.core.judgement import Estimate, Missing

MIN_CANARIES = 8
"""With fewer canaries nothing is decided: their spread is too uncertain for heavy tails."""
GROWTH = 1.5
"""Each look has this many times the answers of the previous one: more looks cost error, fewer cost answers."""
RESTARTED = 2.0
"""The same where every look needs restarts of a process."""
MIN_LAST_STRETCH = 1.15
"""A last stretch shorter than this is joined to the one before it."""
GRID_POINTS = 400
"""Points of the numerical integration; boundaries are then right to three decimals."""
GRID_DEVIATIONS = 8.0
"""Standard deviations integrated over: beyond lies less than any error that is spent."""
RESERVED = 0.2
"""Share of a soak's allowed error that is left when it ends: for `--extend`, however often."""
_NORMAL = NormalDist()


def looks(budget: int, growth: float = GROWTH, canaries: int | None = None) -> tuple[int, ...]:
    """Return the counts of answers after which the records are looked at; the last one is the whole *budget*.

    One look comes when each of the *canaries* was answered once: later answers are repeats.
    """
    counts = [min(MIN_CANARIES, budget)]
    for end in (min(canaries or budget, budget), budget):
        while counts[-1] < end:
            counts.append(min(end, math.ceil(counts[-1] * growth)))
        if len(counts) > 1 and counts[-1] < MIN_LAST_STRETCH * counts[-2] and counts[-2] != canaries:
            del counts[-2]
    return tuple(counts)


def error_spent_by(share: float, error: float) -> float:
    """Return the error that a soak has spent after *share* of its longest duration; beyond 1 it was extended.

    The root of the share (Kim & DeMets 1987): most soaks are decided early, so a sixth of the time has a third of the
    error. What is `RESERVED` is spent as 1/share runs out, so that no extension ever exceeds it.
    """
    return error * ((1 - RESERVED) * math.sqrt(share) if share <= 1 else 1 - RESERVED / share)


@lru_cache(maxsize=256)
def spending_errors(information: tuple[float, ...], spent: tuple[float, ...]) -> tuple[float, ...]:
    """Return the nominal one-sided error of each look, such that the looks up to each err as often as was *spent*.

    The recursion of Armitage, McPherson & Rowe (1969) over the Brownian motion of the score: looks are correlated by
    the *information* that they share, whatever decides how much is spent (Lan & DeMets 1989).
    """
    errors: list[float] = []
    grid, mass = np.zeros(1), np.ones(1)
    then, already = 0.0, 0.0
    for now, until in zip(information, spent, strict=True):
        share = until - already
        if share <= 0 or now <= then:
            errors.append(0.0)
            continue
        step, top = math.sqrt(now - then), GRID_DEVIATIONS * math.sqrt(now)
        edge = _edge(grid, mass, step, share, top)
        errors.append(_NORMAL.cdf(-edge / math.sqrt(now)))
        below = np.linspace(-top, edge, GRID_POINTS)
        density = np.exp(-0.5 * ((below[:, None] - grid[None, :]) / step) ** 2) / (step * math.sqrt(2 * math.pi))
        weights = np.full(GRID_POINTS, below[1] - below[0])
        weights[[0, -1]] /= 2
        grid, mass = below, (density @ mass) * weights
        then, already = now, already + share
    return tuple(errors)


def _edge(grid: intervals.Floats, mass: intervals.Floats, step: float, share: float, top: float) -> float:
    """Return what a step of deviation *step* away from *grid* exceeds with probability *share*."""
    points = list(zip((grid / (step * math.sqrt(2))).tolist(), (mass / 2).tolist(), strict=True))

    def over(edge: float) -> float:
        scaled = edge / (step * math.sqrt(2))
        return math.fsum([m * math.erfc(scaled - x) for x, m in points])

    return root(lambda edge: share - over(edge), -top, top)


def interval(logs: Sequence[float], error: float, least_spread: float = 0.0) -> Estimate | Missing:
    """Bound exp of the mean log of a ratio from one value a canary, each side with nominal *error* at this look."""
    if not 0 < error < 0.5:
        return Missing("this look has no error to spend", len(logs))
    return intervals.mean_log(logs, 1 - error, least=MIN_CANARIES, least_spread=least_spread)
