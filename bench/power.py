"""How likely a soak proves a gain, by its size: what its looks decide at each noise, simulated in numpy.

    python -m bench.power --runs 300

Pairs of a soak of 600 s at eight seconds an answer, which may continue to 3600 s: 40 of them at its first look, then
80, 160 and 240, each look at the confidence that `certify` takes it at, with the error split over two fallback steps.
Canaries differ by 12 %, the noise is on every answer, and the sweep answered each canary once in both arms. The gain is
the distance of the true ratio from its bound. What lies left of 0 should never be proven.
"""

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.coverage import DIFFER, SHIFT
from bench.rehearsal import slo
from gatekeeper.analysis.plan.ladder import look_levels
from gatekeeper.analysis.stats import fixed_canaries, intervals, lasting_noise
from gatekeeper.analysis.stats.total_time import linearise_times
from gatekeeper.core.judgement import Estimate

NOISES = (0.02, 0.05, 0.10, 0.15)
CANARIES = (24, 96)
GAINS = (-0.03, 0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.10, 0.15, 0.20)
LOOKS = ((600.0, 40), (1200.0, 80), (2400.0, 160), (3600.0, 240))
"""Seconds of the soak, and its pairs."""
PROMISED = slo(
    workload=[{"name": "work", "canaries": "work.jsonl"}],
    sweep={"num_draft_tokens": [2, 4]},
    soak={"duration": LOOKS[0][0], "max_duration": LOOKS[-1][0]},
    objective=[{"metric": "throughput_ratio", "at_least": 1.0, "why": "it must pay"}],
)


def proven(gain: float, noise: float, canaries: int, random: np.random.Generator) -> int:
    """Simulate one soak; return how many looks it takes to prove the gain, 0 if none does."""
    heights = DIFFER * random.standard_normal(canaries)
    heights += math.log1p(gain) + math.log(float(np.exp(-heights).mean()))
    names = [f"c-{number}" for number in range(canaries)]
    swept = noise * random.standard_normal((2, canaries)) + [heights + SHIFT, np.zeros(canaries)]
    before = _times(names, swept)
    rounds = math.ceil(LOOKS[-1][1] / canaries)
    order = np.concatenate([random.permutation(canaries) for _ in range(rounds)])
    logs = noise * random.standard_normal((2, len(order))) + [heights[order], np.zeros(len(order))]
    seen = _times([names[one] for one in order], logs)
    ratios = list(zip(order.tolist(), (logs[0] - logs[1]).tolist(), strict=True))
    earlier = list(enumerate((swept[0] - swept[1]).tolist()))
    levels = look_levels(PROMISED, LOOKS)
    for look, ((_, pairs), level) in enumerate(zip(LOOKS, levels, strict=True), start=1):
        times = linearise_times(seen[:pairs], before)
        found: Any = fixed_canaries.mean_of_logs(times.logs, level, canaries, times.before, times.weights)
        if found is None:
            found = intervals.mean_log(times.pseudovalues(), level)
        if not isinstance(found, Estimate) or found.lo < 1:
            continue  # allowing for noise that lasts, it would lie lower still
        if lasting_noise.widen_bounds(found, lasting_noise.added_variance(ratios[:pairs], earlier)).lo >= 1:
            return look
    return 0


def _times(names: Sequence[str], logs: NDArray[np.float64]) -> list[tuple[str, float, float]]:
    """Return the seconds of plain decoding and of the candidate for one token, from the log speeds of both arms."""
    mine, plain = np.exp(-logs)
    return [(name, *seconds) for name, *seconds in zip(names, plain.tolist(), mine.tolist(), strict=True)]


def rows(runs: int, seed: int) -> list[dict[str, Any]]:
    """Return the share of soaks that prove each gain, at the first look and at any."""
    found = []
    for canaries in CANARIES:
        for noise in NOISES:
            for number, gain in enumerate(GAINS):
                random = np.random.default_rng([seed, canaries, round(1000 * noise), number])
                looks = [proven(gain, noise, canaries, random) for _ in range(runs)]
                row = {"canaries": canaries, "noise": noise, "gain": gain}
                found.append(row | {"first": looks.count(1) / runs, "any": 1 - looks.count(0) / runs})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="per gain, noise and number of canaries")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = rows(given.runs, given.seed)
    print(f"{'canaries':>8} {'noise':>6} {'gain':>6} {'600 s':>7} {'3600 s':>7}")
    for row in found:
        print(f"{row['canaries']:>8} {row['noise']:>6.0%} {row['gain']:>+6.1%} {row['first']:>7.1%} {row['any']:>7.1%}")


if __name__ == "__main__":
    main()
