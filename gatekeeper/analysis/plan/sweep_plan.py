"""What a run will do: the trials of the sweep in order, and how many answers each takes."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from gatekeeper.analysis.stats import sequential
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError
from gatekeeper.core.interfaces import Sampling
from gatekeeper.core.manifest import Manifest, seed_of
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import CHOSEN, CONDITIONS, Slo

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
        once = [
            (workload.name, canary, repeat)
            for workload in slo.workload
            if repeat < counts[workload.name][1]
            for canary in canaries[workload.name][: counts[workload.name][0]]
        ]
        shuffle.shuffle(once)
        found += once
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
class Step:
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
    steps: tuple[Step, ...]
    concurrency: int
    stretch: int = 0
    """After the last block of a stretch the records are looked at."""
    company: tuple[Trial, ...] = ()
    """The candidates that the plain answers of this block are asked for."""


@dataclass(frozen=True, slots=True)
class Plan:
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


def residence_by(restart_knobs: Sequence[str]) -> Callable[[Setting], str]:
    """Return what names the process that can answer a setting: the values of the knobs that need a restart."""

    def residence(knobs: Setting) -> str:
        turned = dict(knobs)
        if turned.get("draft") is None:
            return "plain"
        return "|".join(str(turned.get(knob)) for knob in restart_knobs)

    return residence


def sampling_for(slo: Slo, canary: Canary, knobs: Setting, concurrency: int) -> Sampling:
    """Return how *canary* is sampled: the knob first, then the canary's own, then the SLO's.

    A seed is sent only above temperature 0 and at concurrency 1: elsewhere it changes more than the draw, because
    mlx_lm.server stops batching when a request carries one.
    """
    turned = dict(knobs)
    temperature = float(turned.get("temperature", slo.sampling.temperature))
    return Sampling(
        temperature=temperature,
        top_p=slo.sampling.top_p,
        top_k=slo.sampling.top_k,
        min_p=slo.sampling.min_p,
        seed=slo.sampling.seed if temperature > 0 and concurrency == 1 else None,
        max_tokens=int(turned.get("max_tokens") or canary.max_tokens or slo.sampling.max_tokens),
        thinking=turned.get("thinking", slo.sampling.thinking),
    )


def defaults(slo: Slo) -> dict[str, Any]:
    """Return the default of every knob that this SLO sets or sweeps; the first value where none is named.

    A condition that is swept has the promised value as its default, where that is among the values.
    """
    named = {knob: value for knob, value in slo.sweep.default.model_dump().items() if value is not None}
    promised = {"temperature": slo.sampling.temperature, "concurrency": slo.soak.concurrency}
    for knob, value in promised.items():
        if value in slo.sweep.values(knob):
            named.setdefault(knob, value)
    for knob in (*CHOSEN, *CONDITIONS):
        values = slo.sweep.values(knob)
        if values and knob not in named:
            named[knob] = values[0]
    if slo.subject.drafts:
        named.setdefault("draft", slo.subject.drafts[0])
    return named


def plain_of(candidate: Setting) -> Setting:
    """Return plain decoding under the same conditions."""
    return setting(draft=None, **{knob: value for knob, value in candidate if knob in CONDITIONS})


def with_conditions(slo: Slo, chosen: Setting) -> Setting:
    """Return a chosen setting under the conditions the sweep compared it under; the soak has its own concurrency."""
    base = defaults(slo)
    conditions = {knob: base[knob] for knob in CONDITIONS if knob in base and knob != "concurrency"}
    return tuple(sorted({**conditions, **dict(chosen)}.items()))


def chosen_of(candidate: Setting) -> Setting:
    """Return the knobs the sweep chooses, without the conditions."""
    return tuple((knob, value) for knob, value in candidate if knob in CHOSEN)


def settings(slo: Slo) -> list[tuple[str, str | None, Setting]]:
    """Return every candidate setting as (name, changed knob, setting), each once, the default first."""
    base = defaults(slo)
    if "draft" not in base:
        return []
    moved = [knob for knob in (*CHOSEN, *CONDITIONS) if slo.sweep.values(knob)]
    named: dict[Setting, tuple[str, str | None]] = {setting(**base): ("default", None)}
    if slo.sweep.design == "grid":
        for values in product(*(slo.sweep.values(knob) for knob in moved)):
            turned = dict(zip(moved, values, strict=True))
            name = "_".join(f"{knob}-{label(value)}" for knob, value in turned.items())
            named.setdefault(setting(**{**base, **turned}), (name, "grid"))
    else:
        for knob in moved:
            for value in slo.sweep.values(knob):
                named.setdefault(setting(**{**base, knob: value}), (f"{knob}-{label(value)}", knob))
    found: list[tuple[str, str | None, Setting]] = []
    taken: set[str] = set()
    for knobs, (name, changed) in named.items():
        unique, number = name, 2
        while unique.casefold() in taken:  # two drafts of one name; a Mac's disk does not tell letter case apart
            unique, number = f"{name}-{number}", number + 1
        taken.add(unique.casefold())
        found.append((unique, changed, knobs))
    return found


def label(value: object) -> str:
    """Return *value* as part of a file name."""
    return "".join(char if char.isalnum() or char in ".-" else "-" for char in str(value).rsplit("/", 1)[-1])


def trials(slo: Slo) -> tuple[Trial, ...]:
    """Return the plain trials and the candidates; refuse more runs than the SLO allows."""
    base = defaults(slo)
    conditions = {knob: base[knob] for knob in CONDITIONS if knob in base}
    plain = {setting(draft=None, **conditions): BASELINE}
    candidates = []
    for name, changed, knobs in settings(slo):
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
) -> Plan:
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
    return Plan(every, tuple(blocks), seed, looks=looks)


def _twins(by_name: Mapping[str, Trial], candidates: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the plain trials that *candidates* are compared with; the null arm goes with the baseline."""
    names = dict.fromkeys(trial.twin for trial in candidates) or {BASELINE: None}
    if BASELINE in names and NULL in by_name:
        names[NULL] = None
    return tuple(by_name[name] for name in names)


def concurrency_of(slo: Slo, trial: Trial) -> int:
    """Return how many answers of this trial are under way at once."""
    return int(dict(trial.setting).get("concurrency", slo.soak.concurrency))


def _interleaved(arms: Sequence[Trial], units: Sequence[Unit], number: int, shuffle: random.Random) -> tuple[Step, ...]:
    steps = []
    for workload, canary, repeat in units:
        order = list(arms)
        shuffle.shuffle(order)
        steps += [Step(trial, workload, canary, repeat, f"{number}.{repeat}") for trial in order]
    return tuple(steps)


def _batched(arms: Sequence[Trial], units: Sequence[Unit], number: int) -> tuple[Step, ...]:
    """Keep the streams to one trial at a time: answers under way together disturb each other."""
    return tuple(
        Step(trial, workload, canary, repeat, f"{number}.{repeat}")
        for trial in arms
        for workload, canary, repeat in units
    )


def document(slo: Slo, plan: Plan) -> dict[str, Any]:
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
) -> Plan:
    """Return the sweep's plan, which the frozen inputs decide alone; a *fixed* setting needs no sweep."""
    if fixed is not None:
        return Plan((), (), seed_of(manifest_sha256), fixed)
    return sweep_plan(
        slo,
        canaries,
        shares_process=manifest.shares_process,
        residence=residence_by(manifest.restart_knobs),
        seed=seed_of(manifest_sha256),
    )
