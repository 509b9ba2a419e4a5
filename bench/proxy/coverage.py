"""How often the holdout's interval holds the truth all day: `python -m bench.proxy.coverage [DAYS [SEED]]`.

A day has 3,000 requests of different lengths on a machine whose speed drifts; the interval is looked at after every
plain answer. It counts only where it held the truth at every look.
"""

import math
import sys

import numpy as np

from gatekeeper.analysis.stats import anytime
from gatekeeper.analysis.stats.anytime import Moments
from gatekeeper.core.verdict import Estimate

TRUE, REQUESTS, ERROR = 1.6, 3000, 0.05
NOISES = ("normal", "heavy", "draft varies", "plain varies", "skewed", "rare slow answers")


def _noise(name: str, rng: np.random.Generator, treated: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> np.ndarray:
    n = len(treated)
    if name == "heavy":
        return 0.15 * rng.standard_t(3, n)
    if name == "skewed":
        return 0.3 - rng.exponential(0.3, n)
    if name == "rare slow answers":
        return np.where(rng.random(n) < 0.1, -1.0, 0.111) + rng.normal(0, 0.05, n)
    wide = {"draft varies": (0.35, 0.06), "plain varies": (0.06, 0.35)}.get(name, (0.15, 0.15))
    return rng.normal(0, 1, n) * np.where(treated, *wide)


def holds(name: str, holdout: float, rng: np.random.Generator) -> tuple[bool, float]:
    """Return whether one day's interval always held the truth, and its last half-width (a log)."""
    treated = rng.random(REQUESTS) >= holdout
    prompt, answer = rng.normal(6, 1.2, REQUESTS), rng.normal(5, 0.9, REQUESTS)
    streamed = (rng.random(REQUESTS) < 0.8).astype(float)
    drift = 0.2 * np.sin(np.linspace(0, 2 * math.pi, REQUESTS)) + 0.005 * np.cumsum(rng.normal(0, 1, REQUESTS))
    logs = 3 - 0.06 * prompt + 0.1 * answer - 0.5 * (1 - streamed) + math.log(TRUE) * treated + drift
    rows = np.c_[prompt, answer, streamed, logs + _noise(name, rng, treated)]
    arms = {True: Moments(4), False: Moments(4)}
    seen = None
    for number, row in enumerate(rows):
        arms[bool(treated[number])].add(tuple(row))
        if not treated[number] or number == REQUESTS - 1:
            seen = anytime.ratio(arms[True], arms[False], ERROR)
            if isinstance(seen, Estimate) and not seen.lo <= TRUE <= seen.hi:
                return False, 0.0
    return True, math.log(seen.hi / seen.lo) / 2 if isinstance(seen, Estimate) else math.inf


def coverage(days: int, seed: int = 1) -> dict[str, float]:
    """Return the share of days that held, by noise and holdout."""
    rng = np.random.default_rng(seed)
    found = {}
    for holdout in (0.02, 0.05):
        for name in NOISES:
            results = [holds(name, holdout, rng) for _ in range(days)]
            found[f"{name}, holdout {holdout:.0%}"] = sum(held for held, _ in results) / days
    return found


if __name__ == "__main__":
    found = coverage(*map(int, sys.argv[1:] or ["200"]))
    for what, share in found.items():
        print(f"{what}: {share:.1%} of the days")
    print(f"at least {min(found.values()):.1%}, {sum(found.values()) / len(found):.1%} in the mean")
