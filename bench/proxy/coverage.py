"""How often the holdout's interval holds the truth all day: `python -m bench.proxy.coverage [DAYS [SEED]]`.

`python -m bench.proxy.coverage detect` prints after how many requests a loss is proven: requests come evenly, the
policy has its defaults and lives for 30 days, and it is judged after every plain answer.

A day has 3,000 requests of different lengths on a machine whose speed drifts; the interval is looked at after every
plain answer. It counts only where it held the truth at every look.
"""

import math
import sys

import numpy as np

from gatekeeper.analysis.stats import anytime
from gatekeeper.analysis.stats.anytime import Moments
from gatekeeper.core.clock import Instant
from gatekeeper.core.verdict import Estimate
from gatekeeper.proxy.live_evidence import LiveEvidence, Observation
from tests.builders.live_server import live_policy

TRUE, REQUESTS, ERROR = 1.6, 3000, 0.05
MOST = 30_000
"""Requests after which a simulation of a loss ends."""
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


def requests_until_seen(ratio: float, holdout: float, a_day: int, rng: np.random.Generator) -> int | None:
    """Return after how many requests the live guard proves that answers at *ratio* of plain speed are a loss."""
    evidence, rules = LiveEvidence(), live_policy(holdout=holdout)
    evidence.restart("easy", rules.watch.window, 0)
    for number in range(1, MOST):
        arm = "holdout" if rng.random() < holdout else "speculative"
        log = 4 + 0.15 * rng.normal() + (math.log(ratio) if arm == "speculative" else 0.0)
        prompt, answer = (round(math.exp(rng.normal(of, 1))) for of in (6, 5))
        seen = Observation("easy", arm, 1, prompt, answer, True, math.exp(log), 0.2, False)
        now = Instant(round(number * 86400e9 / a_day), rules.issued)
        evidence.add(seen, now.now_ns)
        if arm == "holdout" and evidence.judge("easy", rules, now):
            return number
    return None


def detect() -> None:
    """Print a table of the requests until a loss is proven: the median of 20 simulations, and the 18th."""
    rng = np.random.default_rng(3)
    print("| decode speed over plain | a day | holdout 2 % | holdout 5 % |\n|---|---|---|---|")
    for ratio in (0.5, 0.7, 0.9):
        for a_day in (3_000, 30_000):
            cells = []
            for holdout in (0.02, 0.05):
                runs = sorted(requests_until_seen(ratio, holdout, a_day, rng) or MOST for _ in range(20))
                shown = [f"{one:,}" if one < MOST else "not seen" for one in (runs[9], runs[17])]
                cells.append(", ".join(shown))
            print(f"| {ratio} | {a_day:,}", *cells, sep=" | ", end=" |\n", flush=True)


if __name__ == "__main__" and sys.argv[1:] == ["detect"]:
    detect()
elif __name__ == "__main__":
    found = coverage(*map(int, sys.argv[1:] or ["200"]))
    for what, share in found.items():
        print(f"{what}: {share:.1%} of the days")
    print(f"at least {min(found.values()):.1%}, {sum(found.values()) / len(found):.1%} in the mean")
