"""What early stopping saves, and what it costs in errors: the sequential interval against a fixed number of canaries.

    python -m bench.sequential                    # simulated canaries through the decision function; prints a table
    python -m bench.sequential --sweeps 100       # and whole sweeps of a scripted system, stopped early and in full
    python -m bench.sequential --runs 20000 --json
    python -m bench.sequential --widths               # of a soak's interval: each look, and an anytime-valid one

One canary is one log ratio: the truth, the difference between canaries, and the noise of both answers. It is compared
with a fixed design: the fewest canaries, all of them sent, that decide with the same error and as often correctly where
the truth lies 5 % from the bound. The fixed design knows the noise in advance, which is impossible in practice.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.rehearsal import sweep_of
from bench.truth import LENGTHS, Scenario, promise, prompts, subject_of
from gatekeeper.analysis.stats import intervals, sequential
from gatekeeper.analysis.sweep.choice import choose, setting_results
from gatekeeper.analysis.sweep.sweep_answers import sweep_answers
from gatekeeper.core.slo import Slo

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], Floats]

BOUND = 1.0
"""Where it lies does not matter: log ratios are shifted by it."""
TRUTHS = (-0.20, -0.10, -0.05, 0.0, 0.05, 0.10, 0.20)
HARDEST = 0.05
DIFFER = 0.10
"""Canaries differ by so much (deviation of the log ratio), as the scripted system's do: each drafts its own luck."""
ERROR = 0.05


def normal(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return noise of deviation 1: ratios with log-normal tails."""
    return random.standard_normal(shape)


def heavy(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return Student's t with three degrees of freedom, scaled to deviation 1: even the log ratio has heavy tails."""
    drawn: Floats = random.standard_t(3, shape) / math.sqrt(3)
    return drawn


def stalled(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return normal noise where one candidate in twenty stalls by three deviations: a tail on one side."""
    drawn = random.standard_normal(shape) - 3.0 * (random.random(shape) < 0.05) + 0.15
    return drawn / math.sqrt(1 + 9 * 0.05 * 0.95)


@dataclass(frozen=True, slots=True)
class Condition:
    """How noisy answers are, and how many canaries a sweep may send at most."""

    name: str
    noise: float
    """Deviation of one answer's log speed."""
    budget: int
    tails: Noise = normal

    @property
    def spread(self) -> float:
        """Return the deviation of one canary's log ratio."""
        return math.hypot(DIFFER, math.sqrt(2) * self.noise)


CONDITIONS = (
    Condition("noise 2 %", 0.02, 90),
    Condition("noise 5 %", 0.05, 120),
    Condition("noise 5 %, 24 canaries", 0.05, 24),
    Condition("noise 10 %", 0.10, 200),
    Condition("noise 15 %", 0.15, 400),
    Condition("noise 5 %, heavy tails", 0.05, 120, heavy),
    Condition("noise 5 %, stalls of one arm", 0.05, 120, stalled),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One truth under one condition, decided both ways."""

    condition: str
    truth: float
    wrong: float
    undecided: float
    answers: float
    fixed_wrong: float
    fixed_undecided: float
    fixed_answers: int

    @property
    def share(self) -> float:
        """Return the canaries sent, as a share of the fixed design's."""
        return self.answers / self.fixed_answers


def decided(logs: Sequence[float], counts: Sequence[int], errors: Sequence[float]) -> tuple[sequential.Decision, int]:
    """Look after each of *counts* canaries; return the decision and how many were sent."""
    held = None
    for count, error in zip(counts, errors, strict=True):
        held = sequential.intersected(held, sequential.interval(logs[:count], error))
        if (word := sequential.decide(held, BOUND)) != "continue":
            return word, count
    return "continue", counts[-1]


def drawn(condition: Condition, truth: float, runs: int, seed: int) -> list[list[float]]:
    """Return *runs* series of log ratios, each as long as the budget."""
    random = np.random.default_rng([seed, round(1000 * (1 + truth)), round(1000 * condition.noise)])
    noise = condition.tails(random, (runs, condition.budget))
    return (math.log(BOUND * (1 + truth)) + condition.spread * noise).tolist()  # type: ignore[no-any-return]


def outcomes(series: Sequence[Sequence[float]], counts: Sequence[int], errors: Sequence[float]) -> tuple[Any, ...]:
    """Return the share of pass, of fail, and the mean number of canaries."""
    found = [decided(logs, counts, errors) for logs in series]
    words = [word for word, _ in found]
    return words.count("pass") / len(found), words.count("fail") / len(found), fmean(count for _, count in found)


def fixed_design(series: Sequence[Sequence[float]], right: float, budget: int) -> int:
    """Return the fewest canaries that, looked at once, pass as often as *right*; by bisection."""
    few, many = sequential.MIN_CANARIES - 1, budget
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if outcomes(series, (middle,), (ERROR,))[0] >= right else (middle, many)
    return many


def rows_of(condition: Condition, runs: int, seed: int) -> list[Row]:
    """Decide every truth under *condition*, sequentially and by the fixed design."""
    counts = sequential.looks(condition.budget)
    errors = sequential.nominal_errors(counts, condition.budget, ERROR)
    hardest = drawn(condition, HARDEST, runs, seed)
    fixed = fixed_design(hardest, outcomes(hardest, counts, errors)[0], condition.budget)
    rows = []
    for truth in TRUTHS:
        series = drawn(condition, truth, runs, seed)
        passed, failed, answers = outcomes(series, counts, errors)
        once = outcomes(series, (fixed,), (ERROR,))
        # At the bound itself either decision is wrong.
        wrong, fixed_wrong = (
            (two[1] if truth > 0 else two[0] if truth < 0 else max(two[:2])) for two in ((passed, failed), once)
        )
        rest, fixed_rest = 1 - passed - failed, 1 - once[0] - once[1]
        rows.append(Row(condition.name, truth, wrong, rest, answers, fixed_wrong, fixed_rest, fixed))
    return rows


def print_rows(rows: Sequence[Row]) -> None:
    """Print the table, and what is saved on average where the truth lies 5 % or more from the bound."""
    print(f"{'':<30} {'truth':>7} {'-- sequential --':^25} {'-- fixed --':^25}")
    heads = "".join(f"{word:>9}" for word in ("wrong", "open", "sent", "wrong", "open", "sent", "share"))
    print(f"{'condition':<30} {'':>7}{heads}")
    for row in rows:
        mine, once = (row.wrong, row.undecided, row.answers), (row.fixed_wrong, row.fixed_undecided, row.fixed_answers)
        cells = "".join(f"{wrong:>9.2%}{rest:>9.2%}{asked:>9.1f}" for wrong, rest, asked in (mine, once))
        print(f"{row.condition:<30} {row.truth:>+7.0%}{cells}{row.share:>9.2f}")
    away = [row for row in rows if abs(row.truth) >= HARDEST]
    for size in (HARDEST, 0.10, 0.20):
        share = fmean(row.share for row in away if math.isclose(abs(row.truth), size))
        print(f"truths {size:.0%} from the bound: {share:.2f} of the fixed design's canaries")
    print(f"truths at least {HARDEST:.0%} from the bound: {fmean(row.share for row in away):.2f} (goal: at most 0.50)")


# Whole sweeps

EFFECTS = (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Swept:
    """Sweeps of one scripted subject: mean answers and wrong choices, stopped early and in full."""

    effect: float
    answers: float
    in_full: float
    wrong: float
    wrong_in_full: float


def swept(effect: float, sweeps: int, seed: int) -> Swept:
    """Sweep a subject whose best setting lies *effect* away from plain decoding.

    A choice is wrong that loses 5 % or more against the best of the settings and plain decoding.
    """
    asked: dict[str, list[int]] = {"early": [], "never": []}
    wrong: dict[str, int] = {"early": 0, "never": 0}
    for number in range(sweeps):
        scenario = Scenario("", effect, 1.0)
        script, true = subject_of(scenario, seed + number)
        for stop, counts in asked.items():
            written = promise(scenario)
            slo: Slo = written.model_copy(update={"sweep": written.sweep.model_copy(update={"stop": stop})})
            plan, records = sweep_of(slo, {"work": prompts()}, script, seed + number)
            seen = setting_results(sweep_answers(slo, plan, records, "work", prompts()))
            setting = dict(choose(slo, seen).setting)
            chosen = true[setting["num_draft_tokens"]] if setting["draft"] is not None else 1.0
            wrong[stop] += chosen < 0.95 * max(1.0, *true.values())
            counts.append(sum(len(answers) for answers in records.values()))
    return Swept(effect, fmean(asked["early"]), fmean(asked["never"]), wrong["early"] / sweeps, wrong["never"] / sweeps)


def print_swept(found: Sequence[Swept]) -> None:
    """Print what whole sweeps took."""
    print(f"\n{'best setting against plain':<28}{'answers':>9}{'in full':>9}{'share':>7}{'wrong':>8}{'in full':>9}")
    for one in found:
        share = one.answers / one.in_full
        cells = f"{one.answers:>9.1f}{one.in_full:>9.1f}{share:>7.2f}{one.wrong:>8.1%}{one.wrong_in_full:>9.1%}"
        print(f"{one.effect:<+28.0%}{cells}")
    away = [one.answers / one.in_full for one in found if abs(one.effect) >= HARDEST]
    print(f"truths at least {HARDEST:.0%} from plain: {fmean(away):.2f} of the answers ({len(LENGTHS)} settings)")


# The looks of a soak

PAIRS = (20, 40, 60, 80, 120, 200)
LOOKS = (1, 2, 3, 4, 5)
AIMED_AT = 40
"""Pairs at which the anytime-valid interval is narrowest."""


def anytime_quantile(pairs: int, error: float, aimed_at: int = AIMED_AT) -> float:
    """Return what replaces Student's quantile in an interval that holds at every moment, each side at *error*.

    The t-test whose effect size is mixed over a normal of variance g, invariant to the scale (Lai 1976; Perez-Ortiz,
    Lardy, de Heide & Grunwald 2024): T = t^2 / (n - 1) lies below (c - 1) / (1 - c / r), where r = 1 + n g and
    c = (sqrt(r) / (2 error))^(2 / n). The best g for *aimed_at* pairs is searched for.
    """

    def quantile(n: int, spread: float) -> float:
        r = 1 + n * spread
        c = (math.sqrt(r) / (2 * error)) ** (2 / n)
        return math.sqrt((n - 1) * (c - 1) / (1 - c / r)) if c < r else math.inf

    best = min((10 ** (power / 10) for power in range(-40, 11)), key=lambda spread: quantile(aimed_at, spread))
    return quantile(pairs, best)


def print_widths(error: float) -> None:
    """Print how much wider than a single look's each interval is: the looks of a soak, and one valid at any time."""
    print(f"{'pairs':>6}" + "".join(f"{f'look {look}':>9}" for look in LOOKS) + f"{'any time':>10}")
    for pairs in PAIRS:
        once = intervals.student_quantile(1 - error, pairs - 1)
        looks = (intervals.student_quantile(1 - error * 2.0**-look, pairs - 1) / once for look in LOOKS)
        cells = "".join(f"{wider:>9.2f}" for wider in looks)
        print(f"{pairs:>6}{cells}{anytime_quantile(pairs, error) / once:>10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="per truth and condition")
    parser.add_argument("--sweeps", type=int, default=0, help="whole sweeps per effect")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--widths", action="store_true")
    given = parser.parse_args()
    if given.widths:
        print_widths(ERROR)
        return
    begun = time.perf_counter()
    rows = [row for condition in CONDITIONS for row in rows_of(condition, given.runs, given.seed)]
    found = [swept(effect, given.sweeps, given.seed) for effect in EFFECTS] if given.sweeps else []
    if given.json:
        asked = {"runs": given.runs, "sweeps": given.sweeps, "seed": given.seed}
        told = {"decisions": [asdict(row) for row in rows], "whole_sweeps": [asdict(one) for one in found]}
        print(json.dumps(asked | told, indent=1))
        return
    print_rows(rows)
    if found:
        print_swept(found)
    print(f"{given.runs} runs a row, error {ERROR:.0%} each side, in {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
