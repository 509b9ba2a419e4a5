"""How often each interval holds what is true, by simulation with fixed seeds: each side at least nearly as promised.

The floors lie three standard errors of the simulation below 95 %, so that another numpy's random numbers pass too; a
swapped bound covers 5 %. `below` and `above` are values that every useful interval mostly excludes.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from gatekeeper.analysis.stats import intervals
from gatekeeper.core.judgement import Estimate, Missing
from tests.builders.slo import known

LEVEL = 0.95


@pytest.fixture(autouse=True, scope="module")
def _bounds_once() -> Iterator[None]:
    """Bisect for each proportion once: the same few counts come again in most of the hundreds of runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "proportion_bounds", cache(intervals.proportion_bounds))
        yield


Draw = Callable[[np.random.Generator, int], Estimate | Missing]


@dataclass(frozen=True)
class Simulation:
    draw: Draw
    true: float
    below: float
    """So far under the truth that `lo` mostly lies above it."""
    above: float
    runs: int
    side: float = LEVEL
    """How often each bound holds."""


def _quantile(random: np.random.Generator, _: int) -> Estimate | Missing:
    return intervals.quantile(random.exponential(size=80).tolist(), 0.95, LEVEL)


def _geometric(random: np.random.Generator, _: int) -> Estimate | Missing:
    canaries = random.normal(0.2, 0.3, size=12)
    return intervals.geometric_mean_ratio(
        {str(at): np.exp(mean + random.normal(0, 0.1, size=3)).tolist() for at, mean in enumerate(canaries)},
        LEVEL,
    )


def _p95_of(clusters: Mapping[str, NDArray[np.float64]]) -> Estimate | Missing:
    weighed = {name: [(float(value), 1) for value in values] for name, values in clusters.items()}
    return intervals.pooled_quantile(weighed, 0.95, LEVEL)


def _pooled_apart(random: np.random.Generator, _: int) -> Estimate | Missing:
    """The fewest answers a p95 may rest on, long and each with a speed of its own."""
    return _p95_of({str(at): np.exp(random.normal(0, 0.6) + random.normal(0, 0.3, size=100)) for at in range(59)})


def _pooled_stalls(random: np.random.Generator, _: int) -> Estimate | Missing:
    """A tenth of the answers stall in two gaps of five, the others in one of fifty: the p95 is just a stall."""
    clusters = {}
    for at in range(80):
        stalls = random.random(60) < (0.4 if random.random() < 0.1 else 0.02)
        clusters[str(at)] = np.where(stalls, 0.2 + random.exponential(0.5, 60), 0.05 + 0.01 * random.random(60))
    return _p95_of(clusters)


def _flickering(random: np.random.Generator, _: int) -> Estimate | Missing:
    """A tenth of the canaries fail in every third answer, a tenth always: 2 in 15 of all answers."""
    hard = random.random(60)
    chance = np.where(hard < 0.1, 1.0, np.where(hard < 0.2, 1 / 3, 0.0))
    return intervals.clustered_share(
        {str(at): (random.random(4) < chance_of_failure).tolist() for at, chance_of_failure in enumerate(chance)}, LEVEL
    )


def _unsteady(random: np.random.Generator, _: int) -> Estimate | Missing:
    """Where repeats disagree: every second canary gains a little, every fifth loses all, -0.15 on the whole."""
    kind = random.random(200)
    marks = {
        str(at): (0.1, 0.0) if draw < 0.5 else (0.0, 1.0) if draw < 0.7 else (1.0, 1.0) for at, draw in enumerate(kind)
    }
    return intervals.paired_pass_delta(marks, LEVEL)


_APART = math.exp(NormalDist(0, math.hypot(0.6, 0.3)).inv_cdf(0.95))
_STALL = 0.2 + 0.5 * math.log((0.1 * 0.4 + 0.9 * 0.02) / 0.05)
SIMULATIONS = {
    "quantile": Simulation(_quantile, -math.log(0.05), 1.5, 9.0, 400),
    "geometric_mean_ratio": Simulation(_geometric, math.exp(0.2), 0.9, 1.6, 300),
    "pooled_quantile_apart": Simulation(_pooled_apart, _APART, 0.4 * _APART, 3.0 * _APART, 400),
    # Where the share of late gaps is itself uncertain, few answers that stall make it look surer than it is.
    "pooled_quantile_stalls": Simulation(_pooled_stalls, _STALL, 0.04, 4 * _STALL, 400, side=0.93),
    "paired_pass_delta_unsteady": Simulation(_unsteady, -0.15, -0.35, 0.5, 400),
    "clustered_share": Simulation(_flickering, 2 / 15, 0.01, 0.4, 400),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", SIMULATIONS)
def test_each_bound_holds_as_often_as_promised(name: str) -> None:
    """The truth lies above `lo` and below `hi` in about 95 of 100 runs each, and no bound is useless."""
    simulation = SIMULATIONS[name]
    above_lo = below_hi = useful_lo = useful_hi = 0

    for seed in range(simulation.runs):
        interval = known(simulation.draw(np.random.default_rng(seed), seed))
        above_lo += interval.lo <= simulation.true
        below_hi += simulation.true <= interval.hi
        useful_lo += interval.lo > simulation.below
        useful_hi += interval.hi < simulation.above

    least = simulation.side - 3 * math.sqrt(simulation.side * (1 - simulation.side) / simulation.runs)
    assert LEVEL == interval.confidence
    assert min(above_lo, below_hi) >= least * simulation.runs
    assert min(useful_lo, useful_hi) >= 0.8 * simulation.runs
