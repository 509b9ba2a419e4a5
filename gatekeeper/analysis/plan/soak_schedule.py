"""The soaks of a run: their plans, the canaries each needs before it may end, and the order of its requests."""

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from gatekeeper.analysis.metrics.host.host_series import STRETCHES
from gatekeeper.analysis.plan.ladder import bound_level, first_look_level
from gatekeeper.analysis.plan.objectives import all_objectives, needs_every_canary
from gatekeeper.analysis.plan.planned_request import PlannedRequest, endless_rounds, shuffle_items
from gatekeeper.analysis.plan.settings import PLAIN, is_greedy, plain_of, speculates
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, share_of_budget, sweep_canaries
from gatekeeper.analysis.stats import intervals
from gatekeeper.core.canary import Canary
from gatekeeper.core.metrics import ENERGY_RATIO
from gatekeeper.core.records import Role, Setting
from gatekeeper.core.slo import Slo

CLOSING_CANARIES = 24
"""Quality canaries sent again at the end, per workload: enough to see that tool calls broke, and quick."""
ENOUGH_PAIRS = 12
"""Pairs on distinct canaries that a ratio needs, where the workload has as many."""
LEAST_STRETCH_S = 60.0
"""A shorter soak has fewer stretches, and two at least."""
WARMUPS = 2
"""Answers per workload and arm that only warm the process up."""
PLAIN_BLOCK_ANSWERS, PLAIN_REPEATS = 72, 3
"""Plain answers per workload in all plain blocks of a soak together, and to each canary, at most; a set of more
canaries is answered once."""
SAMPLED_REPEATS = 2
"""Above temperature 0 twice: one answer does not show how the answers to a canary differ."""
REST_S = 10.0
"""Seconds without a request before and after a soak in which the power at rest is sampled."""
PART = ".part-"
"""Between the name of a soak and the number of a further part, in the names of its files."""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """One soak: the workloads that one process serves together, each at its setting."""

    name: str
    settings: Mapping[str, Setting]
    resident: Setting
    """The setting the process is started for."""
    part: int = 1
    """The first part lasts as the SLO says; each further one doubles the time, for what was still open."""
    seconds: float | None = None
    """The duration of a further part."""

    @property
    def file(self) -> str:
        """Return the name of its record file."""
        return f"{self.name}{'' if self.part == 1 else f'{PART}{self.part}'}.jsonl"

    @property
    def whole(self) -> "SoakPlan":
        """Return the soak whose files are those of all its parts, which are loaded together."""
        return replace(self, part=1, seconds=None)

    @property
    def earlier(self) -> "tuple[SoakPlan, ...]":
        """Return the parts before this one."""
        return tuple(replace(self, part=part, seconds=None) for part in range(1, self.part))


def soak_plans(plan: SweepPlan, settings: Mapping[str, Setting], turn: int) -> tuple[SoakPlan, ...]:
    """Group workloads by the process that serves them; plain ones join where one process serves both arms."""
    groups: dict[str, dict[str, Setting]] = {}
    for name, knobs in settings.items():
        groups.setdefault(plan.process_of(knobs), {})[name] = knobs
    plain = plan.process_of(PLAIN)
    if plan.shares_process and len(groups) > 1 and plain in groups:
        joined = groups.pop(plain)
        groups[next(iter(groups))].update(joined)
    plans = []
    for number, group in enumerate(groups.values(), start=1):
        resident = max(group.values(), key=speculates)
        name = f"soak-{turn}" if len(groups) == 1 else f"soak-{turn}-{number}"
        plans.append(
            SoakPlan(name, {workload: group[workload] for workload in settings if workload in group}, resident)
        )
    return tuple(plans)


TAIL = 0.99
"""From this quantile on a set has hundreds of canaries, so each is answered once: without repeats only the bound for
prompts like these is left, and it must hold at the first look."""


@dataclass(frozen=True, slots=True)
class CanaryNeeds:
    """How many distinct canaries a workload's objectives need answered."""

    answered: int
    """So many in the judged arm."""
    paired: int
    """So many in both arms of the soak."""
    compared: int = 0
    """So many in both arms of sweep and soak together, for their words: those need no clock."""
    forced: bool = False
    """Teacher forcing compares the words: the candidate's answer to a canary is enough."""


def canaries_needed(
    slo: Slo, workload: str, knobs: Setting, canaries: Sequence[Canary], *, forced: bool = False
) -> CanaryNeeds:
    """Return what the objectives of *workload* need before the soak may end; *forced*: words by teacher forcing."""
    speculating = speculates(knobs)
    answered, paired, compared = 1, min(len(canaries), ENOUGH_PAIRS) if speculating else 0, 0
    for objective in all_objectives(slo, workload, speculating=speculating):
        metric = objective.of
        for_all = objective.scope == "population"
        if metric.quantile is not None:
            level = first_look_level(slo) if for_all or metric.quantile >= TAIL else bound_level(slo)
            needed = intervals.samples_needed if for_all else intervals.frozen_samples_needed
            answered = max(answered, needed(metric.quantile, level))
        if for_all and metric.against_plain:
            paired = len(canaries)
        elif needs_every_canary(objective):
            compared = len(canaries)
        elif for_all:
            answered = len(canaries)
    return CanaryNeeds(min(answered, len(canaries)), paired, compared, forced)


class Coverage:
    """Which distinct canaries were answered so far, and which workloads still lack some that their objectives need."""

    def __init__(self, needs: Mapping[str, CanaryNeeds], compared: Mapping[str, Collection[str]] | None = None) -> None:
        """Begin with nothing but what the sweep *compared*: by workload, its canaries in both arms at this setting."""
        self._needs, self._compared = needs, compared or {}
        self._answered: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._half = set[tuple[str, str]]()
        self._paired: dict[str, set[str]] = defaultdict(set)

    def add(self, workload: str, arm: str, canary: str, pair: str = "") -> None:
        """Note an answer of `plain` or `candidate`; warm-ups do not count, nor does half a pair count as one.

        A run that is killed between the two answers of a *pair* leaves half of it.
        """
        self._answered[workload, arm].add(canary)
        if pair and (workload, pair) not in self._half:
            self._half.add((workload, pair))
        elif pair or arm == "plain":
            self._paired[workload].add(canary)

    def lacking(self) -> list[str]:
        """Name the workloads with too few distinct canaries."""
        workloads = []
        for workload, need in self._needs.items():
            candidate, plain = self._answered[workload, "candidate"], self._answered[workload, "plain"]
            paired = candidate & self._paired[workload]
            worded = candidate if need.forced else paired
            compared = len(worded.union(self._compared.get(workload, ())))
            if len(candidate or plain) < need.answered or len(paired) < need.paired or compared < need.compared:
                workloads.append(workload)
        return workloads


def soak_requests(
    settings: Mapping[str, Setting],
    canaries: Mapping[str, Sequence[Canary]],
    weights: Mapping[str, float],
    *,
    baseline_share: float,
    seed: int,
    swept: Mapping[str, Collection[str]] | None = None,
) -> Iterator[Sequence[PlannedRequest]]:
    """Yield the next requests without end: one, or a pair of both arms in random order to be sent one after the other.

    A share of *baseline_share* of a speculating workload's answers is plain; 0 weaves none in. Workloads come by
    their weight, spread evenly (the largest debt goes first). Pairs begin with canaries that were not sent yet, not
    even in the sweep, which sent the *swept* ones of each workload; requests without a baseline take the others first.
    """
    shuffle = random.Random(seed)
    first = {name: _fresh_first(canaries[name], (swept or {}).get(name, ()), shuffle) for name in settings}
    paired = {name: chain(first[name], endless_rounds(canaries[name], shuffle)) for name in settings}
    alone = {name: chain(reversed(first[name]), endless_rounds(canaries[name], shuffle)) for name in settings}
    active = [name for name in settings if weights[name] > 0]
    total = sum(weights[name] for name in active)
    debt = dict.fromkeys(active, 0.0)
    owed = dict.fromkeys(active, 1.0)  # the first request is paired: a short soak has some of both arms
    number = 0
    while active:
        for name in active:
            debt[name] += weights[name] / total
        name = max(active, key=lambda workload: debt[workload])
        debt[name] -= 1
        number += 1
        speculating = speculates(settings[name])
        with_baseline = speculating and baseline_share > 0 and owed[name] >= 1
        owed[name] = owed[name] - with_baseline + baseline_share / (1 - baseline_share)
        if with_baseline:
            canary, pair = next(paired[name]), f"{seed}.{number}"
            requests = (
                PlannedRequest(name, canary, "candidate", settings[name], pair=pair),
                PlannedRequest(name, canary, "plain", plain_of(settings[name]), role=Role.BASELINE, pair=pair),
            )
            yield shuffle_items(requests, shuffle)
        else:
            yield (_plan_judged_request(name, next(alone[name]), settings[name], Role.MEASURED),)


def _plan_judged_request(workload: str, canary: Canary, setting: Setting, role: Role) -> PlannedRequest:
    """Return a request in the arm that is judged: the speculating one, if there is one."""
    speculating = speculates(setting)
    knobs = setting if speculating else plain_of(setting)
    return PlannedRequest(workload, canary, "candidate" if speculating else "plain", knobs, role=role)


def rest_s(slo: Slo, settings: Mapping[str, Setting]) -> float:
    """Return the seconds of rest before and after a soak, 0 where no objective needs the power at rest."""
    weighs = any(objective.metric == ENERGY_RATIO for objective in slo.objective)
    return REST_S if weighs and any(speculates(knobs) for knobs in settings.values()) else 0.0


def warmup_requests(workload: str, setting: Setting, canaries: Sequence[Canary]) -> list[PlannedRequest]:
    """Return the requests of a workload that warm the process of a soak up."""
    return [_plan_judged_request(workload, canary, setting, Role.WARMUP) for canary in canaries[:WARMUPS]]


def swept_canaries(slo: Slo, canaries: Mapping[str, Sequence[Canary]]) -> dict[str, frozenset[str]]:
    """Return the ids of each workload's canaries that the sweep may send."""
    sent = {name: sweep_canaries(slo, name, workload_canaries) for name, workload_canaries in canaries.items()}
    return {
        name: frozenset(canary.id for canary in workload_canaries[: share_of_budget(slo, workload_canaries)[0]])
        for name, workload_canaries in sent.items()
    }


def _fresh_first(canaries: Sequence[Canary], swept: Collection[str], shuffle: random.Random) -> list[Canary]:
    fresh, repeated = (
        [canary for canary in canaries if (canary.id in swept) is in_sweep] for in_sweep in (False, True)
    )
    return [*shuffle_items(fresh, shuffle), *shuffle_items(repeated, shuffle)]


def stretches(seconds: float) -> int:
    """Return into how many stretches plain blocks part a soak of so many *seconds*."""
    return min(STRETCHES, max(2, int(seconds // LEAST_STRETCH_S)))


def plain_block(
    slo: Slo, settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]], number: int, blocks: int
) -> list[PlannedRequest]:
    """Return the plain requests of block *number* (from 0) of so many *blocks*, which send each canary alike often."""
    requests = []
    for name, knobs in settings.items():
        if speculates(knobs):
            every, plain = canaries[name], plain_of(knobs)
            least = 1 if is_greedy(slo, knobs) else SAMPLED_REPEATS
            answers = max(least * len(every), min(PLAIN_BLOCK_ANSWERS, PLAIN_REPEATS * len(every)))
            size = -(-answers // blocks)
            chosen = [every[place % len(every)] for place in range(number * size, (number + 1) * size)]
            requests += [PlannedRequest(name, canary, "plain", plain, role=Role.BLOCK) for canary in chosen]
    return requests


def closing_requests(settings: Mapping[str, Setting], canaries: Mapping[str, Sequence[Canary]]) -> list[PlannedRequest]:
    """Return requests of evenly picked quality canaries, to be sent when the soak is over."""
    requests = []
    for name, knobs in settings.items():
        marked = [canary for canary in canaries[name] if canary.expect is not None]
        stride = max(1, -(-len(marked) // CLOSING_CANARIES))
        requests += [_plan_judged_request(name, canary, knobs, Role.CLOSING) for canary in marked[::stride]]
    return requests
