"""How many nights end unproven where nothing changed, compared with the newest certified run, or with all together.

    python -m bench.nights                     # prints a table
    python -m bench.nights --chains 40 --json

Each night certifies the same system: 24 canaries that differ by 10 %, 50 pairs of answers in ten minutes at 5 % noise
an answer. The soak continues up to an hour, looked at with the error of two fallback steps, until its ratio to the
certified runs is proven above the bound, or below it. Nights that pass are certified runs for the next ones; the first
night only has to beat plain decoding and takes ten minutes. `slower` is what the system has lost since that night.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bench.rehearsal import slo
from gatekeeper.analysis.plan.ladder import look_levels
from gatekeeper.analysis.stats import run_to_run
from gatekeeper.core.verdict import Estimate
from gatekeeper.run.certified_baseline import MOST_POOLED

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


@dataclass(frozen=True, slots=True)
class Row:
    """How the nights after the first one ended."""

    bound: float
    slower: float
    together: bool
    passed: float
    unproven: float
    failed: float


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


def row_of(bound: float, slower: float, chains: int, seed: int, *, together: bool) -> Row:
    """Simulate so many chains of nights."""
    random = np.random.default_rng([seed, round(1000 * slower)])
    ends: dict[str, int] = {"passed": 0, "unproven": 0, "failed": 0}
    for _ in range(chains):
        heights = random.normal(0, SPREAD, CANARIES).tolist()
        certified = [night(heights, 0.0, random)[: LOOKS[0][1]]]
        for _ in range(NIGHTS):
            pairs = night(heights, math.log(1 - slower), random)
            compared = certified[-MOST_POOLED:] if together else certified[-1:]
            end, count = outcome(pairs, [pair for run in compared for pair in run], bound)
            ends[end] += 1
            if end == "passed":
                certified.append(pairs[:count])
    shares = {end: number / (chains * NIGHTS) for end, number in ends.items()}
    return Row(bound, slower, together, **shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=20, help=f"chains of {NIGHTS} nights a row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for bound, slower in ((0.97, 0.0), (0.96, 0.0), (0.95, 0.0), (0.95, 0.05), (0.95, 0.08)):
        for together in (False, True):
            rows.append(row := row_of(bound, slower, options.chains, options.seed, together=together))
            if options.json:
                continue
            if len(rows) == 1:
                print(f"{'bound':>6}{'slower':>8}{'compared with':>15}{'passed':>8}{'unproven':>10}{'failed':>8}")
            compared = "all" if together else "newest"
            print(f"{bound:>6}{slower:>8.0%}{compared:>15}", end="")
            print(f"{row.passed:>8.1%}{row.unproven:>10.1%}{row.failed:>8.1%}", flush=True)
    if options.json:
        document = {"chains": options.chains, "seed": options.seed, "rows": [asdict(row) for row in rows]}
        print(json.dumps(document, indent=1))
    else:
        print(f"{options.chains} chains of {NIGHTS} nights a row")


if __name__ == "__main__":
    main()
