"""How often the holdout's interval holds the truth all day: `python -m bench.proxy.coverage [DAYS [SEED]]`.

    python -m bench.proxy.coverage 200 11            # the eleven worlds of bench/proxy/worlds.py, for an hour
    python -m bench.proxy.coverage noises 200 11     # the interval alone, under six kinds of noise
    python -m bench.proxy.coverage detect            # after how many requests a loss is proven
    python -m bench.proxy.coverage gain              # is a route turned off that gains 3 %?

A day of a world has 2,650 requests. Its interval is looked at after each plain answer, and counts only where it held
the truth at every look; until it has enough to say, it says *unproven*. A day of a noise has 3,000 requests of
different lengths on a machine whose speed drifts. A loss is looked for after every plain answer, by a policy with its
defaults that lives for 30 days.
"""

import math
import sys
from dataclasses import replace

import numpy as np

from bench.proxy.worlds import BASE, DAY_S, OWN_SERVER, STICKY, STICKY_LONG, WORLDS, Day, World
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.live import anytime_bounds
from gatekeeper.live.anytime_bounds import Moments
from gatekeeper.live.live_evidence import LEAST_CONVERSATIONS

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
    estimate: Estimate | Missing | None = None
    for number, row in enumerate(rows):
        arms[bool(treated[number])].add(tuple(row))
        if not treated[number] or number == REQUESTS - 1:
            estimate = anytime_bounds.ratio(arms[True], arms[False], ERROR, LEAST_CONVERSATIONS)
            if isinstance(estimate, Estimate) and not estimate.lo <= TRUE <= estimate.hi:
                return False, 0.0
    return True, math.log(estimate.hi / estimate.lo) / 2 if isinstance(estimate, Estimate) else math.inf


def coverage(days: int, seed: int = 1) -> dict[str, float]:
    """Return the share of days that held, by noise and holdout."""
    rng = np.random.default_rng(seed)
    shares = {}
    for holdout in (0.02, 0.05):
        for name in NOISES:
            results = [holds(name, holdout, rng) for _ in range(days)]
            shares[f"{name}, holdout {holdout:.0%}"] = sum(held for held, _ in results) / days
    return shares


def held(world: World, seed: int) -> tuple[bool, bool, Estimate | Missing]:
    """Return whether speed and time to first token held the truth all day, and the speed at its end."""
    misses = {"speed": False, "ttft": False}

    def look(day: Day) -> bool:
        if day.arm == "holdout" or day.answered % 100 == 0:
            benefit = day.benefit()
            for name, truth in (("speed", world.ratio), ("ttft", 1.0)):
                estimate = getattr(benefit, name)
                misses[name] |= isinstance(estimate, Estimate) and not estimate.lo <= truth <= estimate.hi
        return False

    day = Day(world, np.random.default_rng(seed), look=look).run()
    return not misses["speed"], not misses["ttft"], day.benefit().speed


def print_worlds(days: int, seed: int = 1) -> float:
    """Print a row for each world; return the least share of days that held."""
    print("| world | speed held | first token held | days with an interval | bias | half-width |")
    print("|---|---|---|---|---|---|")
    least = 1.0
    for world in WORLDS:
        speeds, ttfts, ends = zip(*(held(world, seed * 10_000 + day) for day in range(days)), strict=True)
        shares = sum(speeds) / days, sum(ttfts) / days
        estimates = [end for end in ends if isinstance(end, Estimate)]
        cells = [*(f"{share:.1%}" for share in shares), f"{len(estimates) / days:.0%}"]
        if estimates:
            cells.append(f"{np.mean([math.log(estimate.center / world.ratio) for estimate in estimates]):+.1%}")
            cells.append(f"{np.mean([math.log(estimate.hi / estimate.lo) / 2 for estimate in estimates]):.1%}")
        else:
            cells += ["unproven", "unproven"]
        print(f"| {world.name} |", " | ".join(cells), "|", flush=True)
        least = min(least, *shares)
    return least


def requests_until_off(world: World, days: float, seed: int) -> int | None:
    """Return after how many requests the live guard turns the route off; None where it does not."""

    def look(day: Day) -> bool:
        return day.arm == "holdout" and bool(day.routes.evidence.judge("easy", day.policy, day.instant()))

    day = Day(world, np.random.default_rng(seed), seconds=days * DAY_S, look=look).run()
    return day.answered if day.is_ended else None


def print_losses(runs: int = 10) -> None:
    """Print after how many requests a loss is proven in three days: how often, the median, and nine of ten."""
    print("| world | decode speed over plain | holdout | proven | requests: median, nine of ten |")
    print("|---|---|---|---|---|")
    for world in (BASE, OWN_SERVER, STICKY, STICKY_LONG):
        for ratio in (0.5, 0.7, 0.9):
            for holdout in (0.02, 0.05):
                losing = replace(world, ratio=ratio, holdout=holdout)
                counts = [requests_until_off(losing, 3, 100 + run) for run in range(runs)]
                ordered = sorted(math.inf if count is None else count for count in counts)
                at = [ordered[(runs - 1) // 2], ordered[math.ceil(0.9 * runs) - 1]]
                shown = ", ".join(f"{count:,}" if math.isfinite(count) else "not in three days" for count in at)
                proven = sum(count is not None for count in counts)
                print(f"| {world.name} | {ratio} | {holdout:.0%} | {proven} of {runs} | {shown} |", flush=True)


def print_gain(runs: int = 10) -> None:
    """Print in how many of some runs of five days a route is turned off that gains 3 %."""
    for world in (BASE, OWN_SERVER):
        offs = [requests_until_off(replace(world, ratio=1.03), 5, 200 + run) for run in range(runs)]
        count = sum(off is not None for off in offs)
        print(f"{world.name}: a gain of 3 % is turned off in {count} of {runs}", flush=True)


def print_noises(days: int, seed: int = 1) -> None:
    """Print the share of days that held under each kind of noise."""
    shares = coverage(days, seed)
    for noise, share in shares.items():
        print(f"{noise}: {share:.1%} of the days")
    print(f"at least {min(shares.values()):.1%}, {sum(shares.values()) / len(shares):.1%} in the mean")


def main(what: str = "worlds", *numbers: str) -> None:
    """Run one of the commands above."""
    if what.isdigit():
        return main("worlds", what, *numbers)
    days = [int(number) for number in numbers]
    if what in {"worlds", "noises"}:
        (print_worlds if what == "worlds" else print_noises)(*(days or [200]))
    else:
        {"detect": print_losses, "gain": print_gain}[what](*days)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
