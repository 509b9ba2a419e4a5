"""How many nights end unproven where nothing changed, compared with the newest certified run, or with all together.

    python -m bench.nights --chains 40

Each night certifies the same system: 24 canaries that differ by 10 %, 50 pairs of answers in ten minutes at 5 % noise
an answer. The soak continues up to an hour, looked at with the error of two fallback steps, until its ratio to the
certified runs is proven above the bound, or below it. Nights that pass are certified runs for the next ones; the first
night only has to beat plain decoding and takes ten minutes. `slower` is what the system has lost since that night. A
chain has 14 nights.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.rehearsal import slo
from bench.world_table import print_table
from gatekeeper.analysis.plan.ladder import look_levels
from gatekeeper.analysis.stats import run_to_run
from gatekeeper.core.judgement import Estimate
from gatekeeper.run.stored.certified_baseline import MOST_POOLED

CANARIES, NIGHTS = 24, 14
NOISE, SPREAD = 0.05, 0.10
LOOKS = ((600.0, 50), (1200.0, 100), (2400.0, 200), (3600.0, 300))
"""Seconds of the soak, and its pairs."""
PROMISED = slo(
    workload=[{"name": "work", "canaries": "work.jsonl"}],
    sweep={"num_draft_tokens": [2, 4]},
    soak={"duration": LOOKS[0][0], "max_duration": LOOKS[-1][0]},
    objective=[{"metric": "throughput_ratio", "at_least": 1.0, "why": "it must pay"}],
)
LEVELS = look_levels(PROMISED, LOOKS)
Night = list[tuple[str, float]]
"""The log ratios of its pairs, each with its canary."""


def night(heights: Sequence[float], level: float, random: np.random.Generator) -> Night:
    """Return the pairs of a soak of an hour."""
    noise = math.sqrt(2) * NOISE * random.standard_normal(LOOKS[-1][1])
    return [
        (f"c{number % CANARIES}", heights[number % CANARIES] + level + float(extra))
        for number, extra in enumerate(noise)
    ]


def outcome(pairs: Night, then: Night, bound: float) -> tuple[str, int]:
    """Return how a night ends, and after how many pairs."""
    for (_, count), level in zip(LOOKS, LEVELS, strict=True):
        ratio = run_to_run.ratio(pairs[:count], then, level, CANARIES, logs=True)
        assert isinstance(ratio, Estimate)
        if ratio.lo >= bound:
            return "passed", count
        if ratio.hi < bound:
            return "failed", count
    return "unproven", LOOKS[-1][1]


class World(NamedTuple):
    """A bound against the certified runs, and by how much each night is slower than the first one."""

    bound: float
    slower: float
    together: bool
    """All certified runs count, not the newest alone."""


WORLDS = [
    World(bound, slower, together)
    for bound, slower in ((0.97, 0.0), (0.96, 0.0), (0.95, 0.0), (0.95, 0.05), (0.95, 0.08))
    for together in (False, True)
]


def cells(world: World, chains: int, seed: int) -> dict[str, str]:
    """Simulate so many chains of nights; return the row of a world."""
    random = np.random.default_rng([seed, round(1000 * world.slower)])
    ends: dict[str, int] = {"passed": 0, "unproven": 0, "failed": 0}
    for _ in range(chains):
        heights = random.normal(0, SPREAD, CANARIES).tolist()
        certified = [night(heights, 0.0, random)[: LOOKS[0][1]]]
        for _ in range(NIGHTS):
            pairs = night(heights, math.log(1 - world.slower), random)
            compared = certified[-MOST_POOLED:] if world.together else certified[-1:]
            end, count = outcome(pairs, [pair for run in compared for pair in run], world.bound)
            ends[end] += 1
            if end == "passed":
                certified.append(pairs[:count])
    shares = {end: f"{number / (chains * NIGHTS):.1%}" for end, number in ends.items()}
    compared_with = "all" if world.together else "newest"
    return {"bound": f"{world.bound}", "slower": f"{world.slower:.0%}", "compared with": compared_with, **shares}


if __name__ == "__main__":
    print_table(__doc__ or "", ("chains", 20), WORLDS, cells)
