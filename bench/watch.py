"""How soon `gatekeeper watch` detects a loss, and how often it wrongly turns a healthy route down.

    python -m bench.watch                     # simulated months and losses; prints two tables
    python -m bench.watch --runs 2000         # more precise
    python -m bench.watch --falls             # how soon a fall of acceptance is seen, in a few minutes

A run is one route: a canary paired with a baseline request at intervals, and after each the guards that `certify`
writes, at the error of a look. Simulated are a pair's ratio, an answer's acceptance and whether it failed; how these
are read from an answer is tested elsewhere.
The bounds are the package's own, applied to whole months with rolling sums; `tests/live/test_watch_bench.py`
holds every look of a run against `live.guards`.

A fall is one of a route that was certified with an acceptance of 0.80 and has a guard at 0.60. Each answer has its own
acceptance (a beta distribution around the truth) and length. Counters are read once a minute and cost nothing; canaries
cost the server's time, of which the duty is the share. What decides is `live/guards/fall_detection.py`, with the error
of a policy of 30 days.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, median

import numpy as np
from numpy.typing import NDArray

from gatekeeper.analysis.stats import intervals, sequential
from gatekeeper.core.judgement import Estimate
from gatekeeper.core.policy import Guard, Policy, Watch
from gatekeeper.live.guards import fall_detection
from gatekeeper.live.guards.fall_detection import WeightedValue
from gatekeeper.live.guards.guard_judgement import STRETCHES, GuardContext, round_error
from gatekeeper.live.guards.guard_values import (
    LEAST_SPREAD,
    MIN_SHARE_VALUES,
    counter_units,
    median_bounds,
    median_min_values,
    share_bounds,
)
from gatekeeper.live.running.deployed_server import CounterGain

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

DAY_S = 86400.0
MONTH_S = 30 * DAY_S
LOOK_S = 60.0
CERTIFIED = {"throughput_ratio": 1.40, "acceptance_rate": 0.80, "error_rate": 0.0}
"""What the soak measured."""
BOUNDS = {"throughput_ratio": 1.16, "acceptance_rate": 0.60, "error_rate": 0.05}
"""An objective, and two bounds as `analysis/verdict/policy/certified_policy.py` derives them."""
CONFIDENCE = 0.95
"""Of a bound that is kept."""
ACCEPTED_NOISE = 0.10
"""Deviation of one answer's acceptance: canaries differ."""


HARD = 0.25
SOAKED = 24
"""Canaries of the soak."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How noisy production is, and how seldom a canary may be sent."""

    name: str
    noise: float
    """Deviation of one pair's log ratio: both answers' noise, and what makes canaries differ."""
    every_s: float
    """Seconds from pair to pair of a workload: what a pair costs, over the duty."""
    tails: float = math.inf
    """Degrees of freedom of Student's t, scaled to the same deviation; infinite for normal noise."""
    hard: float = 0.0
    """A quarter of the canaries gain so much less (log ratio) than the rest."""

    @property
    def differ(self) -> float:
        """Return the deviation of the canaries' own log ratios."""
        return self.hard * math.sqrt(HARD * (1 - HARD))


CONDITIONS = (
    Condition("noise 7%, a pair a minute", 0.07, 60.0),
    Condition("noise 15%, a pair a minute", 0.15, 60.0),
    Condition("noise 15%, heavy tails", 0.15, 60.0, tails=3.0),
    Condition("noise 7%, a quarter is hard", 0.07, 60.0, hard=0.4),
    Condition("noise 15%, a pair in 10 min", 0.15, 600.0),
)


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of a route."""

    name: str
    ratio: float = CERTIFIED["throughput_ratio"]
    acceptance: float = CERTIFIED["acceptance_rate"]
    errors: float = 0.0


HEALTHY = (
    Truth("as certified"),
    Truth("5% inside every bound", 1.16 * 1.05, 0.60 * 1.05, 0.05 * 0.95),
    Truth("at every bound", *BOUNDS.values()),
)
LOSSES = (
    Truth("5% below the bound", ratio=1.16 * 0.95),
    Truth("10% below the bound", ratio=1.16 * 0.90),
    Truth("20% below the bound", ratio=1.16 * 0.80),
    Truth("half of plain decoding", ratio=0.5),
    Truth("every fifth answer fails", errors=0.2),
    Truth("no answer comes", errors=1.0),
)


def policy(condition: Condition) -> Policy:
    """Return a policy with the guards above, of a month, and with what a soak measures of so different canaries."""
    center, half = CERTIFIED["throughput_ratio"], intervals.student_quantile(0.95, SOAKED - 1) * condition.differ
    factor = math.exp(half / math.sqrt(SOAKED))
    ratio = {"center": center, "lo": center / factor, "hi": center * factor, "n": SOAKED}
    sides = {"throughput_ratio": "at_least", "acceptance_rate": "at_least", "error_rate": "at_most"}
    return Policy.model_validate(
        {
            "schema": 1,
            "slo": "bench",
            "grade": "certification",
            "manifest_sha256": "",
            "verdict_sha256": "",
            "issued": 0,
            "expires": MONTH_S,
            "conditions": {
                "backend": "scripted",
                "target": "t",
                "prompt_cache": "off",
                "concurrency": 1,
                "max_tokens": 512,
            },
            "watch": {"interval": LOOK_S},
            "route": [
                {
                    "workload": "w",
                    "speculation": True,
                    "setting": {"draft": "d"},
                    "measured": {"throughput_ratio": ratio},
                }
            ],
            "guard": [{"metric": name, sides[name]: bound, "for": 120.0} for name, bound in BOUNDS.items()],
        }
    )


def error_of(known: Policy) -> float:
    """Return the error of one bound at one look."""
    return round_error(GuardContext(known, {}, greedy=True, host_interval=1.0), "w")


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn of a route, pair by pair; nan where the answer failed."""

    logs: Floats
    accepted: Floats
    failed: Floats


def drawn(truths: Sequence[tuple[Truth, int]], condition: Condition, random: np.random.Generator) -> Drawn:
    """Draw so many pairs of each truth, one after another."""
    ratio, acceptance, errors = (
        np.concatenate([np.full(count, getattr(truth, name)) for truth, count in truths])
        for name in ("ratio", "acceptance", "errors")
    )
    count = len(ratio)
    noise = random.standard_normal(count)
    if math.isfinite(condition.tails):
        noise = random.standard_t(condition.tails, count) * math.sqrt((condition.tails - 2) / condition.tails)
    easier = np.where(random.random(count) < HARD, HARD - 1, HARD) * condition.hard
    logs = np.log(ratio) + easier + condition.noise * noise
    accepted = np.clip(acceptance + ACCEPTED_NOISE * random.standard_normal(count), 0.0, 1.0)
    failed = random.random(count) < errors
    return Drawn(np.where(failed, np.nan, logs), np.where(failed, np.nan, accepted), failed.astype(np.float64))


def crossed(metric: str, values: Floats, error: float, differ: float = 0.0) -> Flags:
    """Return after each of *values* whether its guard is crossed: by the latest stretch that decides."""
    found, open_ = np.zeros(len(values), dtype=bool), np.ones(len(values), dtype=bool)
    count = {
        "throughput_ratio": sequential.MIN_CANARIES,
        "acceptance_rate": median_min_values(error),
        "error_rate": MIN_SHARE_VALUES,
    }[metric]
    for _ in range(STRETCHES):
        if count > len(values):
            break
        beyond, kept = _BORDERS[metric](values, count, error, differ)
        found[count - 1 :] |= beyond & open_[count - 1 :]
        open_[count - 1 :] &= ~(beyond | kept)
        count *= 2
    return found


def _ratio(values: Floats, count: int, error: float, differ: float) -> tuple[Flags, Flags]:
    mean = _rolling(values, count) / count
    spread = np.sqrt(np.maximum(0.0, _rolling(values**2, count) - count * mean**2) / (count - 1))

    def half(one: float) -> Floats:
        wide: Floats = np.maximum(_student(1 - one, count - 1) * spread, -NormalDist().inv_cdf(one) * differ)
        return wide / math.sqrt(count)

    bound = math.log(BOUNDS["throughput_ratio"])
    return mean + half(error) < bound, mean - half(1 - CONFIDENCE) >= bound


def _acceptance(values: Floats, count: int, error: float, _: float) -> tuple[Flags, Flags]:
    low = _rolling((values < BOUNDS["acceptance_rate"]).astype(np.float64), count)
    far, near = (median_bounds(list(range(count)), one) for one in (error, 1 - CONFIDENCE))
    assert isinstance(far, Estimate)
    assert isinstance(near, Estimate)
    # An order statistic lies below the bound where more values do than stand before it.
    return low > far.hi + 0.5, low < near.lo + 0.5


def _errors(values: Floats, count: int, error: float, _: float) -> tuple[Flags, Flags]:
    bound, failed = BOUNDS["error_rate"], _rolling(values, count)
    many = next((k for k in range(count + 1) if _share(k, count, error).lo > bound), count + 1)
    few = next((k for k in range(count, -1, -1) if _share(k, count, 1 - CONFIDENCE).hi <= bound), -1)
    return failed > many - 0.5, failed < few + 0.5


_BORDERS = {"throughput_ratio": _ratio, "acceptance_rate": _acceptance, "error_rate": _errors}


@cache
def _student(level: float, degrees: int) -> float:
    return intervals.student_quantile(level, degrees)


@cache
def _share(many: int, count: int, error: float) -> Estimate:
    seen = share_bounds([1.0] * many + [0.0] * (count - many), error)
    assert isinstance(seen, Estimate)
    return seen


def _rolling(values: Floats, count: int) -> Floats:
    heap = np.concatenate(([0.0], np.cumsum(values)))
    sums: Floats = heap[count:] - heap[:-count]
    return sums


def first_down(one: Drawn, known: Policy, condition: Condition, error: float) -> int | None:
    """Return after which pair the route first goes down: any guard crossed for as long as it says."""
    found = [len(one.failed)]
    for guard in known.guard:
        held = _held(_flags(guard, one, error, condition), guard, condition)
        if held.any():
            found.append(int(np.argmax(held)))
    return min(found) if min(found) < len(one.failed) else None


def _flags(guard: Guard, one: Drawn, error: float, condition: Condition) -> Flags:
    """Return by pair whether a guard is crossed; a pair that failed changes nothing about speed and acceptance."""
    values = {"throughput_ratio": one.logs, "acceptance_rate": one.accepted, "error_rate": one.failed}[guard.metric]
    known = np.isfinite(values)
    flags = crossed(guard.metric, values[known], error, condition.differ)
    at = np.cumsum(known) - 1
    out: Flags = np.where(at >= 0, flags[np.maximum(at, 0)] if len(flags) else False, False)
    return out


def _held(flags: Flags, guard: Guard, condition: Condition) -> Flags:
    """Return by pair whether every look was crossed for as long as the guard says."""
    need = math.floor(guard.for_ / condition.every_s) + 1
    out = np.zeros(len(flags), dtype=bool)
    if len(flags) >= need:
        out[need - 1 :] = _rolling(flags.astype(np.float64), need) > need - 0.5
    return out


@dataclass(frozen=True, slots=True)
class Row:
    """One truth under one condition."""

    condition: str
    truth: str
    runs: int
    turned_down: float
    """Share of the runs in which the route went down."""
    pairs: float | None
    """Median number of pairs until then, from the loss on."""
    late: float | None
    """The number of pairs by which nine runs of ten went down."""
    every_s: float


def months(condition: Condition, truth: Truth, runs: int, seed: int) -> Row:
    """Watch a healthy route for 30 days, *runs* times."""
    known = policy(condition)
    error, count = error_of(known), int(MONTH_S / condition.every_s)
    random = np.random.default_rng([seed, round(1e4 * truth.ratio), round(condition.every_s)])
    downs = [first_down(drawn([(truth, count)], condition, random), known, condition, error) for _ in range(runs)]
    share = sum(one is not None for one in downs) / runs
    return Row(condition.name, truth.name, runs, share, None, None, condition.every_s)


BEFORE = 600
"""Healthy pairs before a loss: more than any stretch looks back on."""
AFTER = 3000
"""Pairs after it, at most."""


def losses(condition: Condition, truth: Truth, runs: int, seed: int) -> Row:
    """Watch a route that was healthy lose so much, *runs* times."""
    known = policy(condition)
    error = error_of(known)
    random = np.random.default_rng([seed, 1, round(1e4 * truth.ratio), round(condition.every_s)])
    waits = []
    for _ in range(runs):
        down = first_down(drawn([(HEALTHY[0], BEFORE), (truth, AFTER)], condition, random), known, condition, error)
        if down is not None and down >= BEFORE:
            waits.append(down - BEFORE + 1)
    share = len(waits) / runs
    late = sorted(waits)[math.ceil(0.9 * runs) - 1] if len(waits) >= 0.9 * runs else None
    return Row(condition.name, truth.name, runs, share, median(waits) if share > 0.5 else None, late, condition.every_s)


def print_months(rows: Sequence[Row]) -> None:
    """Print how often a healthy month ended in a step down."""
    print(f"{'30 healthy days':<32}{'truth':<28}{'turned down':>12}")
    for row in rows:
        print(f"{row.condition:<32}{row.truth:<28}{row.turned_down:>11.1%}")


def print_losses(rows: Sequence[Row]) -> None:
    """Print how soon a loss was caught."""
    print(f"\n{'loss':<32}{'truth':<28}{'caught':>8}{'pairs':>8}{'9 of 10':>9}{'time':>11}")
    for row in rows:
        pairs, late = ("-" if one is None else f"{one:.0f}" for one in (row.pairs, row.late))
        spent = "-" if row.pairs is None else f"{row.pairs * row.every_s / 60:.0f} min"
        print(f"{row.condition:<32}{row.truth:<28}{row.turned_down:>8.0%}{pairs:>8}{late:>9}{spent:>11}")


LONGEST, SHORTEST = 256, 64
"""Tokens of an answer; the policy knows the longest."""
DRAFT = 4
FOR_S = 300.0
"""How long the guard has to be crossed: one window of five minutes."""
SHARES = 2 * (3 + 1)
"""Of a route's error with three guards: one share each, and one for two detections of a fall."""
HEALTHY_S, FALLEN_S = 6 * 3600.0, 4 * 3600.0
"""Healthy time before a fall, and after it."""
FELL_TO = (0.5, 0.4, 0.1)
DIFFER = 0.15
"""Deviation of one answer's acceptance in a fall."""
SOURCES = (
    *((f"counters: {rate:g} answers a minute", rate, 0.0) for rate in (2.0, 5.0, 20.0)),
    *((f"canaries: duty {duty:.0%}, {count} workloads", 0.0, 2 * 3.0 * count / duty)
      for count in (1, 3) for duty in (0.02, 0.05, 0.10, 0.20)),
)  # fmt: skip
"""Answers a minute of the traffic; or the seconds from canary to canary, whose pair takes twice 3 s of the duty."""


def evidence(every_s: float) -> float:
    """Return the evidence that a fall needs, if a value comes every so many seconds."""
    return fall_detection.compute_needed_evidence(MONTH_S / every_s, Watch().false_alarms / SHARES)


def draw_acceptance(mean: float, differ: float, count: int, random: np.random.Generator) -> np.ndarray:
    """Draw the acceptance of so many answers."""
    total = mean * (1 - mean) / differ**2 - 1
    return random.beta(mean * total, (1 - mean) * total, count)


def traffic(
    per_minute: float, truths: Sequence[tuple[float, float]], differ: float, random: np.random.Generator
) -> Iterator[CounterGain]:
    """Yield what the counters gain minute by minute, for each true acceptance and the seconds it lasts."""
    at = 0.0
    for mean, seconds in truths:
        arrived = random.poisson(per_minute, round(seconds / LOOK_S))
        shares = draw_acceptance(mean, differ, int(arrived.sum()), random)
        tokens = random.integers(SHORTEST, LONGEST + 1, len(shares))
        rounds = np.maximum(1, np.round(tokens / (1 + DRAFT * shares)))
        drafted = DRAFT * rounds
        kept = np.round(drafted * shares)
        ends = np.cumsum(arrived)
        sums = [np.concatenate(([0.0], np.cumsum(one)))[ends] for one in (drafted, kept, rounds)]
        for gains in zip(*(np.diff(one, prepend=0.0) for one in sums), strict=True):
            at += LOOK_S
            yield CounterGain(round(at * 1e9), *map(int, gains))


def canary_answers(
    every_s: float, truths: Sequence[tuple[float, float]], differ: float, random: np.random.Generator
) -> Iterator[WeightedValue]:
    """Yield answers of canaries, one every so many seconds."""
    at = 0.0
    for mean, seconds in truths:
        for share in draw_acceptance(mean, differ, round(seconds / every_s), random):
            at += every_s
            yield WeightedValue(round(at * 1e9), float(share))


def turned_down(units: Sequence[WeightedValue], need: float) -> float | None:
    """Return the second at which a route is turned down: a fall is detected, and its evidence lasts long enough."""
    reached, since = 0.0, 0
    for unit in units:
        since = unit.at_ns if reached <= 0 else since
        reached = max(0.0, reached)
        reached = min(
            need + fall_detection.ABOVE,
            reached + fall_detection.step(unit.value, unit.weight, BOUNDS["acceptance_rate"], LEAST_SPREAD),
        )
        if reached >= need and unit.at_ns - since >= FOR_S * 1e9:
            return unit.at_ns / 1e9
    return None


def print_falls(runs: int, seed: int) -> None:
    """Print the minutes until a fall of acceptance turned a route down: in the median run, and in nine of ten."""
    print("| seen by |", " | ".join(f"to {mean:.2f}" for mean in FELL_TO), "|")
    print("|---" * (1 + len(FELL_TO)) + "|")
    for name, rate, every_s in SOURCES:
        cells = []
        for mean in FELL_TO:
            random = np.random.default_rng([seed, round(100 * mean), round(100 * (rate or every_s))])
            truths = [(CERTIFIED["acceptance_rate"], HEALTHY_S), (mean, FALLEN_S)]
            waits = []
            for _ in range(runs):
                if rate:
                    units, need = counter_units(traffic(rate, truths, DIFFER, random), LONGEST), evidence(LOOK_S)
                else:
                    units = [*canary_answers(every_s, truths, DIFFER, random)]
                    need = evidence(LOOK_S / Watch().canaries)
                down = turned_down(units, need)
                if down is not None and down > HEALTHY_S:
                    waits.append((down - HEALTHY_S) / 60)
            waits.sort()
            enough = len(waits) >= 0.9 * runs
            seen = f"{len(waits) / runs:.1%} in 4 h"
            cells.append(f"{median(waits):.0f}, {waits[math.ceil(0.9 * runs) - 1]:.0f}" if enough else seen)
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="per truth and condition")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--falls", action="store_true", help="how soon a fall of acceptance is seen")
    options = parser.parse_args()
    begun = time.perf_counter()
    if options.falls:
        print_falls(options.runs, options.seed)
        return
    print_months([months(one, truth, options.runs, options.seed) for one in CONDITIONS for truth in HEALTHY])
    print_losses([losses(one, truth, options.runs, options.seed) for one in CONDITIONS for truth in LOSSES])
    error, took = error_of(policy(CONDITIONS[0])), time.perf_counter() - begun
    print(f"{options.runs} runs a row, error {error:.2g} a look, in {took:.0f} s")


if __name__ == "__main__":
    main()
