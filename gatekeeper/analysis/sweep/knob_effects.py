"""The account of a choice: each setting's cost model, what each knob does, and where concurrency turns it round."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, burst_gap, pair_answers
from gatekeeper.analysis.plan.settings import defaults
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, Trial, concurrency_of
from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.sweep import cost_model
from gatekeeper.analysis.sweep.choice import Choice, SettingResult
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Setting
from gatekeeper.core.slo import CHOSEN, CONDITIONS, Slo
from gatekeeper.core.verdict import Estimate, Missing, rounded

RELEVANT = 0.05
"""An effect smaller than this changes nobody's decision; only an interval inside it says "no measurable effect"."""


@dataclass(frozen=True, slots=True)
class SettingSpeeds:
    """One setting of the sweep: its mean log ratio by canary, and the measure they are of."""

    setting: Setting
    measure: str
    logs: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Effect:
    """What moving a knob from its default to a value does, as a factor on the ratio."""

    value: Any
    factor: Estimate | Missing


def main_effects(arms: Sequence[SettingSpeeds], default: Setting, level: float, seed: int) -> list[dict[str, Any]]:
    """Return every moved knob with the effects of its values against the default, the largest first.

    Each value is compared on the same canaries, averaged over the settings of the other knobs. The allowed error is
    split over a knob's values. Concurrency is left out: above one stream another measure counts.
    """
    found = []
    for knob in (*CHOSEN, *CONDITIONS):
        values = list(dict.fromkeys(dict(arm.setting).get(knob) for arm in arms))
        base = dict(default).get(knob)
        others = [value for value in values if value != base]
        if knob == "concurrency" or not others:
            continue
        each = 1 - (1 - level) / len(others)
        effects = [Effect(value, _effect(arms, knob, (base, value), each, seed)) for value in others]
        found.append(_document(knob, base, effects))
    return sorted(found, key=lambda one: -one["size"] if one["size"] is not None else 1.0)


def _effect(
    arms: Sequence[SettingSpeeds], knob: str, values: tuple[Any, Any], level: float, seed: int
) -> Estimate | Missing:
    """Compare two values of a knob, each setting with its twin that differs in nothing else."""
    base, value = values
    twins = {_without(arm, knob): arm for arm in arms if dict(arm.setting).get(knob) == base}
    apart: dict[str, list[float]] = defaultdict(list)
    for arm in arms:
        twin = twins.get(_without(arm, knob))
        if dict(arm.setting).get(knob) != value or twin is None or twin.measure != arm.measure:
            continue
        for canary in sorted(arm.logs.keys() & twin.logs.keys()):
            apart[canary].append(arm.logs[canary] - twin.logs[canary])
    return intervals.geometric_mean_ratio({name: [math.exp(fmean(seen))] for name, seen in apart.items()}, level, seed)


def _without(arm: SettingSpeeds, knob: str) -> Setting:
    return tuple((name, value) for name, value in arm.setting if name != knob)


def _document(knob: str, base: Any, effects: Sequence[Effect]) -> dict[str, Any]:
    known = [(one.value, one.factor) for one in effects if isinstance(one.factor, Estimate)]
    size = max((abs(math.log(factor.center)) for _, factor in known), default=None)
    return {
        "knob": knob,
        "default": base,
        "size": rounded(math.expm1(size)) if size is not None else None,
        "says": _says(effects, [factor for _, factor in known]),
        "values": [
            {"value": one.value}
            | (
                {
                    "factor": rounded(one.factor.center),
                    "lo": rounded(one.factor.lo),
                    "hi": rounded(one.factor.hi),
                    "n": one.factor.n,
                }
                if isinstance(one.factor, Estimate)
                else {"factor": None, "lo": None, "hi": None, "n": one.factor.n, "because": one.factor.because}
            )
            for one in effects
        ],
    }


def _says(effects: Sequence[Effect], known: Sequence[Estimate]) -> str:
    """Tell an effect from none, and both from not knowing."""
    if any(one.lo > 1 or one.hi < 1 for one in known):
        if all(1 - RELEVANT < one.lo and one.hi < 1 + RELEVANT for one in known) and len(known) == len(effects):
            return "a small effect"
        return "an effect"
    if len(known) < len(effects):
        return "not known"
    if all(1 - RELEVANT < one.lo and one.hi < 1 + RELEVANT for one in known):
        return "no measurable effect"
    return "not known"


def concurrency_effect(ratios: Mapping[int, Estimate | Missing]) -> dict[str, Any]:
    """Return the system's ratio by number of streams, and between which of them its sign changes for certain."""
    ordered = sorted(ratios.items())
    signs = [(streams, _sign(ratio)) for streams, ratio in ordered]
    sure = [(streams, sign) for streams, sign in signs if sign]
    turns = [[before, after] for (before, was), (after, now) in pairwise(sure) if was != now]
    return {
        "measure": "system_throughput_ratio",
        "by_concurrency": [{"concurrency": streams, **_figures(ratio)} for streams, ratio in ordered],
        "turns": turns,
        "says": _turning_point_text(sure, turns, len(ordered)),
    }


def _sign(ratio: Estimate | Missing) -> int:
    if isinstance(ratio, Missing):
        return 0
    return (ratio.lo > 1) - (ratio.hi < 1)


def _figures(ratio: Estimate | Missing) -> dict[str, Any]:
    if isinstance(ratio, Missing):
        return {"ratio": None, "lo": None, "hi": None, "n": ratio.n, "because": ratio.because}
    return {"ratio": rounded(ratio.center), "lo": rounded(ratio.lo), "hi": rounded(ratio.hi), "n": ratio.n}


def _turning_point_text(sure: list[tuple[int, int]], turns: list[list[int]], seen: int) -> str:
    words = {1: "speculation wins", -1: "plain decoding wins"}
    if turns:
        first = dict(sure)[turns[0][0]]
        return f"{words[first]} at {turns[0][0]}, {words[-first]} at {turns[0][1]}: the sign changes between them"
    if not sure:
        return "at no concurrency is either proven faster"
    where = ", ".join(str(streams) for streams, _ in sure)
    rest = "" if len(sure) == seen else "; the others prove nothing"
    return f"{words[sure[0][1]]} at {where}{rest}"


Records = Mapping[str, Sequence[Generation]]


def with_explanations(
    slo: Slo, plan: SweepPlan, records: Records, workload: str, canaries: Mapping[str, Canary], choice: Choice
) -> Choice:
    """Return the choice with what the sweep's records say beyond it."""
    if not choice.seen:
        return choice
    told = [one for one in choice.seen if not isinstance(one.ratio, Missing)]
    arms = [SettingSpeeds(one.trial.setting, one.measure, one.logs) for one in told]
    seen = choice.seen[0].trial.setting
    return replace(
        choice,
        models=_models(slo, records, workload, choice.seen),
        effects=tuple(main_effects(arms, seen, slo.confidence, plan.seed)),
        concurrency=_concurrency(slo, plan, records, workload, canaries),
    )


def _models(slo: Slo, records: Records, workload: str, seen: Sequence[SettingResult]) -> dict[str, dict[str, Any]]:
    """Explain each setting; those under other conditions are explained apart, by their own plain decoding."""
    out: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[SettingResult]] = {}
    for one in seen:
        groups.setdefault(one.trial.twin, []).append(one)
    for twin, group in groups.items():
        plain = _of(records, twin, workload)
        if concurrency_of(slo, group[0].trial) > 1:
            why = "answers under way together share the machine: the time of a round is not its cost"
            out |= {one.trial.name: {"because": why} for one in group}
            continue
        together = burst_gap(plain)
        settings = {
            one.trial.name: cost_model.measure_rounds(
                one.trial.setting, _of(records, one.trial.name, workload), together
            )
            for one in group
        }
        ratios = {
            one.trial.name: one.ratio.center
            for one in group
            if isinstance(one.ratio, Estimate) and one.measure == "throughput_ratio"
        }
        out |= cost_model.explanations(settings, cost_model.plain_seconds(plain), ratios)
    return out


def _of(records: Records, trial: str, workload: str) -> tuple[Generation, ...]:
    return tuple(one for one in records.get(trial, ()) if one.workload == workload)


def _concurrency(
    slo: Slo, plan: SweepPlan, records: Records, workload: str, canaries: Mapping[str, Canary]
) -> dict[str, Any]:
    """Compare the system's speed at every concurrency that was swept, at the default of every other knob."""
    if len(slo.sweep.concurrency) < 2:
        return {}
    base = defaults(slo)
    ratios: dict[int, Estimate | Missing] = {}
    for trial in plan.trials:
        if trial.arm == "candidate" and _only_concurrency(trial, base):
            evidence = pair_answers(
                PairedAnswers(
                    workload,
                    canaries,
                    _of(records, trial.name, workload),
                    _of(records, trial.twin, workload),
                    slo.confidence,
                    plan.seed,
                    greedy=False,
                    drift_limit=float("inf"),
                )
            )
            ratios[concurrency_of(slo, trial)] = estimate("system_throughput_ratio", evidence)
    return concurrency_effect(ratios)


def _only_concurrency(trial: Trial, base: Mapping[str, Any]) -> bool:
    turned = dict(trial.setting)
    return all(turned.get(knob) == value for knob, value in base.items() if knob != "concurrency")
