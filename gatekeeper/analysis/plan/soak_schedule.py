"""What a soak asks next: workloads by their weight, canaries in turn, plain twins woven in. By counts, never values."""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.plan.ladder import bound_level
from gatekeeper.analysis.plan.objectives import all_objectives
from gatekeeper.analysis.plan.rounds import endless_rounds, shuffled
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo

WARM_REPEATS = 3
"""Times a canary is sent with the cache on: what is stored wrongly shows at the second, what is then stored at the
third."""


CLOSING_CANARIES = 24
"""Quality canaries asked again at the end, per workload: enough to see that tool calls broke, soon done."""
ENOUGH_PAIRS = 12
"""Pairs on distinct canaries that a ratio is given, where the workload has them."""
PLAIN_BLOCKS = 3
"""Plain blocks beside a soak whose arms cannot share a process: before, midway, after."""
WARMUPS = 2
"""Answers per workload and arm that only warm the process up."""
PLAIN_BLOCK_ANSWERS = 24
"""Plain answers per workload in each block beside a soak."""


@dataclass(frozen=True, slots=True)
class SoakRequest:
    """One request the soak wants: which canary, and in which arm."""

    workload: str
    canary: Canary
    arm: str
    role: Role
    pair: str


@dataclass(frozen=True, slots=True)
class CanaryNeeds:
    """How many distinct canaries a workload's promises want answered, by the arm under judgement and in pairs."""

    answered: int
    paired: int


def canaries_needed(slo: Slo, workload: str, knobs: Setting, canaries: Sequence[Canary]) -> CanaryNeeds:
    """Return what the promises of *workload* want before the soak may end."""
    spoken = speculates(knobs)
    answered, paired = 1, min(len(canaries), ENOUGH_PAIRS) if spoken else 0
    for objective in all_objectives(slo, workload, speculating=spoken):
        metric = objective.of
        if metric.quantile is not None:
            answered = max(answered, intervals.samples_needed(metric.quantile, bound_level(slo)))
        for_all = metric.counted and objective.scope == "population"
        if metric.every_canary or (for_all and metric.against_plain):
            paired = len(canaries)
        elif for_all:
            answered = len(canaries)
    return CanaryNeeds(min(answered, len(canaries)), paired)


def workloads_lacking(wanted: Mapping[str, CanaryNeeds], answers: Sequence[Generation]) -> list[str]:
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


def soak_requests(
    settings: Mapping[str, Setting],
    canaries: Mapping[str, Sequence[Canary]],
    weights: Mapping[str, float],
    *,
    sentinel_share: float,
    seed: int,
) -> Iterator[Sequence[SoakRequest]]:
    """Yield, without end, the next turns: one answer, or two twins in random order to be asked one after the other.

    A share of *sentinel_share* of a speculating workload's answers is plain; 0 weaves none in. Workloads come by
    their weight, spread evenly (the largest debt goes first).
    """
    shuffle = random.Random(seed)
    alone, paired = ({name: endless_rounds(canaries[name], shuffle) for name in settings} for _ in range(2))
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
            yield (SoakRequest(name, next(alone[name]), "plain", Role.MEASURED, ""),)
        elif sentinel_share and owed[name] >= 1:
            owed[name] -= 1
            canary, pair = next(paired[name]), f"{seed}.{number}"
            both = (
                SoakRequest(name, canary, "candidate", Role.MEASURED, pair),
                SoakRequest(name, canary, "plain", Role.SENTINEL, pair),
            )
            owed[name] += sentinel_share / (1 - sentinel_share)
            yield shuffled(both, shuffle)
        else:
            owed[name] += sentinel_share / (1 - sentinel_share)
            yield (SoakRequest(name, next(alone[name]), "candidate", Role.MEASURED, ""),)


def plain_block(
    settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], number: int, blocks: int
) -> list[SoakRequest]:
    """Return the plain answers of block *number* (from 0): the same canaries each time, or a share of many."""
    out = []
    for name, knobs in settings.items():
        if speculates(knobs):
            mine = list(canaries[name])
            if len(mine) > PLAIN_BLOCK_ANSWERS:
                mine = mine[number::blocks]
            out += [SoakRequest(name, canary, "plain", Role.BLOCK, "") for canary in mine]
    return out


def closing_requests(settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]]) -> list[SoakRequest]:
    """Return quality canaries to ask once more when the soak is over, evenly picked."""
    out = []
    for name, knobs in settings.items():
        marked = [canary for canary in canaries[name] if canary.expect is not None]
        stride = max(1, -(-len(marked) // CLOSING_CANARIES))
        arm = "candidate" if speculates(knobs) else "plain"
        out += [SoakRequest(name, canary, arm, Role.CLOSING, "") for canary in marked[::stride]]
    return out


def file_after(what: str, soak: str) -> str:
    """Name the file of *what* was recorded after a soak: `soak-1` has `ties-1.jsonl` and `warm-1.jsonl`."""
    return f"{what}-{soak.removeprefix('soak-')}.jsonl"


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """One soak: the workloads one process serves together, each at its setting."""

    name: str
    settings: Mapping[str, Setting]
    resident: Setting

    @property
    def file(self) -> str:
        """Return the name of its record file."""
        return f"{self.name}.jsonl"

    @property
    def ties(self) -> str:
        """Return the name of the file with the near-ties of its partings."""
        return file_after("ties", self.name)

    @property
    def warm(self) -> str:
        """Return the name of the file with its answers from a warm prompt cache."""
        return file_after("warm", self.name)

    @property
    def draws(self) -> str:
        """Return the name of the file with the first tokens that were sampled for it."""
        return file_after("draws", self.name)
