"""Bounds that hold at every moment: the ratio of two randomised arms, adjusted for covariates, and a share.

A ratio is the difference of two mean logs, adjusted by regression on covariates that both arms share (ANCOVA). Its
confidence sequence is that of Lindon, Ham, Tingley & Bojinov (arXiv:2210.08589), a mixture over the size of the effect:
exact for normal errors, asymptotically valid for any under randomised arms. Each arm has its own error variance, and
the degrees of freedom are Welch's, since the smaller arm decides them. Errors with rare large values are not normal:
the smaller arm's variance counts for no less than the larger one's, which has seen them. Covariates may differ between
the arms: the information is then that of the arm's coefficient in the regression (section 3 there). A row is what was
drawn at random: where several answers were drawn together, their mean. A share is bounded by a beta-binomial mixture
(Robbins 1970), which is exact; a count may be a sum of shares, whose exponential moments those of whole counts bound.
Moments alone are kept, so memory does not grow with the answers.
"""

import math

import numpy as np

from gatekeeper.analysis.stats.intervals import Floats
from gatekeeper.analysis.stats.root_finding import root
from gatekeeper.core.judgement import Estimate, Missing

MIXTURE = 6.0
"""Precision of the mixture: the interval is narrowest once the smaller arm has about 60 answers."""


MOST_WAITING = 64
"""Rows that are added at once: one by one each would cost ten times as much."""


class Moments:
    """Count, sums and products of rows (covariates, then the logarithm that is compared)."""

    __slots__ = ("_products", "_sums", "_waiting", "n")

    def __init__(self, columns: int) -> None:
        self.n = 0
        self._sums, self._products = np.zeros(columns), np.zeros((columns, columns))
        self._waiting: list[tuple[float, ...]] = []
        """Rows that are not in the sums yet, each with how often it counts as a last column."""

    def add(self, row: tuple[float, ...], times: int = 1) -> None:
        """Add a row; with *times* = -1 take it out again."""
        self.n += times
        self._waiting.append((*row, times))
        if len(self._waiting) >= MOST_WAITING:
            self._add_waiting()

    def replace(self, earlier: tuple[float, ...], row: tuple[float, ...]) -> None:
        """Put a row in the place of an earlier one."""
        self.add(earlier, -1)
        self.add(row)

    @property
    def mean(self) -> Floats:
        """Return the mean of each column."""
        self._add_waiting()
        return self._sums / self.n

    def multiply_deviations(self) -> Floats:
        """Return the products of deviations from the mean."""
        self._add_waiting()
        return self._products - np.outer(self._sums, self._sums) / self.n

    def _add_waiting(self) -> None:
        if self._waiting:
            table = np.array(self._waiting)
            rows, weighted = table[:, :-1], table[:, :-1] * table[:, -1:]
            self._sums += weighted.sum(axis=0)
            self._products += weighted.T @ rows
            self._waiting = []


def ratio(treated: Moments, control: Moments, error: float, least: int) -> Estimate | Missing:
    """Bound the geometric mean of treated over control for equal covariates, both sides together with *error*.

    Fewer than *least* rows in an arm decide nothing.
    """
    n = min(treated.n, control.n)
    if n < least:
        return Missing(f"{n} conversations in the smaller arm, {least} needed", treated.n + control.n)
    arms = [(arm.multiply_deviations(), arm.n, arm.mean) for arm in (treated, control)]
    within = arms[0][0] + arms[1][0]
    inverse = np.linalg.pinv(within[:-1, :-1], rcond=1e-10, hermitian=True)
    contrast = np.append(-inverse @ within[:-1, -1], 1.0)
    rank = int(np.linalg.matrix_rank(within[:-1, :-1], hermitian=True))
    # Where the arms differ in a covariate, what is not known of its slope moves the ratio, too.
    apart = inverse @ (arms[0][2] - arms[1][2])[:-1]
    spreads, weights = [], []
    for moments, count, _ in arms:
        residual = max(0.0, float(contrast @ moments @ contrast))
        freedom = count - 1 - rank * count / (treated.n + control.n)  # the slopes cost each arm its share
        spreads.append((residual / freedom, freedom, count))
        weights.append(1 / count + float(apart @ moments[:-1, :-1] @ apart))
    # A small arm has seen no rare slow answer yet: its spread counts for no less than that of the large one.
    spread_of_larger = max(spreads, key=lambda arm: arm[2])[0]
    parts = [
        (max(spread, spread_of_larger) * weight, freedom)
        for (spread, freedom, _), weight in zip(spreads, weights, strict=True)
    ]
    variance = sum(part for part, _ in parts)
    center = float(contrast @ (arms[0][2] - arms[1][2]))
    if variance <= 0:
        return Missing("every answer is equally fast, so nothing can be bounded", treated.n + control.n)
    freedom = variance**2 / sum(part**2 / own_freedom for part, own_freedom in parts)
    half = math.sqrt(variance) * half_width(1 / sum(weights), freedom, error)
    low, high = (math.exp(min(700.0, center + side * half)) for side in (-1, 1))
    return Estimate(math.exp(center), low, high, treated.n + control.n, confidence=1 - error)


def half_width(information: float, freedom: float, error: float) -> float:
    """Return how many standard errors the interval extends at *information*; infinite while it is too little."""
    share = MIXTURE / (MIXTURE + information)
    reached = math.exp(2 / (freedom + 1) * (-math.log(error) - math.log(share) / 2))
    return math.sqrt(freedom * (reached - 1) / (1 - reached * share)) if reached * share < 1 else math.inf


def share(count: float, n: int, error: float) -> tuple[float, float]:
    """Bound a share after *count* of *n*, both sides together with *error*, at every moment.

    *count* may be a sum of *n* shares.
    """
    if n == 0:
        return 0.0, 1.0
    mixture = math.lgamma(count + 0.5) + math.lgamma(n - count + 0.5) - math.lgamma(n + 1) - math.log(math.pi)
    limit = -math.log(error)

    def exclude_share(p: float) -> float:
        """Return what is more than 0 where *p* is excluded."""
        fit = (count * math.log(p) if count else 0.0) + ((n - count) * math.log1p(-p) if n - count else 0.0)
        return mixture - fit - limit

    def edge(outside: float) -> float:
        return root(exclude_share, min(max(count / n, 1e-12), 1 - 1e-12), outside)

    return 0.0 if count == 0 else edge(1e-300), 1.0 if count == n else edge(1 - 1e-16)
