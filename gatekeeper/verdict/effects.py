"""What each knob does to the speed against plain decoding: its main effect with an interval, ranked."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from gatekeeper.terms.outcome import Estimate, Missing, rounded
from gatekeeper.terms.records import Setting
from gatekeeper.terms.slo import CHOSEN, CONDITIONS
from gatekeeper.verdict import stats

RELEVANT = 0.05
"""An effect smaller than this changes nobody's decision; only an interval inside it says "no measurable effect"."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One setting of the sweep: its mean log ratio by canary, and the measure they are of."""

    setting: Setting
    measure: str
    logs: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Effect:
    """What moving a knob from its default to a value does, as a factor on the ratio."""

    value: Any
    factor: Estimate | Missing


def main_effects(arms: Sequence[Arm], default: Setting, level: float, seed: int) -> list[dict[str, Any]]:
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


def _effect(arms: Sequence[Arm], knob: str, values: tuple[Any, Any], level: float, seed: int) -> Estimate | Missing:
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
    return stats.geometric_mean_ratio({name: [math.exp(fmean(seen))] for name, seen in apart.items()}, level, seed)


def _without(arm: Arm, knob: str) -> Setting:
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
