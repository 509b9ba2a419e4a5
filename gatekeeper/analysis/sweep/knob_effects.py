"""The explanation of a choice: the cost model of each setting, the effect of each knob and of concurrency."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import MAX_LOST_SHARE, burst_gap
from gatekeeper.analysis.plan.settings import concurrency_of, defaults
from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.sweep import cost_model
from gatekeeper.analysis.sweep.adaptive_length import adapts
from gatekeeper.analysis.sweep.choice import Choice, SettingResult
from gatekeeper.analysis.sweep.sweep_answers import SweepAnswers
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import CHOSEN, CONDITIONS
from gatekeeper.core.verdict import Estimate, Missing, figures, rounded

RELEVANT = 0.05
"""A smaller effect changes no decision; only an interval inside it means "no measurable effect"."""


def with_explanations(sweep: SweepAnswers, choice: Choice) -> Choice:
    """Return the choice with the explanations that the sweep's answers give."""
    if not choice.seen:
        return choice
    return replace(
        choice,
        models=_models(sweep, choice.seen),
        effects=tuple(main_effects(choice.seen, sweep.slo.confidence)),
        concurrency=_concurrency(sweep, choice.setting),
    )


def _models(sweep: SweepAnswers, seen: Sequence[SettingResult]) -> dict[str, dict[str, Any]]:
    """Explain each setting against the plain decoding under the same conditions."""
    out: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[SettingResult]] = {}
    for one in seen:
        groups.setdefault(one.trial.baseline, []).append(one)
    for baseline, group in groups.items():
        if concurrency_of(sweep.slo, group[0].trial.setting) > 1:
            why = "concurrent answers share the machine, so the time of a round is not its cost"
            out |= {one.trial.name: {"because": why} for one in group}
            continue
        plain = sweep.of(baseline)
        together = burst_gap(plain)
        settings = {
            one.trial.name: cost_model.measure_rounds(one.trial.setting, sweep.of(one.trial.name), together)
            for one in group
        }
        ratios = {
            one.trial.name: one.ratio.center
            for one in group
            if isinstance(one.ratio, Estimate) and one.measure == "throughput_ratio"
        }
        out |= cost_model.explanations(settings, cost_model.plain_seconds(plain), ratios)
    return out


def main_effects(seen: Sequence[SettingResult], level: float) -> list[dict[str, Any]]:
    """Return every swept knob with the effects of its values against the default, the largest first.

    Each value is compared on the same canaries, averaged over the settings of the other knobs. The allowed error is
    split over a knob's values. Concurrency is left out: above one stream another measure counts. The first of *seen* is
    the default setting.
    """
    found = []
    known = [one for one in seen if isinstance(one.ratio, Estimate)]
    for knob in (*CHOSEN, *CONDITIONS):
        base = dict(seen[0].trial.setting).get(knob)
        values = dict.fromkeys(dict(one.trial.setting).get(knob) for one in known)
        others = [value for value in values if value != base]
        if knob != "concurrency" and others:
            each = 1 - (1 - level) / len(others)
            found.append(_document(knob, base, {value: _effect(known, knob, base, value, each) for value in others}))
    return sorted(found, key=lambda one: -one["size"] if one["size"] is not None else 1.0)


def _effect(seen: Sequence[SettingResult], knob: str, base: Any, value: Any, level: float) -> Estimate | Missing:
    """Compare two values of a knob, over pairs of settings that differ only in it."""

    def rest(one: SettingResult) -> Setting:
        return tuple((name, value) for name, value in one.trial.setting if name != knob)

    at_base = {rest(one): one for one in seen if dict(one.trial.setting).get(knob) == base}
    apart: dict[str, list[float]] = defaultdict(list)
    for one in seen:
        other = at_base.get(rest(one))
        if dict(one.trial.setting).get(knob) == value and other is not None and other.measure == one.measure:
            for canary in sorted(one.logs.keys() & other.logs.keys()):
                apart[canary].append(one.logs[canary] - other.logs[canary])
    return intervals.geometric_mean_ratio({name: [math.exp(fmean(logs))] for name, logs in apart.items()}, level)


def _document(knob: str, base: Any, factors: Mapping[Any, Estimate | Missing]) -> dict[str, Any]:
    known = [one for one in factors.values() if isinstance(one, Estimate)]
    size = max((abs(math.log(one.center)) for one in known), default=None)
    return {
        "knob": knob,
        "default": base,
        "size": rounded(math.expm1(size)) if size is not None else None,
        "says": _effect_text(known, all_known=len(known) == len(factors)),
        "values": [{"value": value} | figures("factor", factor) for value, factor in factors.items()],
    }


def _effect_text(known: Sequence[Estimate], *, all_known: bool) -> str:
    """Return whether there is an effect, none, or whether that is not known."""
    small = all_known and all(1 - RELEVANT < one.lo and one.hi < 1 + RELEVANT for one in known)
    if any(one.lo > 1 or one.hi < 1 for one in known):
        return "a small effect" if small else "an effect"
    return "no measurable effect" if small else "not known"


def _concurrency(sweep: SweepAnswers, chosen: Setting) -> dict[str, Any]:
    """Compare the system's speed at every concurrency that was swept, at the default of every other knob."""
    if len(sweep.slo.sweep.concurrency) < 2:
        return {}
    rest = {knob: value for knob, value in defaults(sweep.slo).items() if knob != "concurrency"}
    if adapts(chosen):  # its speed at other loads is not that of a fixed length
        rest |= dict(chosen)
    ratios: dict[int, Estimate | Missing] = {}
    for trial in sweep.plan.candidates:
        knobs = dict(trial.setting)
        if all(knobs.get(knob) == value for knob, value in rest.items()):
            pairs = replace(sweep.paired(trial), greedy=False, lost_limit=MAX_LOST_SHARE)
            ratios[concurrency_of(sweep.slo, trial.setting)] = estimate("system_throughput_ratio", pairs)
    return concurrency_effect(ratios)


def concurrency_effect(ratios: Mapping[int, Estimate | Missing]) -> dict[str, Any]:
    """Return the system's ratio by number of streams, and between which of them the faster arm provably changes."""
    ordered = sorted(ratios.items())
    sure = [(streams, sign) for streams, ratio in ordered if (sign := _sign(ratio))]
    turns = [[before, after] for (before, was), (after, now) in pairwise(sure) if was != now]
    return {
        "measure": "system_throughput_ratio",
        "by_concurrency": [{"concurrency": streams, **figures("ratio", ratio)} for streams, ratio in ordered],
        "turns": turns,
        "says": _turns_text(sure, turns, len(ordered)),
    }


def _sign(ratio: Estimate | Missing) -> int:
    return (ratio.lo > 1) - (ratio.hi < 1) if isinstance(ratio, Estimate) else 0


def _turns_text(sure: list[tuple[int, int]], turns: list[list[int]], seen: int) -> str:
    words = {1: "speculation is faster", -1: "plain decoding is faster"}
    if turns:
        first = dict(sure)[turns[0][0]]
        return f"{words[first]} at concurrency {turns[0][0]}, {words[-first]} at {turns[0][1]}"
    if not sure:
        return "no difference is proven at any concurrency"
    where = ", ".join(str(streams) for streams, _ in sure)
    rest = "" if len(sure) == seen else "; undecided at the others"
    return f"{words[sure[0][1]]} at concurrency {where}{rest}"
