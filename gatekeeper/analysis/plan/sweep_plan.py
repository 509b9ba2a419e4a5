"""The plan of a sweep: its trials, the order of its requests, the looks at which it may stop early; and plan.json."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gatekeeper.analysis.plan.objectives import ALL_SHOWN, Terms
from gatekeeper.analysis.plan.planned_request import PlannedRequest, shuffle_items
from gatekeeper.analysis.plan.settings import (
    candidate_settings,
    concurrency_of,
    defaults,
    grid_size,
    plain_of,
    process_of,
)
from gatekeeper.analysis.stats import sequential
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import Slo

BASELINE = "baseline"
NULL = "null"
"""A second plain arm next to the baseline: settings are compared with the mean of both, which is less noisy."""
MOST_REQUESTS = 1_000_000
"""A sweep has no more of them: at one second each they take twelve days."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One arm at one setting, with one record file."""

    name: str
    arm: str
    """`plain` or `candidate`."""
    setting: Setting
    """Chosen knobs and conditions; draft None for plain decoding."""
    changed: str | None = None
    """The knob that differs from the default setting, None for the default itself."""
    baseline: str = BASELINE
    """The plain trial it is compared with."""

    @property
    def file(self) -> str:
        """Return the name of its record file."""
        return f"{self.name}.jsonl" if self.arm == "plain" else f"sweep-{self.name}.jsonl"


class Unit(NamedTuple):
    """One canary in one repeat, which every trial of a group answers once."""

    workload: str
    canary: Canary
    repeat: int


@dataclass(frozen=True, slots=True)
class Block:
    """Requests that one process answers without a restart."""

    name: str
    resident: Setting
    """The setting the process is started for."""
    trials: tuple[Trial, ...]
    requests: tuple[PlannedRequest, ...]
    concurrency: int
    stretch: int = 0
    """After the last block of a stretch comes a look at the records."""
    candidates: tuple[Trial, ...] = ()
    """The trials with which its plain answers are compared."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The whole sweep."""

    trials: tuple[Trial, ...]
    blocks: tuple[Block, ...]
    seed: int
    shares_process: bool = True
    """One process serves both arms."""
    restart_knobs: tuple[str, ...] = ()
    """Knobs whose change needs another process."""
    fixed: Setting | None = None
    """The setting to soak without a sweep."""
    looks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Answers per arm after each stretch, by workload; a sweep that never stops early has one look, at the end."""
    terms: Terms = ALL_SHOWN
    """What the run is judged by besides its SLO file."""

    @property
    def candidates(self) -> tuple[Trial, ...]:
        """Return the speculating trials, the default setting first."""
        return tuple(trial for trial in self.trials if trial.arm == "candidate")

    @property
    def requests(self) -> tuple[PlannedRequest, ...]:
        """Return all requests in their order."""
        return tuple(request for block in self.blocks for request in block.requests)

    def process_of(self, knobs: Setting) -> str:
        """Name the process that can answer a setting; a different name means a restart."""
        return process_of(knobs, self.restart_knobs)


def sweep_plan(
    slo: Slo,
    canaries: Mapping[str, Sequence[Canary]],
    *,
    shares_process: bool,
    restart_knobs: Sequence[str],
    seed: int,
    fixed: Setting | None = None,
    terms: Terms = ALL_SHOWN,
) -> SweepPlan:
    """Order the sweep: both arms of a canary next to each other where one process serves both, else ABBA blocks.

    The null arm has the same requests as the baseline. The order inside a block is random, drawn from *seed* and
    recorded, so that a drift of the host affects all settings alike. A sweep that may stop early has stretches, each
    with requests of every setting; above one stream nothing stops early. A *fixed* setting needs no sweep.
    """
    if fixed is not None:
        return SweepPlan((), (), seed, shares_process, tuple(restart_knobs), fixed, terms=terms)
    canaries = {name: sweep_canaries(slo, name, workload_canaries) for name, workload_canaries in canaries.items()}
    shuffle = random.Random(seed)
    trials = trials_of(slo)
    _check_length(slo, canaries, len(trials))
    groups = _groups(slo, canaries, trials, restart_knobs, shuffle)
    restarts = len(groups) > 1 or not shares_process
    looks = look_counts(slo, canaries, sequential.RESTARTED if restarts else sequential.GROWTH)
    blocks = tuple(
        block
        for stretch in range(max(len(counts) for counts in looks.values()))
        for group in groups
        for block in _blocks(group, stretch, looks, shuffle, shares_process=shares_process)
    )
    return SweepPlan(trials, blocks, seed, shares_process, tuple(restart_knobs), looks=looks, terms=terms)


@dataclass(frozen=True, slots=True)
class _TrialGroup:
    """Candidates that one process answers at one concurrency, and the plain trials they are compared with."""

    number: int
    """The first group has 1."""
    streams: int
    plain: tuple[Trial, ...]
    candidates: tuple[Trial, ...]
    units: Sequence[Unit]

    def sides(self, units: Sequence[Unit], *, shares_process: bool) -> list[tuple[str, tuple[Trial, ...], list[Unit]]]:
        """Return the trials and units of each block by its letter: one block without a restart, else ABBA."""
        if shares_process and self.streams == 1:
            return [("", (*self.plain, *self.candidates), list(units))]
        first, second = halves(self.units, units)
        plain, candidates = self.plain, self.candidates
        return [("a", plain, first), ("b", candidates, first), ("c", candidates, second), ("d", plain, second)]


def _groups(
    slo: Slo,
    canaries: Mapping[str, Sequence[Canary]],
    trials: Sequence[Trial],
    restart_knobs: Sequence[str],
    shuffle: random.Random,
) -> list[_TrialGroup]:
    """Return the candidates by their process and concurrency, each group with its own order of units."""
    candidates: dict[tuple[str, int], list[Trial]] = {}
    for trial in trials:
        if trial.arm == "candidate":
            process = process_of(trial.setting, restart_knobs), concurrency_of(slo, trial.setting)
            candidates.setdefault(process, []).append(trial)
    candidates = candidates or {("plain", concurrency_of(slo, trials[0].setting)): []}
    return [
        _TrialGroup(number, streams, _baselines(trials, group), tuple(group), shuffled_units(slo, canaries, shuffle))
        for number, ((_, streams), group) in enumerate(candidates.items(), start=1)
    ]


def _blocks(
    group: _TrialGroup,
    stretch: int,
    looks: Mapping[str, tuple[int, ...]],
    shuffle: random.Random,
    *,
    shares_process: bool,
) -> Iterator[Block]:
    """Yield the blocks of a group in a stretch, the order inside each drawn from *shuffle*."""
    if group.streams > 1 and stretch:
        return
    units = group.units if group.streams > 1 else units_between_looks(group.units, looks, stretch)
    for letter, trials, side_units in group.sides(units, shares_process=shares_process):
        if trials and side_units:
            order = _in_order(trials, side_units, group.streams, shuffle)
            requests = tuple(_request(trial, unit, group.number, group.streams) for trial, unit in order)
            resident = trials[0].setting if letter or not group.candidates else group.candidates[0].setting
            name = f"{stretch + 1}.{group.number}{letter}"
            yield Block(name, resident, trials, requests, group.streams, stretch, candidates=group.candidates)


def baseline_alone(plan: SweepPlan) -> SweepPlan:
    """Return the plan's requests of the baseline alone, in the same processes and order, without early stops."""
    blocks = (
        replace(
            block, candidates=(), requests=tuple(request for request in block.requests if request.trial == BASELINE)
        )
        for block in plan.blocks
    )
    trials = tuple(trial for trial in plan.trials if trial.name == BASELINE)
    return replace(plan, trials=trials, blocks=tuple(block for block in blocks if block.requests), looks={})


def _check_length(slo: Slo, canaries: Mapping[str, Sequence[Canary]], trials: int) -> None:
    shares = (share_of_budget(slo, canaries[workload.name]) for workload in slo.workload)
    requests = trials * sum(count * repeats for count, repeats in shares)
    if requests > MOST_REQUESTS:
        raise InputError(
            f"the sweep would send {requests} requests; a plan has up to {MOST_REQUESTS}",
            hint="lower sweep.budget or sweep.repeats, sweep fewer values, or take the `first` canaries of a file",
        )


def trials_of(slo: Slo) -> tuple[Trial, ...]:
    """Return the plain trials and the candidates; raise InputError for more runs than sweep.max_runs."""
    plain = {plain_of(setting(**defaults(slo))): BASELINE}
    candidates = []
    settings = grid_size(slo)
    if settings <= slo.sweep.max_runs:  # a larger grid is not even listed: it may have 100 values to the power of 10
        for name, changed, knobs in candidate_settings(slo):
            baseline = plain.setdefault(plain_of(knobs), f"plain-{name}")
            candidates.append(Trial(name, "candidate", knobs, changed, baseline))
        settings = len(candidates)
    runs = settings * len(slo.workload)
    if runs > slo.sweep.max_runs:
        raise InputError(
            f"the {slo.sweep.design} sweep has {runs} runs ({settings} settings x "
            f"{len(slo.workload)} workloads); sweep.max_runs allows {slo.sweep.max_runs}",
            hint='raise max_runs, sweep fewer values, or use design = "one-at-a-time"',
        )
    null = (Trial(NULL, "plain", next(iter(plain))),) if candidates else ()
    return (*(Trial(name, "plain", knobs) for knobs, name in plain.items()), *null, *candidates)


def _baselines(trials: Sequence[Trial], candidates: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the plain trials that *candidates* are compared with, and the null arm with the baseline."""
    names = dict.fromkeys(trial.baseline for trial in candidates) or {BASELINE: None}
    if BASELINE in names:
        names[NULL] = None
    by_name = {trial.name: trial for trial in trials}
    return tuple(by_name[name] for name in names if name in by_name)


def sweep_canaries(slo: Slo, workload: str, canaries: Sequence[Canary]) -> Sequence[Canary]:
    """Return the canaries of the sweep: all, or every second one where a bound must hold for prompts like them.

    The best of several settings is partly the one that happens to suit these canaries. A bound for other prompts then
    fails in 7 to 12 % of the runs instead of 5 %, so the soak proves it on the canaries that the choice has not seen.
    """
    beyond = any(objective.beyond_canaries and objective.applies_to(workload) for objective in slo.objective)
    return canaries[::2] if beyond else canaries


def share_of_budget(slo: Slo, canaries: Sequence[Canary]) -> tuple[int, int]:
    """Return how many canaries and repeats fit the budget of answers per arm and workload; canaries have priority."""
    count = min(len(canaries), slo.sweep.budget)
    return count, max(1, min(slo.sweep.repeats, slo.sweep.budget // count))


def look_counts(slo: Slo, canaries: Mapping[str, Sequence[Canary]], growth: float) -> dict[str, tuple[int, ...]]:
    """Return the numbers of answers after which the sweep looks at each workload: one where it cannot stop early."""
    looks = {}
    for workload in slo.workload:
        count, repeats = share_of_budget(slo, canaries[workload.name])
        total = count * repeats
        early = slo.sweep.stops_early and count >= sequential.MIN_CANARIES
        looks[workload.name] = sequential.looks(total, growth, count) if early else (total,)
    return looks


def shuffled_units(slo: Slo, canaries: Mapping[str, Sequence[Canary]], shuffle: random.Random) -> list[Unit]:
    """Return every canary once before any repeat, each time in another random order."""
    units: list[Unit] = []
    counts = {workload.name: share_of_budget(slo, canaries[workload.name]) for workload in slo.workload}
    for repeat in range(max(repeats for _, repeats in counts.values())):
        once = (
            Unit(name, canary, repeat)
            for name, (count, repeats) in counts.items()
            if repeat < repeats
            for canary in canaries[name][:count]
        )
        units += shuffle_items(once, shuffle)
    return units


def units_between_looks(units: Sequence[Unit], looks: Mapping[str, tuple[int, ...]], stretch: int) -> list[Unit]:
    """Return the units of *stretch* (from 0): those of each workload between two of its looks."""
    count_by_workload: Counter[str] = Counter()
    stretch_units = []
    for unit in units:
        counts, position = looks[unit.workload], count_by_workload[unit.workload]
        count_by_workload[unit.workload] += 1
        if stretch < len(counts) and (counts[stretch - 1] if stretch else 0) <= position < counts[stretch]:
            stretch_units.append(unit)
    return stretch_units


def halves(units: Sequence[Unit], part: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Split *part* of the units in two: every second canary in each, the repeats of a canary alternately in both."""
    place: dict[tuple[str, str], int] = {}
    count_by_workload: Counter[str] = Counter()
    for unit in units:
        if unit.repeat == 0:
            place[unit.workload, unit.canary.id] = count_by_workload[unit.workload]
            count_by_workload[unit.workload] += 1
    sides: tuple[list[Unit], list[Unit]] = ([], [])
    for unit in part:
        sides[(place[unit.workload, unit.canary.id] + unit.repeat) % 2].append(unit)
    return sides


def _in_order(
    trials: Sequence[Trial], units: Sequence[Unit], streams: int, shuffle: random.Random
) -> list[tuple[Trial, Unit]]:
    """Return the trials of each unit; of concurrent answers, which slow each other down, the units of each trial."""
    if streams > 1:
        return [(trial, unit) for trial in trials for unit in units]
    return [(trial, unit) for unit in units for trial in shuffle_items(trials, shuffle)]


def _request(trial: Trial, unit: Unit, number: int, streams: int) -> PlannedRequest:
    pair = f"{number}.{unit.repeat}"
    return PlannedRequest(
        unit.workload,
        unit.canary,
        trial.arm,
        trial.setting,
        trial=trial.name,
        prefix=pair,
        repeat=unit.repeat,
        pair=pair,
        concurrency=streams,
    )


def plan_document(slo: Slo, plan: SweepPlan, follow_ups: Iterable[str]) -> dict[str, object]:
    """Return the content of plan.json; *follow_ups* are their record files."""
    answers = Counter(request.trial for request in plan.requests)
    return {
        "schema": 1,
        "slo": slo.name,
        "design": slo.sweep.design,
        "stop": slo.sweep.stop,
        "looks": {workload: list(counts) for workload, counts in plan.looks.items()},
        "seed": plan.seed,
        "fixed": dict(plan.fixed) if plan.fixed is not None else None,
        "trials": [
            {
                "name": trial.name,
                "file": trial.file,
                "arm": trial.arm,
                "setting": dict(trial.setting),
                "changed": trial.changed,
                "twin": trial.baseline if trial.arm == "candidate" else None,
                "answers": answers[trial.name],
            }
            for trial in plan.trials
        ],
        "order": [
            {
                "block": block.name,
                "resident": dict(block.resident),
                "concurrency": block.concurrency,
                "answers": [
                    f"{request.trial}/{request.workload}/{request.canary.id}/{request.repeat}"
                    for request in block.requests
                ],
            }
            for block in plan.blocks
        ],
        "records": [*(trial.file for trial in plan.trials), "soak-1*.jsonl", *follow_ups, "host.jsonl", "events.jsonl"],
    }
