"""How wide the interval of each look at a soak is, against a single look's and one that holds at every moment.

python -m bench.sequential
"""

import math

from gatekeeper.analysis.stats import intervals, sequential

ERROR = 0.05
LOOKS = ((1 / 6, 40), (1 / 3, 80), (2 / 3, 160), (1.0, 240), (1.5, 360))
"""The time of each as a share of the longest duration, and its pairs; the last is an extension."""
AIMED_AT = 40
"""Pairs at which the anytime-valid interval is narrowest."""


def anytime_quantile(pairs: int, error: float, aimed_at: int = AIMED_AT) -> float:
    """Return what replaces Student's quantile in an interval that holds at every moment, each side at *error*.

    The t-test whose effect size is mixed over a normal of variance g, invariant to the scale (Lai 1976; Perez-Ortiz,
    Lardy, de Heide & Grunwald 2024): T = t^2 / (n - 1) lies below (c - 1) / (1 - c / r), where r = 1 + n g and
    c = (sqrt(r) / (2 error))^(2 / n). The best g for *aimed_at* pairs is searched for.
    """

    def quantile(n: int, spread: float) -> float:
        r = 1 + n * spread
        c = (math.sqrt(r) / (2 * error)) ** (2 / n)
        return math.sqrt((n - 1) * (c - 1) / (1 - c / r)) if c < r else math.inf

    best = min((10 ** (power / 10) for power in range(-40, 11)), key=lambda spread: quantile(aimed_at, spread))
    return quantile(pairs, best)


def print_widths(error: float) -> None:
    """Print how much wider than a single look's the interval of each look at a soak is, and one valid at any time."""
    spent = tuple(sequential.error_spent_by(share, error) for share, _ in LOOKS)
    nominal = sequential.spending_errors(tuple(pairs / LOOKS[-1][1] for _, pairs in LOOKS), spent)
    print(f"{'time':>6}{'pairs':>7}{'error':>8}{'look':>7}{'any time':>10}")
    for (share, pairs), own in zip(LOOKS, nominal, strict=True):
        once = intervals.student_quantile(1 - error, pairs - 1)
        wider = intervals.student_quantile(1 - own, pairs - 1) / once
        print(f"{share:>6.2f}{pairs:>7}{own:>8.2%}{wider:>7.2f}{anytime_quantile(pairs, error) / once:>10.2f}")


if __name__ == "__main__":
    print_widths(ERROR)
