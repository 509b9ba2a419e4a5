"""What a soak asks next: workloads by their weight, canaries in turn, plain twins woven in. By counts, never values."""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gatekeeper.analysis.plan.ladder import level, speculates
from gatekeeper.analysis.plan.objectives import promises
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import PASS_DELTAS
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo

REPEATS = 3
"""Times a canary is sent with the cache on: what is stored wrongly shows at the second, what is then stored at the
third."""


CLOSING_CANARIES = 24
"""Quality canaries asked again at the end, per workload: enough to see that tool calls broke, soon done."""
ENOUGH_PAIRS = 12
"""Pairs on distinct canaries that a ratio is given, where the workload has them."""
CENSUSES = frozenset({*PASS_DELTAS, "token_agreement"})
"""Metrics that want every canary of the frozen set in both arms."""
BLOCKS = 3
"""Plain blocks beside a soak whose arms cannot share a process: before, midway, after."""
WARMUPS = 2
"""Answers per workload and arm that only warm the process up."""
PLAIN_BLOCK = 24
"""Plain answers per workload in each block beside a soak."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request the soak wants: which canary, and in which arm."""

    workload: str
    canary: Canary
    arm: str
    role: Role
    pair: str


@dataclass(frozen=True, slots=True)
class Needs:
    """How many distinct canaries a workload's promises want answered, by the arm under judgement and in pairs."""

    answered: int
    paired: int


def needs(slo: Slo, workload: str, knobs: Setting, canaries: Sequence[Canary]) -> Needs:
    """Return what the promises of *workload* want before the soak may end."""
    spoken = speculates(knobs)
    answered, paired = 1, min(len(canaries), ENOUGH_PAIRS) if spoken else 0
    for objective in promises(slo, workload, speculating=spoken):
        metric = objective.of
        if metric.quantile is not None:
            answered = max(answered, intervals.samples_needed(metric.quantile, level(slo)))
        if metric.name in CENSUSES or (metric.against_plain and metric.census and objective.scope == "population"):
            paired = len(canaries)
        elif metric.census and objective.scope == "population":
            answered = len(canaries)
    return Needs(min(answered, len(canaries)), paired)


def lacking(wanted: Mapping[str, Needs], answers: Sequence[Generation]) -> list[str]:
    """Name the workloads that have too few distinct canaries answered so far."""
    seen: dict[str, set[str]] = defaultdict(set)
    twins: dict[str, set[str]] = defaultdict(set)
    arms: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in answers:
        if one.role is not Role.WARMUP:
            arms[one.workload, one.arm].add(one.canary)
    for (workload, arm), canaries in arms.items():
        if arm == "candidate" or (workload, "candidate") not in arms:
            seen[workload] = canaries
    for workload in wanted:
        twins[workload] = arms[workload, "candidate"] & arms[workload, "plain"]
    return [
        workload
        for workload, need in wanted.items()
        if len(seen[workload]) < need.answered or len(twins[workload]) < need.paired
    ]


@dataclass(slots=True)
class _Rotation:
    """Canaries in random order without end, each once before any comes again."""

    canaries: Sequence[Canary]
    shuffle: random.Random
    waiting: list[Canary] = field(default_factory=list)

    def next(self) -> Canary:
        if not self.waiting:
            self.waiting = list(self.canaries)
            self.shuffle.shuffle(self.waiting)
        return self.waiting.pop()


def turns(
    settings: Mapping[str, Setting],
    canaries: Mapping[str, Sequence[Canary]],
    weights: Mapping[str, float],
    *,
    sentinel_share: float,
    seed: int,
) -> Iterator[Sequence[Turn]]:
    """Yield, without end, the next turns: one answer, or two twins in random order to be asked one after the other.

    A share of *sentinel_share* of a speculating workload's answers is plain; 0 weaves none in. Workloads come by
    their weight, spread evenly (the largest debt goes first).
    """
    shuffle = random.Random(seed)
    alone = {name: _Rotation(canaries[name], shuffle) for name in settings}
    paired = {name: _Rotation(canaries[name], shuffle) for name in settings}
    active = [name for name in settings if weights[name] > 0]
    total = sum(weights[name] for name in active)
    debt = dict.fromkeys(active, 0.0)
    owed = dict.fromkeys(active, 1.0)  # the first answer has a twin: a short soak has some of both
    number = 0
    while active:
        for name in active:
            debt[name] += weights[name] / total
        name = max(active, key=lambda one: debt[one])
        debt[name] -= 1
        number += 1
        if not speculates(settings[name]):
            yield (Turn(name, alone[name].next(), "plain", Role.MEASURED, ""),)
        elif sentinel_share and owed[name] >= 1:
            owed[name] -= 1
            canary, pair = paired[name].next(), f"{seed}.{number}"
            twins = [
                Turn(name, canary, "candidate", Role.MEASURED, pair),
                Turn(name, canary, "plain", Role.SENTINEL, pair),
            ]
            shuffle.shuffle(twins)
            owed[name] += sentinel_share / (1 - sentinel_share)
            yield twins
        else:
            owed[name] += sentinel_share / (1 - sentinel_share)
            yield (Turn(name, alone[name].next(), "candidate", Role.MEASURED, ""),)


def plain_block(
    settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], number: int, blocks: int
) -> list[Turn]:
    """Return the plain answers of block *number* (from 0): the same canaries each time, or a share of many."""
    out = []
    for name, knobs in settings.items():
        if speculates(knobs):
            mine = list(canaries[name])
            if len(mine) > PLAIN_BLOCK:
                mine = mine[number::blocks]
            out += [Turn(name, canary, "plain", Role.BLOCK, "") for canary in mine]
    return out


def closing(settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]]) -> list[Turn]:
    """Return quality canaries to ask once more when the soak is over, evenly picked."""
    out = []
    for name, knobs in settings.items():
        marked = [canary for canary in canaries[name] if canary.expect is not None]
        stride = max(1, -(-len(marked) // CLOSING_CANARIES))
        arm = "candidate" if speculates(knobs) else "plain"
        out += [Turn(name, canary, arm, Role.CLOSING, "") for canary in marked[::stride]]
    return out


One = TypeVar("One")


def turn(frozen: Sequence[One], number: int, seed: str) -> One:
    """Return what the turn *number* asks, counted from 0: each once a round, every round shuffled anew by *seed*.

    People sort their files. In file order eight hard canaries in a row would look like a loss once a round.
    """
    order = list(range(len(frozen)))
    random.Random(f"{seed}/{number // len(frozen)}").shuffle(order)
    return frozen[order[number % len(frozen)]]
