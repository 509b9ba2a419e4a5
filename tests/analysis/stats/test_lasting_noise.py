"""Noise that lasts over several answers, against its theory and against independent noise."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from gatekeeper.analysis.stats.lasting_noise import Series, added_by_blocks, added_variance, widen_bounds
from gatekeeper.core.judgement import Estimate

PLAIN = Estimate(1.0, math.exp(-0.02), math.exp(0.02), 24, confidence=0.95, scope="frozen")


def noise(seed: int, n: int, length: float) -> np.ndarray:
    """Noise of deviation 10 % that lasts over so many answers; independent where that is 1."""
    random, carried = np.random.default_rng(seed), 1 - 1 / length
    fresh = 0.1 * math.sqrt(1 - carried**2) * random.normal(size=n)
    fresh[0] = 0.1 * random.normal()
    return np.asarray(lfilter([1.0], [1.0, -carried], fresh))


def series(values: np.ndarray, canaries: int = 24, seed: int = 0) -> Series:
    """The values in rounds of all canaries, each at a height of its own, in random order."""
    random = np.random.default_rng(seed)
    heights = random.normal(size=canaries)
    order = np.concatenate([random.permutation(canaries) for _ in range(len(values) // canaries)])
    return [(canary, heights[canary] + value) for canary, value in zip(order.tolist(), values.tolist(), strict=True)]


@pytest.mark.parametrize(("answers", "least", "most"), [(72, 0.2, 1.5), (480, 0.5, 1.5)])
@pytest.mark.parametrize("length", [5.0, 12.0])
def test_lasting_noise_adds_what_theory_says(answers: int, length: float, least: float, most: float) -> None:
    """At the median it is near the true variance of the mean, and below it in a short series."""
    amounts = [added_variance(series(noise(seed, answers, length), seed=seed)) for seed in range(12)]

    apart = np.arange(1, answers)
    truth = 0.01 * 2 * ((1 - apart / answers) * (1 - 1 / length) ** apart).sum() / answers
    assert least * truth < float(np.median(amounts)) < most * truth


@pytest.mark.parametrize("answers", [72, 480])
def test_independent_noise_hardly_widens_a_bound(answers: int) -> None:
    """In half of all series nothing shows, and in the others little."""
    half = 0.2 / math.sqrt(answers)
    interval = Estimate(1.0, math.exp(-half), math.exp(half), 24, confidence=0.975)
    bounds = [
        widen_bounds(interval, added_variance(series(noise(seed, answers, 1), seed=seed))).hi for seed in range(16)
    ]

    wider = [math.log(bound) / half for bound in bounds]
    assert 1 - 1e-9 <= min(wider)
    assert float(np.median(wider)) < 1.02
    assert max(wider) < 1.6


def test_blocks_add_what_their_own_noise_does() -> None:
    """Six blocks that lie 5 % apart: the variance of the mean grows by that of a block's noise over six, times what
    Student's quantile of five degrees exceeds the normal one. Blocks that differ by chance alone add hardly anything.
    """
    random = np.random.default_rng(3)
    chance = [[(canary, 0.02 * random.normal()) for canary in range(12)] for _ in range(6)]
    apart = [
        [(canary, value + shift) for canary, value in block]
        for block, shift in zip(chance, (-0.05, 0.05, -0.05, 0.05, -0.05, 0.05), strict=True)
    ]

    truth = 6 / 5 * 0.05**2 / 6
    assert 0.8 * truth < added_by_blocks(apart) < 2 * truth
    assert added_by_blocks(chance) < 0.1 * truth
    assert 0.0 == added_by_blocks(apart[:1])


def test_bounds_for_prompts_like_them_are_widened_too() -> None:
    """Both intervals are about the same soak. A fact has no bounds to widen."""
    wide = Estimate(1.0, 0.9, math.inf, 24, confidence=0.95, scope="frozen", population=PLAIN)
    fact = Estimate(1.0, 1.0, 1.0, 24)

    interval = widen_bounds(wide, 0.01)

    assert interval.population is not None
    assert interval.population.lo < PLAIN.lo
    assert interval.lo < 0.9
    assert math.inf == interval.hi
    assert fact == widen_bounds(fact, 0.01)
    assert wide == widen_bounds(wide, 0.0)
