"""The cells of the table: which kernel, which defect at which rate, how many runs, and how they end."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from bench.exactness.evidence import DRAFT_TOKENS, LittlePair, Run, defective_run, rows_of, sound_run
from bench.exactness.judged import Shown, bench_slo, judge
from bench.exactness.many_answers import Kernel
from bench.exactness.planted import Defect, Kind, Noise
from gatekeeper.analysis.stats import intervals

SCALES: Mapping[str, float] = {"0": 0.0, "0.25 %": 0.007, "1 %": 0.03, "2 %": 0.07, "5 %": 0.27}
"""Of the noise in the logits, by the share of tokens that it changes, about."""
INSIDE = "2 %, inside"
INSIDE_SCALE = 0.05
"""Of the noise behind a layer: it enters the cache."""
SHARES = (*SCALES, INSIDE)
MIDDLE = "2 %"
"""The share at which every defect is planted at every rate."""
RATES: Mapping[Kind, tuple[float, ...]] = {
    Kind.UNVERIFIED: (0.005, 0.01, 0.02, 0.05),
    Kind.SHIFTED: (0.005, 0.01, 0.02, 0.05),
    Kind.STALE: (0.005, 0.01, 0.02, 0.05),
    Kind.DROPPED: (0.005, 0.01, 0.02, 0.05),
    Kind.TIES: (1.0,),
    Kind.GRAMMAR: (0.005, 0.02),
    Kind.REPETITION: (0.02, 0.05),
}
ENGINE = (Kind.UNVERIFIED, Kind.SHIFTED, Kind.STALE, Kind.DROPPED)
ELSEWHERE: Mapping[Kind, tuple[float, ...]] = dict.fromkeys(ENGINE, (0.01, 0.02))
"""The defects that are planted at the other shares."""
CONFIDENCE = 0.95
QUICK = ("0", MIDDLE)
"""Shares of flips of a quick look."""
TITLES = {
    "unverified": "a drafted token kept unverified",
    "shifted": "positions shifted after a rollback",
    "stale": "a stale cache row after a rejection",
    "dropped": "the last token of a round dropped",
    "ties": "the draft's token at a tie",
    "grammar": "a grammar ignored while verifying",
    "repetition": "repetition, by the kernel",
}
OF = {"ties": "", "grammar": "of tokens", "repetition": "of answers"}


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One kernel and one defect; without a kind the engine and the kernel are sound."""

    flips: str
    kind: str = ""
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Which runs are made."""

    sound: int
    """Runs of a sound draft at each share of flips."""
    defective: int
    """Runs of each defect where most are planted; half of them at the other shares."""
    kinds: tuple[Kind, ...] = tuple(RATES)
    shown: tuple[Shown, ...] = tuple(Shown)
    rates: tuple[float, ...] = ()
    """The only ones that are planted; empty: all."""

    def planted(self, flips: str) -> Mapping[Kind, tuple[float, ...]]:
        """Return the rates of the defects at a share of flips."""
        rates = RATES if flips == MIDDLE else {} if flips == INSIDE else ELSEWHERE
        return {
            kind: tuple(rate for rate in rates[kind] if not self.rates or rate in self.rates)
            for kind in rates
            if kind in self.kinds
        }

    def defective_runs(self, flips: str) -> int:
        """Return the runs of each defect at a share of flips."""
        return self.defective if flips == MIDDLE else (self.defective + 1) // 2


@dataclass(slots=True)
class Ends:
    """How the runs of a cell end for one kind of backend."""

    runs: int = 0
    promoted: int = 0
    failed: int = 0
    promoted_with_quality: int = 0
    failed_with_quality: int = 0


@dataclass(slots=True)
class Results:
    """What all runs ended in."""

    ends: dict[Cell, dict[Shown, Ends]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    """Why sound runs were not promoted."""

    @property
    def shown(self) -> tuple[Shown, ...]:
        """Return the kinds of backend that runs were judged by."""
        return tuple(dict.fromkeys(shown for by_shown in self.ends.values() for shown in by_shown))

    def join(self, results: "Results") -> None:
        """Take over what other shares of flips ended in."""
        self.ends.update(results.ends)
        self.reasons += results.reasons

    def add(self, cell: Cell, run: Run, kinds: Iterable[Shown], *, everything: bool = False) -> None:
        """Judge a run by each of some kinds of backend."""
        for shown in kinds:
            judged = judge(run, shown, bench_slo(), everything=everything)
            ends = self.ends.setdefault(cell, {}).setdefault(shown, Ends())
            ends.runs += 1
            ends.promoted += judged.promoted(quality=False)
            ends.failed += judged.failed(quality=False)
            ends.promoted_with_quality += judged.promoted(quality=True)
            ends.failed_with_quality += judged.failed(quality=True)
            if not cell.kind and not judged.promoted(quality=True):
                self.reasons += [f"{cell.flips} flips, {shown}: {reason}" for reason in judged.reasons]


@lru_cache(maxsize=1)
def little_pair() -> LittlePair:
    """Return the models, loaded once in a process."""
    return LittlePair()


def kernel_of(flips: str, seed: int, defect: Defect | None = None) -> Kernel:
    """Return the kernel that changes about so many tokens."""
    if flips == INSIDE:
        return Kernel(inner=Noise(INSIDE_SCALE, seed), defect=defect)
    return Kernel(Noise(SCALES[flips], seed), defect=defect)


def flip_rates(pair: LittlePair) -> dict[str, tuple[float, float]]:
    """Return the share of plain decoding's tokens that each noise in the logits changes: of all, and of the prose."""
    logits = pair.target.logits(np.concatenate([np.stack(answer.places) for answer in pair.plain]))
    read, positions, prose = [], [], []
    for (workload, _), prompt, answer in zip(pair.canaries, pair.prompts.tokens, pair.plain, strict=True):
        read += [prompt[-1], *answer.tokens[:-1]]
        positions += [len(prompt) - 1 + index for index in range(len(answer.tokens))]
        prose += [workload == "prose"] * len(answer.tokens)
    answers = np.repeat(pair.prompts.hashes, [len(answer.tokens) for answer in pair.plain])
    places, best, rates = (np.array(positions), np.array(read)), logits.argmax(axis=-1), {}
    for name, scale in SCALES.items():
        noisy = logits + Noise(scale, 0).rows(DRAFT_TOKENS + 1, *places, answers, logits.shape[-1])
        changed = noisy.argmax(axis=-1) != best
        rates[name] = float(changed.mean()), float(changed[np.array(prose)].mean())
    return rates


def seeds(flips: str, runs: int) -> Iterator[int]:
    """Yield the seeds of a share's runs: no two shares have one in common."""
    begun = 1000 * (1 + SHARES.index(flips))
    yield from range(begun, begun + runs)


def measure(flips: str, plan: Plan) -> Results:
    """Run the cells of a share of flips: sound ones, and those with a defect."""
    pair, results = little_pair(), Results()
    runs = plan.sound if flips != INSIDE else max(1, plan.sound // 3)
    for number, seed in enumerate(seeds(flips, runs)):
        run = sound_run(pair, rows_of(pair, seed), kernel_of(flips, seed))
        results.add(Cell(flips), run, plan.shown, everything=number == 0)
        if number < plan.defective_runs(flips):
            for kind, rates in plan.planted(flips).items():
                for rate in rates:
                    broken = defective_run(run, kernel_of(flips, seed, Defect(kind, rate, seed)))
                    results.add(Cell(flips, kind, rate), broken, plan.shown)
        print(f"{flips} flips: {number + 1} of {runs} runs", file=sys.stderr, flush=True)
    return results


def share(count: int, runs: int) -> str:
    """Return a count of runs with the Clopper-Pearson bounds of its share."""
    lo, hi = intervals.proportion_bounds(count, runs, CONFIDENCE)
    return f"{count} of {runs} ({lo:.0%} to {hi:.0%})"


def _table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def sound_table(results: Results, rates: Mapping[str, tuple[float, float]]) -> str:
    """Write how often sound drafts are promoted, by the share of tokens that numerics change."""
    header = results.shown

    def rows() -> Iterator[Sequence[str]]:
        for flips in filter(lambda flips: Cell(flips) in results.ends, SHARES):
            ends = results.ends[Cell(flips)]
            measured = f"{rates[flips][0]:.2%} (prose {rates[flips][1]:.1%})" if flips in rates else "inside a layer"
            yield measured, *(f"{ends[shown].promoted} of {ends[shown].runs}" for shown in header)
            with_quality = (f"{ends[shown].promoted_with_quality} of {ends[shown].runs}" for shown in header)
            yield "… with quality within 0.5 %", *with_quality

    return _table(("flips a token", *header), rows())


def defect_table(results: Results) -> str:
    """Write how often each defect fails, by its rate."""

    def rows() -> Iterator[Sequence[str]]:
        for cell, ends in results.ends.items():
            if cell.kind:
                rate = "" if cell.kind == "ties" else f"{cell.rate:.1%} {OF.get(cell.kind, 'of rounds')}"
                found = (f"{ends[shown].failed} of {ends[shown].runs}" for shown in results.shown)
                yield TITLES[cell.kind], rate, cell.flips, *found

    return _table(("defect", "rate", "flips a token", *results.shown), rows())


def pooled(results: Results, shown: Shown, *, rate: float, kinds: Sequence[str]) -> Ends:
    """Return the sum over the shares of flips of some defects at one rate."""
    total = Ends()
    for cell, by_shown in results.ends.items():
        if cell.kind in kinds and cell.rate == rate:
            total.runs += by_shown[shown].runs
            total.failed += by_shown[shown].failed
    return total


def figures(results: Results) -> Iterator[str]:
    """Write the figures that have a goal."""
    for shown in results.shown:
        sound = [results.ends[Cell(flips)][shown] for flips in SCALES if Cell(flips) in results.ends]
        promoted, runs = sum(ends.promoted for ends in sound), sum(ends.runs for ends in sound)
        yield f"sound drafts promoted, {shown}, flips of 0 to 5 %: {share(promoted, runs)}"
    for shown, rate in ((Shown.ROUNDS, 0.01), (Shown.LEADS, 0.02), (Shown.PASSES, 0.02)):
        for kind in ENGINE if shown in results.shown else ():
            ends = pooled(results, shown, rate=rate, kinds=[kind])
            if ends.runs:
                found = share(ends.failed, ends.runs)
                yield f"{TITLES[kind]} in {rate:.0%} of rounds, {shown}, any flips: {found} found"
    for shown in results.shown:
        ends = results.ends.get(Cell(MIDDLE, "repetition", 0.05), {}).get(shown, Ends())
        if ends.runs:
            yield f"repetition in 5 % of answers, {shown}: {share(ends.failed, ends.runs)} found"
