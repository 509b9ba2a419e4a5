"""Intervals for a fixed set of canaries, against scipy, a least-squares fit, and properties."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as oracle

from gatekeeper.analysis.stats import fixed_canaries, intervals
from gatekeeper.core.judgement import Estimate

few = settings(max_examples=15, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


def pairs(logs: Sequence[tuple[int, float]]) -> list[tuple[str, float]]:
    return [(f"c-{canary:03}", math.exp(value)) for canary, value in logs]


def rounds(seed: int, canaries: int, repeats: int, *, noise: float = 0.1) -> list[tuple[int, float]]:
    """Every canary once a round, in random order, each around a height of its own; the heights average 0."""
    random = np.random.default_rng(seed)
    heights = random.normal(0, 1, canaries)
    heights -= heights.mean()
    order = [int(number) for _ in range(repeats) for number in random.permutation(canaries)]
    return [(number, float(heights[number] + random.normal(0, noise))) for number in order]


def geometric_mean(
    ratios: Sequence[tuple[str, float]], level: float, size: int, before: Mapping[str, Sequence[float]]
) -> Estimate | None:
    earlier = [(name, math.log(ratio)) for name, each in before.items() for ratio in each]
    return fixed_canaries.mean_of_logs([(name, math.log(ratio)) for name, ratio in ratios], level, size, earlier)


def bounded(interval: Estimate | None) -> Estimate:
    assert interval is not None
    return interval


@pytest.mark.parametrize("level", [0.95, 0.975])
def test_two_answers_each_are_students_interval_within_canaries(level: float) -> None:
    """Twelve canaries, each 3 % above and below its own height: the pooled deviation over the root of 24, with scipy's
    t on 12 degrees. How far canaries lie apart is not in it.
    """
    first = [(at, at + (-1) ** at * 0.03) for at in range(12)]
    second = [(at, at - (-1) ** at * 0.03) for at in range(12)]

    interval = bounded(geometric_mean(pairs([*first, *second]), level, 12, {}))

    half = oracle.t.ppf(level, 12) * math.sqrt(2) * 0.03 / math.sqrt(24)
    assert pytest.approx((5.5 - half, 5.5, 5.5 + half)) == tuple(
        math.log(bound) for bound in (interval.lo, interval.center, interval.hi)
    )
    assert ("frozen", 12, level) == (interval.scope, interval.n, interval.confidence)


@given(SEEDS, st.integers(9, 20), st.integers(1, 3), st.floats(-1, 1))
@few
def test_earlier_answers_show_the_noise_of_a_least_squares_fit(
    seed: int, canaries: int, repeats: int, shift: float
) -> None:
    """The noise is the residual variance of canary plus shift; the shift changes no centre."""
    later = rounds(seed, canaries, repeats)
    earlier = {number: value + shift for number, value in rounds(seed + 1, canaries, 1)}
    owner = np.array([number for number, _ in later])
    values = np.array([value for _, value in later])
    before = np.array([[1.0, earlier[number]] for number in range(canaries)])

    error = fixed_canaries.standard_error(owner, values, canaries, before)

    rows = [*later, *earlier.items()]
    design = np.zeros((len(rows), canaries + 1))
    design[np.arange(len(rows)), [number for number, _ in rows]] = 1
    design[len(later) :, canaries] = 1
    response = np.array([value for _, value in rows])
    residuals = response - design @ np.linalg.lstsq(design, response, rcond=None)[0]
    noise = float(residuals @ residuals) / (len(rows) - canaries - 1)
    if canaries * repeats - 1 < fixed_canaries.LEAST_DEGREES:
        assert error is None
    else:
        assert error is not None
        assert pytest.approx(math.sqrt(noise / (canaries * repeats))) == error[0]
        assert 1 <= error[1] <= len(rows) - canaries - 1


def test_few_repeats_show_no_noise() -> None:
    """With fewer than eight degrees of freedom there is no interval; the shift between then and now is unknown, so a
    single canary that was answered in both says nothing.
    """
    once = rounds(5, 20, 1)
    seven, eight = (geometric_mean(pairs(once + rounds(6, repeated, 1)), 0.95, 20, {}) for repeated in (7, 8))

    assert (None, True) == (seven, eight is not None)
    assert geometric_mean(pairs(once), 0.95, 20, {"c-003": [1.1]}) is None


def latencies(seed: int, canaries: int, repeats: int) -> list[tuple[str, list[tuple[float, float]]]]:
    return [(name, [(value, 1.0)]) for name, value in pairs(rounds(seed, canaries, repeats, noise=0.3))]


@given(SEEDS, st.sampled_from([0.5, 0.9]), st.floats(0.1, 10.0))
@few
def test_quantile_lies_inside_its_bounds_and_scales(seed: int, q: float, factor: float) -> None:
    """For every quantile lo <= center <= hi, all three are values that were seen, and they scale with them."""
    answers = latencies(seed, 40, 3)
    scaled = [(name, [(factor * value, weight) for value, weight in values]) for name, values in answers]

    original, more = (bounded(fixed_canaries.quantile(each, q, 0.95, 40)) for each in (answers, scaled))

    times = {value for _, values in answers for value, _ in values}
    assert original.lo <= original.center <= original.hi
    assert {original.lo, original.center, original.hi} <= times
    assert pytest.approx((factor * original.lo, factor * original.center, factor * original.hi)) == (
        more.lo,
        more.center,
        more.hi,
    )


def test_quantile_weighs_each_canary_once_and_gaps_by_their_tokens() -> None:
    """Ten answers of one canary count as two; a gap of nine tokens counts nine times."""
    fast = [(f"f-{at}", [(1.0, 9.0), (2.0, 1.0)]) for at in range(20)] * 2
    slow = [("s", [(9.0, 10.0)])] * 10

    low, high = (bounded(fixed_canaries.quantile([*fast, *slow], q, 0.95, 21)).center for q in (0.8, 0.9))

    assert (1.0, 2.0) == (low, high)


def test_what_shows_no_noise_bounds_no_quantile() -> None:
    """One answer each tells no noise of an answer from the difference of two canaries; a p95 of ten noisy canaries lies
    beyond the largest answer as far as anybody can tell.
    """
    assert fixed_canaries.quantile(latencies(1, 60, 1), 0.5, 0.95, 60) is None
    assert fixed_canaries.quantile(latencies(1, 10, 2), 0.95, 0.95, 10) is None


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["one pair and the sweep's", "two pairs", "heavy tails", "noise of both arms lasts"])
def test_each_bound_for_these_canaries_holds_as_often_as_promised(kind: str) -> None:
    """With canaries held fixed, 12 % apart, the true mean lies above `lo` and below `hi` in 95 of 100 runs each, within
    the error of the simulation, and six intervals of seven are narrower than three quarters of the one for prompts like
    them.
    """
    runs, above, below, narrower = 300, 0, 0, 0
    for seed in range(runs):
        random = np.random.default_rng(seed)
        repeats = 1 if kind == "one pair and the sweep's" else 2
        heights = random.normal(0, 0.12, 24)
        heights += 0.05 - heights.mean()
        order = [int(number) for _ in range(repeats) for number in random.permutation(24)]
        noise = random.normal(0, 0.05, (2, len(order) + 24))
        if kind == "heavy tails":
            noise = 0.03 * random.standard_t(3, noise.shape)
        if kind == "noise of both arms lasts":
            common = np.repeat(random.normal(0, 0.3, 10), 10)[: noise.shape[1]]
            noise = noise + common
        logs = heights[[*order, *range(24)]] + noise[0] - noise[1]
        ratios = pairs([(number, float(value)) for number, value in zip(order, logs, strict=False)])
        sweep = {name: [ratio] for name, ratio in pairs(list(enumerate(0.03 + logs[len(order) :])))}

        interval = bounded(geometric_mean(ratios, 0.95, 24, sweep if repeats == 1 else {}))

        population = intervals.geometric_mean_ratio({name: [ratio] for name, ratio in ratios[:24]}, 0.95)
        assert isinstance(population, Estimate)
        above += interval.lo <= math.exp(0.05)
        below += math.exp(0.05) <= interval.hi
        narrower += math.log(interval.hi / interval.lo) < 0.75 * math.log(population.hi / population.lo)

    least = (0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)) * runs
    assert min(above, below) >= least
    assert narrower >= 0.85 * runs
