"""What a run will do: the trials of the sweep in order, and how many answers each takes."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gatekeeper.analysis.plan.rounds import shuffled
from gatekeeper.analysis.plan.settings import candidate_settings, defaults, plain_of, residence_by
from gatekeeper.analysis.stats import sequential
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import Manifest, seed_of
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import CONDITIONS, Slo

Unit = tuple[str, Canary, int]
"""Workload, canary and repeat: what every arm of a group is asked once."""
Looks = Mapping[str, tuple[int, ...]]
"""Answers per arm after each stretch, by workload."""


def share_of_budget(slo: Slo, canaries: Sequence[Canary]) -> tuple[int, int]:
    """Return how many canaries and repeats fit the budget of answers per arm and workload; canaries go first."""
    count = min(len(canaries), slo.sweep.budget)
    return count, max(1, min(slo.sweep.repeats, slo.sweep.budget // count))


def look_counts(slo: Slo, canaries: Mapping[str, Sequence[Canary]], growth: float) -> Looks:
    """Return after how many answers the sweep looks at each workload: at the end alone where it can not stop early."""
    found = {}
    for workload in slo.workload:
        count, repeats = share_of_budget(slo, canaries[workload.name])
        whole = count * repeats
        early = slo.sweep.stop == "early" and count >= sequential.MIN_CANARIES
        found[workload.name] = sequential.looks(whole, growth, count) if early else (whole,)
    return found


def shuffled_units(slo: Slo, canaries: Mapping[str, Sequence[Canary]], shuffle: random.Random) -> list[Unit]:
    """Return every canary once before any is repeated, each time in another random order."""
    found: list[Unit] = []
    counts = {workload.name: share_of_budget(slo, canaries[workload.name]) for workload in slo.workload}
    for repeat in range(max(repeats for _, repeats in counts.values())):
        once = (
            (workload.name, canary, repeat)
            for workload in slo.workload
            if repeat < counts[workload.name][1]
            for canary in canaries[workload.name][: counts[workload.name][0]]
        )
        found += shuffled(once, shuffle)
    return found


def units_of(every: Sequence[Unit], looks: Looks, number: int) -> list[Unit]:
    """Return the units of stretch *number* (from 0): of each workload those between two of its looks."""
    seen: Counter[str] = Counter()
    found = []
    for unit in every:
        counts, at = looks[unit[0]], seen[unit[0]]
        seen[unit[0]] += 1
        if number < len(counts) and (counts[number - 1] if number else 0) <= at < counts[number]:
            found.append(unit)
    return found


def halves(every: Sequence[Unit], some: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Split *some* of the units in two: every second canary in each, and one that is repeated in both in turn."""
    place: dict[tuple[str, str], int] = {}
    seen: Counter[str] = Counter()
    for workload, canary, _ in every:
        if (workload, canary.id) not in place:
            place[workload, canary.id] = seen[workload]
            seen[workload] += 1
    turn = [(place[workload, canary.id] + repeat) % 2 for workload, canary, repeat in some]
    first, second = ([unit for unit, half in zip(some, turn, strict=True) if half == side] for side in (0, 1))
    return first, second


BASELINE = "baseline"
NULL = "null"
"""A second plain arm beside the baseline: plain against plain is the harness's own noise, on this host, now."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One arm at one setting; its answers go to one record file."""

    name: str
    arm: str
    """`plain` or `candidate`."""
    setting: Setting
    """Chosen knobs and conditions together; draft None for plain decoding."""
    changed: str | None = None
    """The knob this trial moves away from the default, None for the default itself."""
    twin: str = BASELINE
    """The plain trial it is compared with."""

    @property
    def file(self) -> str:
        """Return the name of its record file."""
        return f"{self.name}.jsonl" if self.arm == "plain" else f"sweep-{self.name}.jsonl"


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """One request of the sweep."""

    trial: Trial
    workload: str
    canary: Canary
    repeat: int
    pair: str

    @property
    def key(self) -> str:
        """Name the request uniquely in its record file."""
        return f"{self.pair}:{self.workload}/{self.canary.id}"


@dataclass(frozen=True, slots=True)
class Block:
    """Requests that one process answers without a restart."""

    name: str
    resident: Setting
    """The setting the process is started for."""
    trials: tuple[Trial, ...]
    steps: tuple[SweepRequest, ...]
    concurrency: int
    stretch: int = 0
    """After the last block of a stretch the records are looked at."""
    company: tuple[Trial, ...] = ()
    """The candidates that the plain answers of this block are asked for."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The whole sweep."""

    trials: tuple[Trial, ...]
    blocks: tuple[Block, ...]
    seed: int
    fixed: Setting | None = None
    """The setting to soak without a sweep."""
    looks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Answers per arm after each stretch, by workload; a sweep that never stops early has one look, at its end."""

    @property
    def files(self) -> tuple[str, ...]:
        """Return the record files of the sweep, in the order of the trials."""
        return tuple(trial.file for trial in self.trials)


def trials(slo: Slo) -> tuple[Trial, ...]:
    """Return the plain trials and the candidates; refuse more runs than the SLO allows."""
    base = defaults(slo)
    conditions = {knob: base[knob] for knob in CONDITIONS if knob in base}
    plain = {setting(draft=None, **conditions): BASELINE}
    candidates = []
    for name, changed, knobs in candidate_settings(slo):
        twin = plain.setdefault(plain_of(knobs), f"plain-{name}")
        candidates.append(Trial(name, "candidate", knobs, changed, twin))
    null = (Trial(NULL, "plain", next(iter(plain))),) if candidates else ()
    arms = (*(Trial(name, "plain", knobs) for knobs, name in plain.items()), *null, *candidates)
    runs = len(candidates) * len(slo.workload)
    if runs > slo.sweep.max_runs:
        raise InputError(
            f"the {slo.sweep.design} sweep has {runs} runs ({len(candidates)} settings x "
            f"{len(slo.workload)} workloads), more than sweep.max_runs = {slo.sweep.max_runs}",
            hint='raise max_runs, sweep fewer values, or use design = "one-at-a-time"',
        )
    return arms


def sweep_plan(
    slo: Slo,
    canaries: Mapping[str, Sequence[Canary]],
    *,
    shares_process: bool,
    residence: Callable[[Setting], str],
    seed: int,
) -> SweepPlan:
    """Order the sweep: both arms of a canary next to each other where one process serves both, else ABBA blocks.

    Wherever the baseline is asked, the null arm is asked beside it. The order inside a block is random, but drawn from
    *seed* and recorded, so that a drift of the host falls on all settings alike. A sweep that may stop early is laid in
    stretches, each of which asks every setting alike; above one stream nothing stops early.
    """
    shuffle = random.Random(seed)
    every = trials(slo)
    by_name = {trial.name: trial for trial in every}
    groups: dict[tuple[str, int], list[Trial]] = {}
    for trial in every:
        if trial.arm == "candidate":
            groups.setdefault((residence(trial.setting), concurrency_of(slo, trial)), []).append(trial)
    if not groups:
        groups[residence(every[0].setting), concurrency_of(slo, every[0])] = []
    restarts = len(groups) > 1 or not shares_process
    looks = look_counts(slo, canaries, sequential.RESTARTED if restarts else sequential.GROWTH)
    units = {number: shuffled_units(slo, canaries, shuffle) for number in range(1, len(groups) + 1)}
    blocks: list[Block] = []
    for stretch in range(max(len(counts) for counts in looks.values())):
        for number, ((_, streams), candidates) in enumerate(groups.items(), start=1):
            if streams > 1 and stretch:
                continue
            twins, arms = _twins(by_name, candidates), tuple(candidates)
            part = units[number] if streams > 1 else units_of(units[number], looks, stretch)
            if shares_process and streams == 1:
                sides = [("", (*twins, *arms), part)]
            else:
                half = halves(units[number], part)
                sides = [("a", twins, half[0]), ("b", arms, half[0]), ("c", arms, half[1]), ("d", twins, half[1])]
            for letter, side, asked in sides:
                if side and asked:
                    steps = (
                        _interleaved(side, asked, number, shuffle) if streams == 1 else _batched(side, asked, number)
                    )
                    resident = side[0].setting if letter or not arms else arms[0].setting
                    name = f"{stretch + 1}.{number}{letter}"
                    blocks.append(Block(name, resident, side, steps, streams, stretch, arms))
    return SweepPlan(every, tuple(blocks), seed, looks=looks)


def _twins(by_name: Mapping[str, Trial], candidates: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the plain trials that *candidates* are compared with; the null arm goes with the baseline."""
    names = dict.fromkeys(trial.twin for trial in candidates) or {BASELINE: None}
    if BASELINE in names and NULL in by_name:
        names[NULL] = None
    return tuple(by_name[name] for name in names)


def concurrency_of(slo: Slo, trial: Trial) -> int:
    """Return how many answers of this trial are under way at once."""
    return int(dict(trial.setting).get("concurrency", slo.soak.concurrency))


def _interleaved(
    arms: Sequence[Trial], units: Sequence[Unit], number: int, shuffle: random.Random
) -> tuple[SweepRequest, ...]:
    steps = []
    for workload, canary, repeat in units:
        order = shuffled(arms, shuffle)
        steps += [SweepRequest(trial, workload, canary, repeat, f"{number}.{repeat}") for trial in order]
    return tuple(steps)


def _batched(arms: Sequence[Trial], units: Sequence[Unit], number: int) -> tuple[SweepRequest, ...]:
    """Keep the streams to one trial at a time: answers under way together disturb each other."""
    return tuple(
        SweepRequest(trial, workload, canary, repeat, f"{number}.{repeat}")
        for trial in arms
        for workload, canary, repeat in units
    )


def plan_document(slo: Slo, plan: SweepPlan) -> dict[str, Any]:
    """Return the content of plan.json."""
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
                "twin": trial.twin if trial.arm == "candidate" else None,
                "answers": sum(step.trial is trial for block in plan.blocks for step in block.steps),
            }
            for trial in plan.trials
        ],
        "order": [
            {"block": block.name, "resident": dict(block.resident), "concurrency": block.concurrency}
            | {"answers": [f"{step.trial.name}/{step.workload}/{step.canary.id}/{step.repeat}" for step in block.steps]}
            for block in plan.blocks
        ],
        "records": [
            *plan.files,
            "soak-1*.jsonl",
            "ties-1*.jsonl",
            "warm-1*.jsonl",
            "draws-1*.jsonl",
            "host.jsonl",
            "events.jsonl",
        ],
    }


def frozen_plan(
    slo: Slo,
    canaries: Mapping[str, Sequence[Canary]],
    manifest: Manifest,
    manifest_sha256: str,
    fixed: Setting | None = None,
) -> SweepPlan:
    """Return the sweep's plan, which the frozen inputs decide alone; a *fixed* setting needs no sweep."""
    if fixed is not None:
        return SweepPlan((), (), seed_of(manifest_sha256), fixed)
    return sweep_plan(
        slo,
        canaries,
        shares_process=manifest.shares_process,
        residence=residence_by(manifest.restart_knobs),
        seed=seed_of(manifest_sha256),
    )
