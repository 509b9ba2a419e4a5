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
    if not choice.results:
        return choice
    return replace(
        choice,
        models=_models(sweep, choice.results),
        effects=tuple(main_effects(choice.results, sweep.slo.confidence)),
        concurrency=_concurrency(sweep, choice.setting),
    )


def _models(sweep: SweepAnswers, results: Sequence[SettingResult]) -> dict[str, dict[str, Any]]:
    """Explain each setting against the plain decoding under the same conditions."""
    out: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[SettingResult]] = {}
    for result in results:
        groups.setdefault(result.trial.baseline, []).append(result)
    for baseline, group in groups.items():
        if concurrency_of(sweep.slo, group[0].trial.setting) > 1:
            why = "concurrent answers share the machine, so the time of a round is not its cost"
            out |= {result.trial.name: {"because": why} for result in group}
            continue
        plain = sweep.of(baseline)
        together = burst_gap(plain)
        settings = {
            result.trial.name: cost_model.measure_rounds(result.trial.setting, sweep.of(result.trial.name), together)
            for result in group
        }
        ratios = {
            result.trial.name: result.ratio.center
            for result in group
            if isinstance(result.ratio, Estimate) and result.measure == "throughput_ratio"
        }
        out |= cost_model.explanations(settings, cost_model.plain_seconds(plain), ratios)
    return out


def main_effects(results: Sequence[SettingResult], level: float) -> list[dict[str, Any]]:
    """Return every swept knob with the effects of its values against the default, the largest first.

    Each value is compared on the same canaries, averaged over the settings of the other knobs. The allowed error is
    split over a knob's values. Concurrency is left out: above one stream another measure counts. The first of *results*
    is the default setting.
    """
    effects = []
    measured = [result for result in results if isinstance(result.ratio, Estimate)]
    for knob in (*CHOSEN, *CONDITIONS):
        base = dict(results[0].trial.setting).get(knob)
        values = dict.fromkeys(dict(result.trial.setting).get(knob) for result in measured)
        alternatives = [value for value in values if value != base]
        if knob != "concurrency" and alternatives:
            each = 1 - (1 - level) / len(alternatives)
            effects.append(
                _document(knob, base, {value: _effect(measured, knob, base, value, each) for value in alternatives})
            )
    return sorted(effects, key=lambda effect: -effect["size"] if effect["size"] is not None else 1.0)


def _effect(results: Sequence[SettingResult], knob: str, base: Any, value: Any, level: float) -> Estimate | Missing:
    """Compare two values of a knob, over pairs of settings that differ only in it."""

    def rest(result: SettingResult) -> Setting:
        return tuple((name, value) for name, value in result.trial.setting if name != knob)

    at_base = {rest(result): result for result in results if dict(result.trial.setting).get(knob) == base}
    apart: dict[str, list[float]] = defaultdict(list)
    for result in results:
        base_result = at_base.get(rest(result))
        if (
            dict(result.trial.setting).get(knob) == value
            and base_result is not None
            and base_result.measure == result.measure
        ):
            for canary in sorted(result.logs.keys() & base_result.logs.keys()):
                apart[canary].append(result.logs[canary] - base_result.logs[canary])
    return intervals.geometric_mean_ratio({name: [math.exp(fmean(logs))] for name, logs in apart.items()}, level)


def _document(knob: str, base: Any, factors: Mapping[Any, Estimate | Missing]) -> dict[str, Any]:
    measured = [factor for factor in factors.values() if isinstance(factor, Estimate)]
    size = max((abs(math.log(factor.center)) for factor in measured), default=None)
    return {
        "knob": knob,
        "default": base,
        "size": rounded(math.expm1(size)) if size is not None else None,
        "says": _effect_text(measured, all_known=len(measured) == len(factors)),
        "values": [{"value": value} | figures("factor", factor) for value, factor in factors.items()],
    }


def _effect_text(factors: Sequence[Estimate], *, all_known: bool) -> str:
    """Return whether there is an effect, none, or whether that is not known."""
    small = all_known and all(1 - RELEVANT < factor.lo and factor.hi < 1 + RELEVANT for factor in factors)
    if any(factor.lo > 1 or factor.hi < 1 for factor in factors):
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


def _turns_text(sure: list[tuple[int, int]], turns: list[list[int]], count: int) -> str:
    words = {1: "speculation is faster", -1: "plain decoding is faster"}
    if turns:
        first = dict(sure)[turns[0][0]]
        return f"{words[first]} at concurrency {turns[0][0]}, {words[-first]} at {turns[0][1]}"
    if not sure:
        return "no difference is proven at any concurrency"
    where = ", ".join(str(streams) for streams, _ in sure)
    rest = "" if len(sure) == count else "; undecided at the others"
    return f"{words[sure[0][1]]} at concurrency {where}{rest}"
