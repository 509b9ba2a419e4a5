"""What each knob of a sweep does to the speed, and what concurrency changes."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.lost_pairs import MAX_LOST_SHARE
from gatekeeper.analysis.plan.settings import adapts, concurrency_of, defaults
from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.sweep.setting_result import SettingResult
from gatekeeper.analysis.sweep.sweep_answers import SweepAnswers
from gatekeeper.core.metrics import SYSTEM_RATIO
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import CHOSEN, CONDITIONS
from gatekeeper.core.verdict import Estimate, Missing, figures, rounded

RELEVANT = 0.05
"""A smaller effect changes no decision; only an interval inside it means "no measurable effect"."""


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """What the values of one knob do to the speed, each against the default value."""

    knob: str
    default: Any
    values: tuple[tuple[Any, Estimate | Missing], ...]
    """Each other value, and how many times as fast it is."""

    @property
    def measured(self) -> list[tuple[Any, Estimate]]:
        """Return the values that could be compared."""
        return [(value, factor) for value, factor in self.values if isinstance(factor, Estimate)]

    @property
    def size(self) -> float | None:
        """Return by which share the value with the largest effect changes the speed; None where none is known."""
        largest = max((abs(math.log(factor.center)) for _, factor in self.measured), default=None)
        return rounded(math.expm1(largest)) if largest is not None else None

    @property
    def says(self) -> str:
        """Return whether there is an effect, none, or whether that is not known."""
        factors = [factor for _, factor in self.measured]
        all_known = len(factors) == len(self.values)
        small = all_known and all(1 - RELEVANT < factor.lo and factor.hi < 1 + RELEVANT for factor in factors)
        if any(factor.lo > 1 or factor.hi < 1 for factor in factors):
            return "a small effect" if small else "an effect"
        return "no measurable effect" if small else "not known"

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "knob": self.knob,
            "default": self.default,
            "size": self.size,
            "says": self.says,
            "values": [{"value": value} | figures("factor", factor) for value, factor in self.values],
        }


@dataclass(frozen=True, slots=True)
class ConcurrencyEffect:
    """The speed of the whole system at each number of streams."""

    by_streams: tuple[tuple[int, Estimate | Missing], ...]
    """The ratio to plain decoding, the fewest streams first."""

    @property
    def proven(self) -> list[tuple[int, int]]:
        """Return the numbers of streams at which one arm is proven faster, with the sign of its gain."""
        return [(streams, sign) for streams, ratio in self.by_streams if (sign := _sign(ratio))]

    @property
    def turns(self) -> list[list[int]]:
        """Return between which numbers of streams the faster arm provably changes."""
        return [[before, after] for (before, was), (after, now) in pairwise(self.proven) if was != now]

    @property
    def says(self) -> str:
        """Say which arm is faster at which concurrency."""
        words = {1: "speculation is faster", -1: "plain decoding is faster"}
        proven, turns = self.proven, self.turns
        if turns:
            first = dict(proven)[turns[0][0]]
            return f"{words[first]} at concurrency {turns[0][0]}, {words[-first]} at {turns[0][1]}"
        if not proven:
            return "no difference is proven at any concurrency"
        where = ", ".join(str(streams) for streams, _ in proven)
        rest = "" if len(proven) == len(self.by_streams) else "; undecided at the others"
        return f"{words[proven[0][1]]} at concurrency {where}{rest}"

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "measure": SYSTEM_RATIO,
            "by_concurrency": [
                {"concurrency": streams, **figures("ratio", ratio)} for streams, ratio in self.by_streams
            ],
            "turns": self.turns,
            "says": self.says,
        }


def main_effects(results: Sequence[SettingResult], level: float) -> tuple[KnobEffect, ...]:
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
            split_level = 1 - (1 - level) / len(alternatives)
            factors = ((value, _effect(measured, knob, base, value, split_level)) for value in alternatives)
            effects.append(KnobEffect(knob, base, tuple(factors)))
    return tuple(sorted(effects, key=lambda effect: -effect.size if effect.size is not None else 1.0))


def _effect(results: Sequence[SettingResult], knob: str, base: Any, value: Any, level: float) -> Estimate | Missing:
    """Compare two values of a knob, over pairs of settings that differ only in it."""

    def rest(result: SettingResult) -> Setting:
        return tuple((name, value) for name, value in result.trial.setting if name != knob)

    at_base = {rest(result): result for result in results if dict(result.trial.setting).get(knob) == base}
    apart: dict[str, list[float]] = defaultdict(list)
    for result in (result for result in results if dict(result.trial.setting).get(knob) == value):
        base_result = at_base.get(rest(result))
        if base_result is not None and base_result.measure == result.measure:
            for canary in sorted(result.logs.keys() & base_result.logs.keys()):
                apart[canary].append(result.logs[canary] - base_result.logs[canary])
    return intervals.mean_log([fmean(apart[canary]) for canary in sorted(apart)], level)


def concurrency_effect(sweep: SweepAnswers, chosen: Setting) -> ConcurrencyEffect | None:
    """Compare the system's speed at every concurrency that was swept, at the default of every other knob."""
    if len(sweep.slo.sweep.concurrency) < 2:
        return None
    rest = {knob: value for knob, value in defaults(sweep.slo).items() if knob != "concurrency"}
    if adapts(chosen):  # its speed at other loads is not that of a fixed length
        rest |= dict(chosen)
    ratios: dict[int, Estimate | Missing] = {}
    for trial in sweep.plan.candidates:
        knobs = dict(trial.setting)
        if all(knobs.get(knob) == value for knob, value in rest.items()):
            pairs = replace(sweep.paired(trial), greedy=False, lost_limit=MAX_LOST_SHARE)
            ratios[concurrency_of(sweep.slo, trial.setting)] = estimate(SYSTEM_RATIO, pairs)
    return ConcurrencyEffect(tuple(sorted(ratios.items())))


def _sign(ratio: Estimate | Missing) -> int:
    return (ratio.lo > 1) - (ratio.hi < 1) if isinstance(ratio, Estimate) else 0
