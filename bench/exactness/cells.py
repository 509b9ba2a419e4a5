"""The cells of the table: which kernel, which defect at which rate, how many runs, and how they end."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from bench.exactness.defects import Defect, Kind
from bench.exactness.evidence import DRAFT_TOKENS, LittlePair, Run, defective_run, rows_of, sound_run
from bench.exactness.judged import Shown, bench_slo, judge
from bench.exactness.many_answers import Kernel
from bench.exactness.noise import Noise

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
