"""Detection of a fall: seen soon, and seldom by chance."""

import math

import numpy as np
import pytest

from gatekeeper.live.guards import fall_detection
from gatekeeper.live.guards.fall_detection import WeightedValue

BOUND, SPREAD, NEED = 0.6, 0.15, fall_detection.compute_needed_evidence(43_200, 0.01)


def units(values: list[float], weight: float = 1.0) -> list[WeightedValue]:
    return [WeightedValue(number, value, weight) for number, value in enumerate(values)]


def test_a_fall_is_seen_with_its_begin_and_its_bound() -> None:
    """What came before the fall is left out of its mean, which is below the bound at the whole life's confidence."""
    fall = fall_detection.detect(units([0.8] * 100 + [0.3] * 20), BOUND, SPREAD, NEED)

    assert fall is not None
    assert (100, 20) == (fall.since_ns, fall.values)
    assert math.isclose(0.3, fall.mean)
    assert fall.mean < fall.highest < BOUND


def test_a_recovery_ends_it() -> None:
    """However long a fall lasted, good values end it as soon as they came to weigh as much as is needed."""
    assert fall_detection.detect(units([0.8] * 10 + [0.1] * 500 + [0.8] * 20), BOUND, SPREAD, NEED) is None


def test_one_value_never_decides() -> None:
    """One minute of bad traffic, of however many answers, is not enough."""
    assert fall_detection.detect(units([0.8, 0.0, 0.0], weight=1000.0), BOUND, SPREAD, NEED) is None
    assert fall_detection.detect(units([0.8, 0.0, 0.0, 0.0], weight=1000.0), BOUND, SPREAD, NEED) is not None


@pytest.mark.whole
@pytest.mark.parametrize("differ", [0.05, 0.10, 0.15])
def test_months_at_the_bound_have_no_fall(differ: float) -> None:
    """Where the truth lies at the bound itself, the worst case, at most one month in a hundred shows a fall."""
    random = np.random.default_rng(5)
    total = BOUND * (1 - BOUND) / differ**2 - 1
    months = random.beta(BOUND * total, (1 - BOUND) * total, (100, 43_200))
    fall = fall_detection.FALL * BOUND
    steps = np.minimum(fall_detection.MOST, (fall * (BOUND - months) - fall**2 / 2) / SPREAD**2)
    reached = np.zeros(100)
    most = np.zeros(100)
    for column in steps.T:
        reached = np.maximum(0.0, reached) + column
        most = np.maximum(most, reached)

    assert math.isclose(steps[0][0], fall_detection.step(float(months[0][0]), 1.0, BOUND, SPREAD))
    assert (most >= NEED).sum() <= 1
