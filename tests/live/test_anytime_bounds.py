"""The interval that holds at every look: its moments, and simulated days under six kinds of noise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.judgement import Estimate
from gatekeeper.live import anytime_bounds
from gatekeeper.live.anytime_bounds import MOST_WAITING, Moments
from gatekeeper.live.live_evidence import LEAST_CONVERSATIONS

RATIO, REQUESTS, ERROR, DAYS = 1.6, 3000, 0.05, 200
NOISES = ("normal", "heavy", "draft varies", "plain varies", "skewed", "rare slow answers")


def draw_noise(
    name: str, rng: np.random.Generator, treated: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
) -> np.ndarray:
    """Return the noise of the log speeds of a day of requests, of which some are *treated*: they have the draft."""
    n = len(treated)
    if name == "heavy":
        return 0.15 * rng.standard_t(3, n)
    if name == "skewed":
        return 0.3 - rng.exponential(0.3, n)
    if name == "rare slow answers":
        return np.where(rng.random(n) < 0.1, -1.0, 0.111) + rng.normal(0, 0.05, n)
    wide = {"draft varies": (0.35, 0.06), "plain varies": (0.06, 0.35)}.get(name, (0.15, 0.15))
    return rng.normal(0, 1, n) * np.where(treated, *wide)


def holds_all_day(noise: str, holdout: float, rng: np.random.Generator) -> bool:
    """Tell whether a day's interval, looked at after every plain answer, always held the true ratio."""
    treated = rng.random(REQUESTS) >= holdout
    prompt, answer = rng.normal(6, 1.2, REQUESTS), rng.normal(5, 0.9, REQUESTS)
    streamed = (rng.random(REQUESTS) < 0.8).astype(float)
    drift = 0.2 * np.sin(np.linspace(0, 2 * math.pi, REQUESTS)) + 0.005 * np.cumsum(rng.normal(0, 1, REQUESTS))
    logs = 3 - 0.06 * prompt + 0.1 * answer - 0.5 * (1 - streamed) + math.log(RATIO) * treated + drift
    rows = np.c_[prompt, answer, streamed, logs + draw_noise(noise, rng, treated)]
    arms = {True: Moments(4), False: Moments(4)}
    for number, row in enumerate(rows):
        arms[bool(treated[number])].add(tuple(row))
        if not treated[number] or number == REQUESTS - 1:
            estimate = anytime_bounds.ratio(arms[True], arms[False], ERROR, LEAST_CONVERSATIONS)
            if isinstance(estimate, Estimate) and not estimate.lo <= RATIO <= estimate.hi:
                return False
    return True


@pytest.mark.nightly
@pytest.mark.parametrize("holdout", [0.02, 0.05])
@pytest.mark.parametrize("noise", NOISES)
def test_the_interval_holds_the_truth_on_95_percent_of_simulated_days(noise: str, holdout: float) -> None:
    """Looked at after every plain answer, the interval holds the true ratio all day, under each kind of noise."""
    rng = np.random.default_rng([11, NOISES.index(noise), round(100 * holdout)])

    assert sum(holds_all_day(noise, holdout, rng) for _ in range(DAYS)) / DAYS >= 0.95


ROWS = st.lists(st.tuples(*[st.floats(-20, 20)] * 3), min_size=2, max_size=3 * MOST_WAITING)


@given(ROWS, st.integers(0, MOST_WAITING))
def test_replaced_rows_leave_the_moments_of_the_others(rows: list[tuple[float, ...]], replaced: int) -> None:
    """Mean and centred products are those of numpy over the rows that stayed, also where they are read in between."""
    moments = Moments(3)
    for number, row in enumerate(rows):
        if number < replaced:
            moments.add((1.0, 2.0, 3.0))
            moments.replace((1.0, 2.0, 3.0), row)
        else:
            moments.add(row)
        if number % 7 == 0:
            moments.multiply_deviations()
    table = np.array(rows)

    assert len(rows) == moments.n
    assert table.mean(axis=0) == pytest.approx(moments.mean, abs=1e-9)
    assert np.cov(table.T, bias=True) * len(rows) == pytest.approx(moments.multiply_deviations(), abs=1e-6)
