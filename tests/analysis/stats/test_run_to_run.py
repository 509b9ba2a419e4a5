"""The ratio of two runs: the noise of both, on the canaries that both answered."""

import math

import numpy as np
import pytest
from scipy import stats

from gatekeeper.analysis.stats import run_to_run
from gatekeeper.core.judgement import Estimate, Missing, fact


def simulated(
    rng: np.random.Generator, truth: np.ndarray, repeats: int, noise: float, shift: float
) -> list[tuple[str, float]]:
    """One run: every canary answered *repeats* times, in rounds."""
    return [
        (f"c{number}", float(center + shift + rng.normal(0, noise)))
        for _ in range(repeats)
        for number, center in enumerate(truth)
    ]


@pytest.mark.whole
@pytest.mark.parametrize("repeats", [1, 4])
def test_each_bound_holds_as_often_as_it_says(repeats: int) -> None:
    """Two runs 5 % apart: each one-sided 95 % bound misses at most 1 in 20, with repeats and without."""
    rng, missed, trials = np.random.default_rng(5), np.zeros(2), 400
    for _ in range(trials):
        truth = rng.normal(0.4, 0.3, 12)
        then, now = (simulated(rng, truth, repeats, noise, shift) for noise, shift in ((0.05, 0.0), (0.1, -0.05)))
        ratio = run_to_run.ratio(now, then, 0.95, 12, logs=True)
        assert isinstance(ratio, Estimate)
        missed += ratio.lo > math.exp(-0.05), ratio.hi < math.exp(-0.05)

    # 1 in 20, and two and a half standard deviations of 400 trials more.
    assert (missed / trials <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / trials)).all()


@pytest.mark.parametrize(("accepted", "ratio_of_means"), [(0.6, 0.75), (0.0, 0.0)])
def test_counts_are_compared_as_a_ratio_of_means(accepted: float, ratio_of_means: float) -> None:
    """Acceptance of 0.8 then and 0.6 now is 0.75 of it, exactly where no answer varies; none is zero."""
    then, now = ([(f"c{n}", value) for _ in range(3) for n in range(6)] for value in (0.8, accepted))

    ratio = run_to_run.ratio(now, then, 0.95, 6, logs=False)

    assert isinstance(ratio, Estimate)
    assert pytest.approx((ratio_of_means,) * 3) == (ratio.center, ratio.lo, ratio.hi)


def test_too_few_common_canaries_are_not_compared() -> None:
    """Four canaries in common, or means of zero, give no ratio."""
    few = [(f"c{n}", 0.5) for n in range(4)]
    zero = [(f"c{n}", 0.0) for n in range(6)]

    assert isinstance(run_to_run.ratio(few, few, 0.95, 4, logs=False), Missing)
    assert isinstance(run_to_run.ratio(zero, zero, 0.95, 6, logs=False), Missing)
    assert isinstance(run_to_run.ratio(few + zero, zero, 0.95, 6, logs=False), Missing)


def test_intervals_of_two_runs_are_bounded_as_their_values_are() -> None:
    """Both ways give the same interval but for its level, which is split over comparisons."""
    rng = np.random.default_rng(2)
    logs = [rng.normal(center, 0.1, 30) for center in (0.4, 0.5)]
    ends = [stats.t.interval(0.9, 29, row.mean(), stats.sem(row)) for row in logs]
    then, now = (
        Estimate(math.exp(row.mean()), math.exp(lo), math.exp(hi), 30, confidence=0.95)
        for row, (lo, hi) in zip(logs, ends, strict=True)
    )

    change = run_to_run.apart(then, now, 1, math.log)
    welch = stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval(0.95)

    assert pytest.approx((welch.low, welch.high), rel=2e-3) == (change.lo, change.hi)
    assert run_to_run.apart(then, now, 9, math.log).lo < change.lo < change.center < change.hi


def test_a_counted_value_has_no_noise() -> None:
    """Two facts differ where they are not equal, by whatever little."""
    once, more = fact(3.0, 5), fact(3.1, 5)

    assert 0 < run_to_run.apart(once, more, 4, float).lo
    assert (0.0, 0.0) == (run_to_run.apart(once, once, 4, float).lo, run_to_run.apart(once, once, 4, float).hi)


def bounded(center: float, error: float) -> run_to_run.Bounds:
    """Return normal intervals of a log that is *center*, with this standard error."""

    def at(level: float) -> Estimate:
        half = float(stats.norm.ppf(level)) * error
        return Estimate(center, center - half, center + half, 24, confidence=level)

    return at


def test_figures_that_are_proven_leave_their_error_to_the_others() -> None:
    """Two figures at 2.5 and 2.1 standard errors: the second is proven at 95 % only because the first one is."""
    figures = {"first": bounded(0.25, 0.1), "second": bounded(0.21, 0.1)}
    unchanged = dict.fromkeys(figures, 0.0)

    together = run_to_run.together_at(figures, unchanged, 0.05)
    beside_noise = run_to_run.together_at({**figures, "first": bounded(0.0, 0.1)}, unchanged, 0.05)

    assert 0 < together["first"].lo
    assert (0.9875, 0.975) == (together["first"].confidence, together["second"].confidence)
    assert 0 < together["second"].lo
    assert beside_noise["second"].lo < 0
