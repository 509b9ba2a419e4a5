"""What looks at the evidence save against fixed designs that know noise and effect, and what they cost in errors.

    python -m bench.sequential                    # simulated canaries through the sweep's decision; prints a table
    python -m bench.sequential --whole 40         # and whole runs of a scripted system, sweep and soak together
    python -m bench.sequential --runs 20000 --json
    python -m bench.sequential --widths           # of a soak's interval: each look, and an anytime-valid one

One canary is one log ratio: the truth, the difference between canaries, and the noise of both answers. A decision of
the sweep is compared with the fewest canaries, all of them sent and looked at once, that decide as often correctly at
the same error, for each truth anew. So this design knows the noise and the size of the effect in advance, which no real
one does. At the bound itself it is the one for 5 %.

Whole runs are compared with two fixed designs of the same knowledge that are right as often. Both prove the ratio in
one soak. `same` first decides each setting against plain decoding for prompts like these, as the sweep does; `lean`
proves nothing in its sweep: it takes the fastest setting. The soak of a certification has a least duration, which heat
needs and the ratio often does not; `least` holds it for the fixed designs as well, so that both sides pay it. Requests
are as many as fit into that time, whichever arm they go to: fewer baseline requests would save none.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.rehearsal import rehearse
from bench.truth import LENGTHS, Scenario, promise, prompts, subject_of
from gatekeeper.analysis.plan.ladder import bound_level
from gatekeeper.analysis.stats import intervals, sequential
from gatekeeper.core.records import Role

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], Floats]

BOUND = 1.0
"""Where it lies does not matter: log ratios are shifted by it."""
TRUTHS = (-0.20, -0.10, -0.05, 0.0, 0.05, 0.10, 0.20)
HARDEST = 0.05
DIFFER = 0.10
"""Canaries differ by so much (deviation of the log ratio), as the scripted system's do: each drafts its own luck."""
ERROR = 0.05
NORMAL = NormalDist()


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
    rows = []
    for truth in TRUTHS:
        series = drawn(condition, truth, runs, seed)
        passed, failed, answers = outcomes(series, counts, errors)
        size = abs(truth) or HARDEST
        aimed = series if truth > 0 else drawn(condition, size, runs, seed)
        right = max(passed, failed) if truth else outcomes(aimed, counts, errors)[0]
        fixed = fixed_design(aimed, right, condition.budget)
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


# Whole runs

EFFECTS = (-0.2, -0.1, -0.05, 0.05, 0.1, 0.2)
NOISES = (0.05, 0.10, 0.15)
MOST = 400
"""Canaries, and pairs, beyond which no fixed design is looked for."""
DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class Whole:
    """Runs of one scripted subject against fixed designs, in requests."""

    noise: float
    effect: float
    right: float
    sweep: float
    soak: float
    same: int
    same_at_least: int
    """The same design, with a soak of the least duration."""
    lean: int
    lean_at_least: int
    floor: int
    """Requests of a soak of the least duration."""

    def shares(self) -> tuple[float, ...]:
        """Return the requests of a run as a share of each design's."""
        return tuple(
            (self.sweep + self.soak) / one for one in (self.same, self.same_at_least, self.lean, self.lean_at_least)
        )


def whole(noise: float, effect: float, runs: int, seed: int) -> Whole:
    """Run a subject whose best setting lies *effect* away from plain decoding, and size the fixed designs for it."""
    scenario = Scenario("", effect, 1.0, {"noise": {"answer": noise}})
    sweeps, soaks, right, gaps, least = [], [], 0, [], math.inf
    for number in range(runs):
        script, true = subject_of(scenario, seed + number)
        ran = rehearse(promise(scenario), {"work": prompts()}, script, seed + number)
        records = [one for soak in ran.case.soaks.values() for one in soak.records if one.role is not Role.WARMUP]
        sent = [one for many in ran.case.sweep_records.values() for one in many if one.role is not Role.WARMUP]
        right += ran.verdict.outcome == "promoted" if effect > 0 else ran.verdict.exit_code == 1
        sweeps.append(len(sent))
        soaks.append(len(records))
        least = min(least, len(records))
        gaps.append(abs(math.log(true[LENGTHS[0]] / true[LENGTHS[1]])))
    error, wanted = 1 - bound_level(promise(scenario)), min(0.999, right / runs)
    pair, size = math.sqrt(2) * noise, abs(math.log1p(effect))
    spread, settings = math.hypot(DIFFER, pair), len(LENGTHS)
    decided = fewest(size / spread, error / settings, wanted)
    proven = fewest(size / pair, error, wanted)
    # The faster setting is chosen as often as it must be: the noise of two settings, and no plain decoding.
    chosen = max(1, math.ceil((NORMAL.inv_cdf(wanted) * pair / fmean(gaps)) ** 2))
    designs = [
        (1 + settings) * sweep + (2 * proven if pairs is None else max(2 * proven, pairs))
        for sweep in (decided, chosen)
        for pairs in (None, int(least))
    ]
    same, same_at_least, lean, lean_at_least = designs
    asked = right / runs, fmean(sweeps), fmean(soaks)
    return Whole(noise, effect, *asked, same, same_at_least, lean, lean_at_least, int(least))


def fewest(effect: float, error: float, right: float) -> int:
    """Return the fewest pairs that prove an *effect*, in deviations of one pair, in that share of Student's tests."""
    random = np.random.default_rng(1)
    drawn = random.standard_normal(DRAWS)
    for pairs in range(2, MOST):
        spread = np.sqrt(random.chisquare(pairs - 1, DRAWS) / (pairs - 1))
        t = intervals.student_quantile(1 - error, pairs - 1)
        if float((drawn + effect * math.sqrt(pairs) > t * spread).mean()) >= right:
            return pairs
    return MOST


def print_whole(found: Sequence[Whole]) -> None:
    """Print what whole runs took, and the share of the requests of each fixed design."""
    print(f"\n{'':>31}{'requests':^16}{'as a share of the fixed design':^34}")
    heads = f"{'noise':>6} {'truth':>7} {'right':>7}{'sweep':>9}{'soak':>8}"
    print(heads + "".join(f"{word:>8}" for word in ("same", "least", "lean", "least")))
    for one in found:
        shares = "".join(f"{share:>8.2f}" for share in one.shares())
        print(f"{one.noise:>6.0%} {one.effect:>+7.0%} {one.right:>7.0%}{one.sweep:>9.1f}{one.soak:>8.1f}{shares}")
    for size in (HARDEST, 0.10, 0.20):
        some = [one.shares() for one in found if math.isclose(abs(one.effect), size)]
        print(f"truths {size:.0%} from plain: " + ", ".join(f"{fmean(many):.2f}" for many in zip(*some, strict=True)))
        alone = fmean(one.floor / one.same_at_least for one in found if math.isclose(abs(one.effect), size))
        print(f"  the soak of the least duration alone is {alone:.2f} of the fixed design that holds it")


# The looks of a soak

LOOKS = ((1 / 6, 40), (1 / 3, 80), (2 / 3, 160), (1.0, 240), (1.5, 360))
"""The time of each as a share of the longest duration, and its pairs; the last is an extension."""
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
    """Print how much wider than a single look's the interval of each look at a soak is, and one valid at any time."""
    spent = tuple(sequential.error_spent_by(share, error) for share, _ in LOOKS)
    nominal = sequential.spending_errors(tuple(pairs / LOOKS[-1][1] for _, pairs in LOOKS), spent)
    print(f"{'time':>6}{'pairs':>7}{'error':>8}{'look':>7}{'any time':>10}")
    for (share, pairs), own in zip(LOOKS, nominal, strict=True):
        once = intervals.student_quantile(1 - error, pairs - 1)
        wider = intervals.student_quantile(1 - own, pairs - 1) / once
        print(f"{share:>6.2f}{pairs:>7}{own:>8.2%}{wider:>7.2f}{anytime_quantile(pairs, error) / once:>10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="per truth and condition")
    parser.add_argument("--whole", type=int, default=0, help="whole runs per noise and effect")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--widths", action="store_true")
    given = parser.parse_args()
    if given.widths:
        print_widths(ERROR)
        return
    begun = time.perf_counter()
    rows = [row for condition in CONDITIONS for row in rows_of(condition, given.runs, given.seed)]
    pairs = [(noise, effect) for noise in NOISES for effect in EFFECTS] if given.whole else []
    found = [whole(*one, given.whole, given.seed) for one in pairs]
    if given.json:
        asked = {"runs": given.runs, "whole": given.whole, "seed": given.seed}
        told = {"decisions": [asdict(row) for row in rows], "whole_runs": [asdict(one) for one in found]}
        print(json.dumps(asked | told, indent=1))
        return
    print_rows(rows)
    if found:
        print_whole(found)
    print(f"{given.runs} runs a row, error {ERROR:.0%} each side, in {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
