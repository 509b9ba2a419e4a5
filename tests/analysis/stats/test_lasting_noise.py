"""Noise that lasts over several answers, against its theory and against independent noise."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from gatekeeper.analysis.stats import lasting_noise
from gatekeeper.analysis.stats.lasting_noise import TimedLogs
from gatekeeper.core.verdict import Estimate

PLAIN = Estimate(1.0, math.exp(-0.02), math.exp(0.02), 24, confidence=0.95, scope="frozen")


def noise(seed: int, n: int, length: float) -> np.ndarray:
    """Noise of deviation 10 % that lasts over so many answers; independent where that is 1."""
    random, carried = np.random.default_rng(seed), 1 - 1 / length
    fresh = 0.1 * math.sqrt(1 - carried**2) * random.normal(size=n)
    fresh[0] = 0.1 * random.normal()
    return np.asarray(lfilter([1.0], [1.0, -carried], fresh))


def series(values: np.ndarray, canaries: int, before: np.ndarray | None = None, seed: int = 0) -> TimedLogs:
    """The values in rounds of all canaries in random order, and one of each before."""
    random = np.random.default_rng(seed)
    heights = random.normal(size=canaries)
    order = np.concatenate([random.permutation(canaries) for _ in range(len(values) // canaries)])
    earlier = range(canaries) if before is not None else range(0)
    return TimedLogs.of(
        [(canary, heights[canary] + value) for canary, value in zip(order.tolist(), values.tolist(), strict=True)],
        [(canary, heights[canary] + before[canary] + 0.3) for canary in earlier] if before is not None else [],
    )


@pytest.mark.parametrize(("canaries", "answers"), [(24, 72), (24, 480)])
@pytest.mark.parametrize("length", [5.0, 12.0])
def test_lasting_noise_adds_what_theory_says(canaries: int, answers: int, length: float) -> None:
    """
    Noise that lasts over some answers: the weighed amount is at least half of the true one, in the exact likelihood of
    short series and in Whittle's of long ones. Short series cannot exclude longer noise and allow for it: up to six
    times as much in 72 answers, twice in 480.
    """
    noises = [lasting_noise.of_one_arm(series(noise(seed, answers, length), canaries, seed=seed)) for seed in range(12)]

    apart = np.arange(1, answers)
    truth = 0.01 * 2 * ((1 - apart / answers) * (1 - 1 / length) ** apart).sum() / answers
    amounts = [float(series_noise.weights @ series_noise.more) for series_noise in noises]
    assert truth / 2 < float(np.median(amounts)) < (6 if answers < 100 else 2) * truth
    assert min(series_noise.likely for series_noise in noises) > 0.9


@pytest.mark.parametrize(("answers", "most"), [(24, 1.25), (72, 1.1), (480, 1.05)])
def test_independent_noise_hardly_widens_a_bound(answers: int, most: float) -> None:
    """
    The fewer answers show that noise is independent, the more the prior counts: at the median a tenth with 24 pairs.
    """
    wider = []
    for seed in range(16):
        noise_of_arm = lasting_noise.of_one_arm(series(noise(seed, answers, 1), 24, noise(seed + 99, 24, 1), seed))
        exact = Estimate(
            1.0, math.exp(-0.2 / math.sqrt(answers)), math.exp(0.2 / math.sqrt(answers)), 24, confidence=0.975
        )
        wider.append(math.log(lasting_noise.widened(exact, noise_of_arm).hi) / math.log(exact.hi))

    assert 1 <= min(wider)
    assert float(np.median(wider)) < most


def test_noise_of_the_host_cancels_and_that_of_one_arm_does_not() -> None:
    """
    What hits both arms alike leaves the bounds of their ratio, what one arm has alone widens them.
    """
    common, own_noise = noise(1, 72, 12), [0.02 * noise(seed, 72, 1) for seed in (2, 3)]
    plain = series(common + own_noise[0], 24)

    shared = lasting_noise.of_both_arms(series(common + own_noise[1], 24), plain)
    alone = lasting_noise.of_both_arms(series(noise(4, 72, 12), 24), series(noise(5, 72, 1), 24))

    assert lasting_noise.widened(PLAIN, shared).hi < math.exp(0.025)
    assert lasting_noise.widened(PLAIN, alone).hi > math.exp(0.05)


@pytest.mark.parametrize("answers", [72, 480])
def test_a_trend_is_noise_unless_it_is_known(answers: int) -> None:
    """
    A steady fall looks like noise that lasts, and no longer does where it is known to be a fall.
    """
    falling = series(np.linspace(0.2, -0.2, answers) + 0.2 * noise(1, answers, 1), 24)

    assert lasting_noise.of_one_arm(falling).likely > 0.9
    assert lasting_noise.of_one_arm(falling, trend=True).likely < 0.5


def test_bounds_for_prompts_like_them_are_widened_too() -> None:
    """
    Both intervals are about the same soak. A fact has no bounds to widen, and too few answers show nothing.
    """
    noise_of_arm = lasting_noise.of_one_arm(series(noise(4, 72, 12), 24))
    interval = lasting_noise.widened(
        Estimate(1.0, 0.9, math.inf, 24, confidence=0.95, scope="frozen", population=PLAIN), noise_of_arm
    )
    fact = Estimate(1.0, 1.0, 1.0, 24)

    assert interval.lo < 0.9
    assert math.inf == interval.hi
    assert interval.population is not None
    assert interval.population.lo < PLAIN.lo
    assert fact == lasting_noise.widened(fact, noise_of_arm)
    assert lasting_noise.NONE == lasting_noise.of_one_arm(TimedLogs.of([("a", 0.0), ("b", 1.0)]))


@pytest.mark.parametrize(("answers", "value", "canaries"), [(16, 0.3, 8), (22, 0.3, 12), (24, 0.7, 12)])
def test_equal_values_have_no_noise(answers: int, value: float, canaries: int) -> None:
    """
    A server that accepts the same share each time: rounding leaves powers at some lengths alone, and none has a log.
    """
    logs = [(number % canaries, math.log(value)) for number in range(answers)]

    assert lasting_noise.NONE == lasting_noise.of_one_arm(TimedLogs.of(logs))
