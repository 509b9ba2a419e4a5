"""How often each interval misses what is true, and what it proves: canaries and noise simulated in numpy.

    python -m bench.truth --of coverage --runs 2000

A ratio is the total time of plain decoding over that of the candidate, noise included. Canaries differ by 12 % (ratios)
or 28 % (latencies), and in length by 50 %. For these canaries the truth is their own ratio or quantile, for prompts
like them that of all from which they were drawn. Every bound is taken at 97.5 %, so 2.5 % of the runs may miss
on each side. `proves` is the share of runs that prove a true gain of 5 % (of a latency: that it keeps 5 % of room).
Bounds allow for noise that lasts (`lasting.widened`), as those of a verdict do.
For comparison: these canaries with the noise of plain decoding against itself. It is not shipped, because it fails
wherever the candidate is the noisier arm.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gatekeeper.analysis.stats import fixed_canaries, intervals, lasting_noise
from gatekeeper.analysis.stats.total_time import linearise_times
from gatekeeper.core.judgement import Estimate, Missing

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
"""Log speeds of so many pairs, candidate and plain, in the order of time."""

LEVEL = 0.975
DIFFER = 0.12
"""Deviation of the canaries' log ratios."""
PROMPTS_DIFFER = 0.28
"""Deviation of the log time to first token over `canaries/code.jsonl`."""
LENGTHS_DIFFER = 0.5
"""Deviation of the log length of an answer over the canaries."""
ROOM = math.log(1.05)
SHIFT = 0.03
"""Between sweep and soak all ratios change by this much."""


def gaussian(sigma: float, candidate: float = 1.0) -> Noise:
    """Return independent normal noise; the candidate's is *candidate* times as large."""
    return lambda random, n: (candidate * sigma * random.standard_normal(n), sigma * random.standard_normal(n))


def heavy(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return noise of Student's t with three degrees of freedom, deviation 10 %; no answer takes e times as long."""
    drawn = np.clip(0.10 * random.standard_t(3, (2, n)) / math.sqrt(3), -1.0, 1.0)
    return drawn[0], drawn[1]


def _wander(random: np.random.Generator, n: int, kept: float) -> Floats:
    """Return n values of deviation 1, each keeping a share of the one before."""
    fresh, out = random.standard_normal(n), np.empty(n)
    out[0] = fresh[0]
    for at in range(1, n):
        out[at] = kept * out[at - 1] + math.sqrt(1 - kept**2) * fresh[at]
    return out


def lasting_both(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return noise of 10 % that lasts over answers of both arms, which follow each other in random order."""
    steps = (0.10 * _wander(random, 2 * n, 0.8)).reshape(n, 2)
    first = random.random(n) < 0.5
    return np.where(first, steps[:, 0], steps[:, 1]), np.where(first, steps[:, 1], steps[:, 0])


def lasting_candidate(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return noise of 10 % that lasts over five answers of the candidate alone; plain decoding's is independent."""
    return 0.10 * _wander(random, n, 0.8), 0.10 * random.standard_normal(n)


def bimodal(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return noise where three answers in ten of both arms are 30 % slower."""
    both = 0.05 * random.standard_normal((2, n)) - math.log(1.3) * (random.random((2, n)) < 0.3)
    return both[0], both[1]


def stalls(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return noise where the candidate loses 40 % in one answer of twenty; that loss is part of the truth."""
    noise = 0.05 * random.standard_normal((2, n))
    lost = math.log(0.6) * ((random.random(n) < 0.05) - 0.05)
    return noise[0] + lost, noise[1]


def sawtooth(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return a host that slows by 30 % over 17 pairs and recovers; the second answer of a pair comes later."""
    first, since = random.random(n) < 0.5, np.arange(n) + random.random()
    tooth = [-0.3 * ((since + later) / 17 % 1) for later in (0.0, 0.45)]
    noise = 0.05 * random.standard_normal((2, n))
    return noise[0] + np.where(first, *tooth), noise[1] + np.where(first, *reversed(tooth))


def warm_up(random: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return a host that begins 20 % slower and is warm after a quarter of the pairs."""
    first, since = random.random(n) < 0.5, np.arange(n)
    ramp = [-0.2 * np.clip(1 - (since + later) / (n / 4), 0, None) for later in (0.0, 0.45)]
    noise = 0.05 * random.standard_normal((2, n))
    return noise[0] + np.where(first, *ramp), noise[1] + np.where(first, *reversed(ramp))


KINDS: Mapping[str, Noise] = {
    "noise 2 %": gaussian(0.02),
    "noise 5 %": gaussian(0.05),
    "noise 10 %": gaussian(0.10),
    "noise 15 %": gaussian(0.15),
    "candidate 3 times as noisy": gaussian(0.04, 3.0),
    "heavy tails": heavy,
    "lasting, both arms": lasting_both,
    "bimodal, both arms": bimodal,
    "sawtooth, both arms": sawtooth,
    "warm-up, both arms": warm_up,
    "stalls of the candidate": stalls,
    "lasting, candidate alone": lasting_candidate,
}
LONGER: Mapping[str, float] = {
    "candidate 3 times as noisy": (0.12**2 - 0.04**2) / 2,
    "stalls of the candidate": 0.05 * math.log(0.6) + math.log(0.95 + 0.05 / 0.6),
}
"""Log of how many times as long the noise makes the candidate's answers on average, against plain decoding's."""
NULL_ARM = ("noise 5 %", "candidate 3 times as noisy", "stalls of the candidate")
"""Kinds of noise with which the noise of plain decoding is shown for comparison."""
DESIGNS = ((24, 1, 1), (24, 3, 0), (96, 1, 1))
"""Canaries, pairs of each in the soak, and in the sweep."""


@dataclass(slots=True)
class Misses:
    """Counts of one interval over runs."""

    what: str
    noise: str
    canaries: int
    pairs: int
    runs: int = 0
    none: int = 0
    above: int = 0
    """Runs whose lower bound lies above the truth."""
    below: int = 0
    proves: int = 0
    width: float = 0.0

    def count(self, seen: Estimate | Missing | None, truth: float) -> None:
        """Count one run whose log truth is *truth*."""
        self.runs += 1
        if not isinstance(seen, Estimate):
            self.none += 1
            return
        lo, hi = math.log(seen.lo), math.log(seen.hi)
        self.above += lo > truth
        self.below += hi < truth
        self.proves += lo > truth - ROOM
        self.width += (hi - lo) / 2

    def line(self) -> str:
        """Write one row of the table."""
        seen = max(1, self.runs - self.none)
        shares = " ".join(f"{count / seen:7.1%}" for count in (self.above, self.below, self.width, self.proves))
        return f"{self.what:<26} {self.noise:<27} {self.canaries:>4} {self.pairs:>2} {shares}"


def ratios(noise: str, canaries: int, pairs: int, swept: int, runs: int, seed: int) -> list[Misses]:
    """Simulate ratios of total times: for these canaries, for prompts like them, and with plain decoding's noise."""
    draw = KINDS[noise]
    found = [Misses(what, noise, canaries, pairs) for what in ("ratio, these canaries", "ratio, prompts like them")]
    if noise in NULL_ARM:
        found.append(Misses("(noise of plain decoding)", noise, canaries, pairs))
    for number in range(runs):
        random = np.random.default_rng([seed, zlib.crc32(f"{noise} {canaries} {pairs}".encode()), number])
        heights = DIFFER * random.standard_normal(canaries)
        lengths = np.exp(LENGTHS_DIFFER * random.standard_normal(canaries))
        order = np.concatenate([random.permutation(canaries) for _ in range(pairs)])
        everywhere = np.concatenate([np.arange(canaries)] * swept) if swept else np.empty(0, dtype=np.int64)
        mine, plain = draw(random, len(order))
        arms = heights[order] + mine, plain
        early = [np.concatenate(parts) for parts in zip(*(draw(random, canaries) for _ in range(swept)), strict=True)]
        earlier = (heights[everywhere] + early[0] + SHIFT, early[1]) if early else (np.empty(0), np.empty(0))
        seen = linearise_times(_times(lengths, order, arms), _times(lengths, everywhere, earlier))
        added = lasting_noise.added_variance(
            _named(order, arms[0] - arms[1]), _named(everywhere, earlier[0] - earlier[1])
        )
        truth = -math.log(float((lengths * np.exp(-heights)).sum() / lengths.sum())) - LONGER.get(noise, 0.0)
        frozen = fixed_canaries.mean_of_logs(seen.logs, LEVEL, canaries, seen.before, seen.weights)
        found[0].count(_widened(frozen, added), truth)
        of_all = -(DIFFER**2) / 2 - LONGER.get(noise, 0.0)
        found[1].count(_widened(intervals.mean_log(seen.pseudovalues(), LEVEL), added), of_all)
        if noise not in NULL_ARM:
            continue
        null = np.diff([draw(random, canaries)[1], draw(random, canaries)[1]], axis=0)
        half = intervals.student_quantile(LEVEL, canaries - 1) * float(null.std(ddof=1)) / math.sqrt(len(order))
        center = float(np.mean([log for _, log in seen.logs]))
        bounds = math.exp(center - half), math.exp(center + half)
        found[2].count(Estimate(math.exp(center), *bounds, canaries, confidence=LEVEL), truth)
    return found


def _named(order: NDArray[np.int64], values: Floats) -> list[tuple[str, float]]:
    return [(f"c-{one}", value) for one, value in zip(order.tolist(), values.tolist(), strict=True)]


def _times(lengths: Floats, order: NDArray[np.int64], arms: tuple[Floats, Floats]) -> list[tuple[str, float, float]]:
    """Return of each pair its canary and the seconds of plain decoding and of the candidate, from their log speeds."""
    mine, plain = (lengths[order] * np.exp(-arm) for arm in arms)
    return [(f"c-{one}", *seconds) for one, *seconds in zip(order.tolist(), plain.tolist(), mine.tolist(), strict=True)]


def _widened(found: Estimate | Missing | None, added: float) -> Estimate | Missing | None:
    return lasting_noise.widen_bounds(found, added) if isinstance(found, Estimate) else found


def chosen(canaries: int, runs: int, seed: int) -> list[Misses]:
    """Simulate prompts like them where the fastest of four equal settings was chosen: on the same canaries or others.

    Each setting suits each canary by 10 % better or worse. The other half halves the canaries of the bound.
    """
    names = ("chosen on the same ones", "chosen on another half")
    found = [Misses("ratio, prompts like them", noise, canaries, 1) for noise in names]
    for number in range(runs):
        random = np.random.default_rng([seed, canaries, number])
        suits = 0.10 * random.standard_normal((4, canaries))
        swept, soaked = (suits + 0.07 * random.standard_normal(suits.shape) for _ in range(2))
        half = slice(1, None, 2)
        for one, sent, proves in zip(found, (slice(None), slice(0, None, 2)), (slice(None), half), strict=True):
            best = int(swept[:, sent].mean(axis=1).argmax())
            logs = {str(at): [math.exp(log)] for at, log in enumerate(soaked[best, proves])}
            one.count(intervals.geometric_mean_ratio(logs, LEVEL), 0.0)
    return found


def _mixture_quantile(heights: Floats, sigma: float, q: float) -> float:
    """Return the quantile of answers spread normally around *heights*, each as often, by bisection."""
    lo, hi = float(heights.min()) - 9 * sigma, float(heights.max()) + 9 * sigma
    for _ in range(50):
        middle = (lo + hi) / 2
        below = math.fsum(NormalDist(height, sigma).cdf(middle) for height in heights.tolist())
        lo, hi = (middle, hi) if below < q * len(heights) else (lo, middle)
    return (lo + hi) / 2


@dataclass(frozen=True, slots=True)
class Latency:
    """A quantile of simulated times: log times vary between canaries, between their answers and between the gaps."""

    name: str
    q: float
    canaries: int
    answers: int
    between_answers: float = 0.05
    kept: float = 0.0
    """Share of an answer's noise that the next one keeps."""
    gaps: int = 1
    between_gaps: float = 0.0

    def misses(self, runs: int, seed: int) -> list[Misses]:
        """Simulate it over the answers of these canaries, and over one answer each to prompts like them."""
        how_long = f", lasting {1 / (1 - self.kept):.0f}" if self.kept else ""
        noise = f"noise {100 * self.between_answers:.0f} %{how_long}" + (f", {self.gaps} gaps" if self.gaps > 1 else "")
        found = [
            Misses(f"{self.name}, {what}", noise, self.canaries, self.answers)
            for what in ("these canaries", "prompts like them")
        ]
        within = math.hypot(self.between_answers, self.between_gaps)
        everywhere = NormalDist(0, math.hypot(PROMPTS_DIFFER, within)).inv_cdf(self.q)
        for number in range(runs):
            random = np.random.default_rng([seed, zlib.crc32(self.name.encode()), self.canaries, number])
            heights = PROMPTS_DIFFER * random.standard_normal(self.canaries)
            order = np.concatenate([random.permutation(self.canaries) for _ in range(self.answers)])
            logs = (heights[order] + self.between_answers * _wander(random, len(order), self.kept))[:, None]
            times = np.exp(logs + self.between_gaps * random.standard_normal((len(order), self.gaps)))
            seen = [(f"c-{one}", [(time, 1) for time in row]) for one, row in zip(order, times.tolist(), strict=True)]
            truth = _mixture_quantile(heights, within, self.q)
            answers = [(int(one), float(row.mean())) for one, row in zip(order, np.log(times), strict=True)]
            added = lasting_noise.added_variance(answers)
            found[0].count(_widened(fixed_canaries.quantile(seen, self.q, LEVEL, self.canaries), added), truth)
            once = dict(seen[: self.canaries])
            others = (
                intervals.pooled_quantile(once, self.q, LEVEL)
                if self.gaps > 1
                else intervals.quantile([values[0][0] for values in once.values()], self.q, LEVEL)
            )
            found[1].count(_widened(others, added), everywhere)
        return found


LATENCIES = (
    Latency("median", 0.5, 24, 3),
    Latency("median", 0.5, 96, 2),
    Latency("median", 0.5, 96, 2, between_answers=0.10, kept=0.8),
    Latency("median", 0.5, 96, 2, between_answers=0.10, kept=0.95),
    Latency("median", 0.5, 24, 3, between_answers=0.10, kept=0.95),
    Latency("p95", 0.95, 96, 3),
    Latency("itl_p50", 0.5, 24, 3, gaps=20, between_gaps=0.2),
    Latency("itl_p95", 0.95, 96, 3, gaps=20, between_gaps=0.2),
    Latency("itl_p99", 0.99, 96, 2, gaps=20, between_gaps=0.2),
)


def rows(runs: int, seed: int) -> Iterator[Misses]:
    """Yield every row of the table."""
    for noise in KINDS:
        for canaries, pairs, swept in DESIGNS:
            yield from ratios(noise, canaries, pairs, swept, runs, seed)
    for canaries in (24, 96):
        yield from chosen(canaries, runs, seed)
    for latency in LATENCIES:
        yield from latency.misses(max(1, runs // 2), seed)


def print_table(runs: int, seed: int) -> None:
    """Print the table."""
    print(f"{'interval':<26} {'noise':<27} {'of':>4} {'x':>2} {'above':>7} {'below':>7} {'half':>7} {'proves':>7}")
    for misses in rows(runs, seed):
        print(misses.line(), flush=True)
    print(f"{runs} runs a row, half as many of latencies; 2.5 % above and 2.5 % below are allowed")
