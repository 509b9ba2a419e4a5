"""How soon `gatekeeper watch` sees acceptance fall: by the server's own counters, and by canaries at each duty.

    python -m bench.watch_falls                 # prints one table, in a few minutes
    python -m bench.watch_falls --months 100    # more precise
    python -m bench.watch_falls --json

Simulated are answers of a route that was certified with an acceptance of 0.80 and has a guard at 0.60. Each answer has
its own acceptance (a beta distribution around the truth) and length. Counters are read once a minute and cost nothing;
canaries cost the server's time, of which the duty is the share. What decides is the package's own
(`live/guards/fall_detection.py`, with the error of a policy of 30 days); `tests/live/test_watch_bench.py`
holds the bench's run of it against the package's.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np

from gatekeeper.core.policy import Watch
from gatekeeper.live.guards import fall_detection
from gatekeeper.live.guards.fall_detection import WeightedValue
from gatekeeper.live.guards.guard_values import LEAST_SPREAD, counter_units
from gatekeeper.live.running.deployed_server import CounterGain

MINUTE_S, MONTH_S = 60.0, 30 * 86400.0
CERTIFIED, BOUND = 0.80, 0.60
"""A soak's acceptance, and its guard as `analysis/verdict/policy/certified_policy.py` derives it: a quarter below."""
LONGEST, SHORTEST = 256, 64
"""Tokens of an answer; the policy knows the longest."""
DRAFT = 4
FOR_S = 300.0
"""How long the guard has to be crossed: one window of five minutes."""
SHARES = 2 * (3 + 1)
"""Of a route's error with three guards: one share each, and one for two detections of a fall."""
HEALTHY_S = 6 * 3600.0
"""Healthy time before a loss."""


@dataclass(frozen=True, slots=True)
class Row:
    """One truth under one condition."""

    source: str
    condition: str
    acceptance: float
    differ: float
    """Deviation of one answer's acceptance."""
    runs: int
    seen: float
    """Share of the runs in which the route was turned down."""
    minutes: float | None
    """Median time until then, from the loss on."""
    late: float | None
    """Nine runs of ten were turned down by then."""


def errors() -> float:
    """Return a route's error for one test over 30 days."""
    return Watch().false_alarms / SHARES


def evidence(every_s: float) -> float:
    """Return the evidence that a fall needs, if a value comes every so many seconds."""
    return fall_detection.compute_needed_evidence(MONTH_S / every_s, errors())


def accepted(mean: float, differ: float, count: int, random: np.random.Generator) -> np.ndarray:
    """Draw the acceptance of so many answers."""
    total = mean * (1 - mean) / differ**2 - 1
    return random.beta(mean * total, (1 - mean) * total, count)


def traffic(
    per_minute: float, truths: Sequence[tuple[float, float]], differ: float, random: np.random.Generator
) -> Iterator[CounterGain]:
    """Yield what the counters gain minute by minute, for each true acceptance and the seconds it lasts."""
    at = 0.0
    for mean, seconds in truths:
        arrived = random.poisson(per_minute, round(seconds / MINUTE_S))
        shares = accepted(mean, differ, int(arrived.sum()), random)
        tokens = random.integers(SHORTEST, LONGEST + 1, len(shares))
        rounds = np.maximum(1, np.round(tokens / (1 + DRAFT * shares)))
        drafted = DRAFT * rounds
        kept = np.round(drafted * shares)
        ends = np.cumsum(arrived)
        sums = [np.concatenate(([0.0], np.cumsum(one)))[ends] for one in (drafted, kept, rounds)]
        for gains in zip(*(np.diff(one, prepend=0.0) for one in sums), strict=True):
            at += MINUTE_S
            yield CounterGain(round(at * 1e9), *map(int, gains))


def canaries(
    every_s: float, truths: Sequence[tuple[float, float]], differ: float, random: np.random.Generator
) -> Iterator[WeightedValue]:
    """Yield answers of canaries, one every so many seconds."""
    at = 0.0
    for mean, seconds in truths:
        for share in accepted(mean, differ, round(seconds / every_s), random):
            at += every_s
            yield WeightedValue(round(at * 1e9), float(share))


def turned_down(units: Sequence[WeightedValue], need: float) -> float | None:
    """Return the second at which a route is turned down: a fall is detected, and its evidence lasts long enough."""
    reached, since = 0.0, 0
    for unit in units:
        since = unit.at_ns if reached <= 0 else since
        reached = max(0.0, reached)
        reached = min(
            need + fall_detection.ABOVE, reached + fall_detection.step(unit.value, unit.weight, BOUND, LEAST_SPREAD)
        )
        if reached >= need and unit.at_ns - since >= FOR_S * 1e9:
            return unit.at_ns / 1e9
    return None


def watched(
    source: str, condition: str, rate: float, mean: float, differ: float, runs: int, seed: int, *, month: bool
) -> Row:
    """Watch a route *runs* times: a healthy month, or the fall to *mean* after some hours."""
    random = np.random.default_rng([seed, round(100 * mean), round(1000 * differ), round(100 * rate)])
    truths = [(mean, MONTH_S)] if month else [(CERTIFIED, HEALTHY_S), (mean, 4 * 3600.0)]
    waits = []
    for _ in range(runs):
        if source == "counters":
            units, need = counter_units(traffic(rate, truths, differ, random), LONGEST), evidence(MINUTE_S)
        else:
            units, need = [*canaries(rate, truths, differ, random)], evidence(MINUTE_S / Watch().canaries)
        down = turned_down(units, need)
        if down is not None and (month or down > HEALTHY_S):
            waits.append((down - (0.0 if month else HEALTHY_S)) / 60)
    late = sorted(waits)[math.ceil(0.9 * runs) - 1] if len(waits) >= 0.9 * runs else None
    middle = None if month or len(waits) <= runs / 2 else median(waits)
    return Row(source, condition, mean, differ, runs, len(waits) / runs, middle, None if month else late)


TRAFFIC = (2.0, 5.0, 20.0)
"""Answers a minute."""
ANSWER_S = 3.0
"""Seconds of a canary's answer: 128 tokens at 43 tok/s. With its baseline request, a pair takes twice as long."""
DUTIES = (0.02, 0.05, 0.10, 0.20)
FELL_TO = (0.5, 0.4, 0.1)


def rows(runs: int, months: int, seed: int) -> list[Row]:
    """Return every row: months of healthy traffic first, then the falls."""
    found = []
    for rate in TRAFFIC:
        name = f"{rate:g} answers a minute"
        for mean, differ in ((CERTIFIED, 0.15), (BOUND, 0.10), (BOUND, 0.15)):
            found.append(watched("counters", name, rate, mean, differ, months, seed, month=True))
        found += [watched("counters", name, rate, mean, 0.15, runs, seed, month=False) for mean in FELL_TO]
    for workloads in (1, 3):
        for duty in DUTIES:
            every = 2 * ANSWER_S * workloads / duty
            name = f"duty {duty:.0%}, {workloads} workload{'s' if workloads > 1 else ''}"
            for mean in (CERTIFIED, BOUND):
                found.append(watched("canaries", name, every, mean, 0.15, months, seed, month=True))
            found += [watched("canaries", name, every, mean, 0.15, runs, seed, month=False) for mean in FELL_TO]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60, help="falls per row")
    parser.add_argument("--months", type=int, default=5, help="healthy months per row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    begun = time.perf_counter()
    found = rows(given.runs, given.months, given.seed)
    if given.json:
        print(json.dumps({"seed": given.seed, "rows": [asdict(row) for row in found]}, indent=1))
        return
    print(f"{'seen by':<10}{'condition':<24}{'acceptance':>11}{'differ':>8}{'runs':>6}{'down':>8}", end="")
    print(f"{'median':>10}{'9 of 10':>10}")
    for row in found:
        waits = ["-" if one is None else f"{one:.0f} min" for one in (row.minutes, row.late)]
        print(
            f"{row.source:<10}{row.condition:<24}{row.acceptance:>11.2f}{row.differ:>8.2f}{row.runs:>6}"
            f"{row.seen:>8.1%}{waits[0]:>10}{waits[1]:>10}"
        )
    healthy = [row for row in found if row.minutes is None and row.acceptance in {CERTIFIED, BOUND}]
    wrong = sum(row.seen * row.runs for row in healthy)
    took = time.perf_counter() - begun
    print(f"{wrong:.0f} of {sum(row.runs for row in healthy)} healthy months turned down; {took:.0f} s")


if __name__ == "__main__":
    main()
