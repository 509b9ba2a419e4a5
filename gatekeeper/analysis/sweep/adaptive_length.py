"""Adaptive draft lengths: a server that chooses the length by itself, against the best fixed one and plain decoding.

Such a setting carries a risk that a fixed one does not: what it does depends on the load, and vllm#49548 shows one that
is as fast as it should be for one stream and falls to a tenth where the load crosses its threshold. So it is taken only
where it is proven faster than the best fixed length, or as fast and slower than plain decoding at no load that was
measured, where the fixed one is; and never where it is proven slower at any of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gatekeeper.analysis.plan.settings import chosen_of, conditions_of
from gatekeeper.analysis.stats import intervals
from gatekeeper.analysis.sweep.early_stop import ALIKE
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import ADAPTIVE, DRAFT_LENGTHS
from gatekeeper.core.text import knob_name
from gatekeeper.core.units import show_ratio
from gatekeeper.core.verdict import Estimate, Missing, figures

if TYPE_CHECKING:
    from gatekeeper.analysis.sweep.choice import SettingResult


def adapts(setting: Setting) -> bool:
    """Return whether the length of a draft is not fixed: the server chooses it, or ends a draft that is unsure."""
    turned = dict(setting)
    return any(turned.get(knob) == ADAPTIVE for knob in DRAFT_LENGTHS) or (turned.get("draft_p_min") or 0) > 0


@dataclass(frozen=True, slots=True)
class AdaptiveResult:
    """An adaptive length compared with the best fixed one."""

    one: "SettingResult"
    rival: "SettingResult"
    """The fastest fixed setting."""
    ratio: Estimate | Missing
    """Its speed over the rival's, on the same canaries."""
    taken: bool
    because: str

    def document(self) -> dict[str, Any]:
        """Return it as verdict.json writes it."""
        names = {"trial": self.one.trial.name, "against": self.rival.trial.name}
        found = {**names, **figures("ratio", self.ratio), "chosen": self.taken}
        return found | {"because": self.because}


def compare_adaptive(seen: Sequence["SettingResult"], level: float) -> tuple[AdaptiveResult, ...]:
    """Compare every adaptive setting under the default conditions with the fastest fixed one; the best first."""
    usual = [one for one in seen if conditions_of(one.trial.setting) == conditions_of(seen[0].trial.setting)]
    known = [one for one in usual if isinstance(one.ratio, Estimate)]
    fixed = [one for one in known if not adapts(one.trial.setting)]
    if not fixed:
        return ()
    rival = max(fixed, key=_center)
    found = [_compare(one, rival, seen, level) for one in known if adapts(one.trial.setting)]
    return tuple(sorted(found, key=lambda one: (not one.taken, -_center(one.one))))


def _compare(
    one: "SettingResult", rival: "SettingResult", seen: Sequence["SettingResult"], level: float
) -> AdaptiveResult:
    ratio = _over(one, rival, level)
    told = f"against the best fixed one, {_length(rival)}"
    if not isinstance(ratio, Estimate):
        return AdaptiveResult(one, rival, ratio, taken=False, because=f"not compared {told}: {ratio.because}")
    told = f"{show_ratio(ratio.center, ratio.lo, ratio.hi)} {told}"
    if (worse := _collapse(one, seen, level)) is not None:
        taken, why = False, worse
    elif not one.beats_plain:
        taken, why = False, "no gain over plain decoding is proven"
    elif ratio.lo > 1:
        taken, why = True, "proven faster"
    elif ratio.lo > 1 / (1 + ALIKE) and (safer := _safer(one, rival, seen)) is not None:
        taken, why = True, f"as fast, and {safer}"
    else:
        taken, why = False, "not proven faster, so the fixed length is the smaller risk"
    return AdaptiveResult(one, rival, ratio, taken, f"{told}: {why}")


def _collapse(one: "SettingResult", seen: Sequence["SettingResult"], level: float) -> str | None:
    """Return where it is proven slower than plain decoding, or than a fixed length; None where it is nowhere."""
    for there in _elsewhere(one, seen):
        where = _conditions(there)
        if isinstance(there.ratio, Estimate) and there.ratio.hi < 1:
            return f"at {where} it is {there.ratio.center:.2f}x plain decoding"
        for rival in _same_conditions(there, seen):
            apart = _over(there, rival, level)
            if isinstance(apart, Estimate) and apart.hi < 1 / (1 + ALIKE):
                return f"at {where} it is {apart.center:.2f}x {_length(rival)}"
    return None


def _safer(one: "SettingResult", rival: "SettingResult", seen: Sequence["SettingResult"]) -> str | None:
    """Return where the fixed length is proven slower than plain decoding and this one is proven not to be."""
    mine = {conditions_of(there.trial.setting): there.ratio for there in _elsewhere(one, seen)}
    for there in _elsewhere(rival, seen):
        adaptive = mine.get(conditions_of(there.trial.setting))
        slower = isinstance(there.ratio, Estimate) and there.ratio.hi < 1
        if slower and isinstance(adaptive, Estimate) and adaptive.lo > 1 / (1 + ALIKE):
            return f"at {_conditions(there)} only the fixed length is slower than plain decoding"
    return None


def _length(one: "SettingResult") -> str:
    named = [f"{knob_name(knob)} {value}" for knob, value in one.trial.setting if knob in DRAFT_LENGTHS]
    return ", ".join(named) or one.trial.name


def _conditions(one: "SettingResult") -> str:
    return ", ".join(f"{knob_name(knob)} {value}" for knob, value in conditions_of(one.trial.setting))


def _elsewhere(one: "SettingResult", seen: Iterable["SettingResult"]) -> list["SettingResult"]:
    """Return the results of the same setting under other conditions."""
    mine = chosen_of(one.trial.setting)
    return [other for other in seen if other is not one and chosen_of(other.trial.setting) == mine]


def _same_conditions(one: "SettingResult", seen: Iterable["SettingResult"]) -> list["SettingResult"]:
    """Return the fixed lengths measured under the conditions of *one*."""
    here = conditions_of(one.trial.setting)
    return [two for two in seen if conditions_of(two.trial.setting) == here and not adapts(two.trial.setting)]


def _over(one: "SettingResult", rival: "SettingResult", level: float) -> Estimate | Missing:
    shared = one.logs.keys() & rival.logs.keys()
    return intervals.geometric_mean_ratio(
        {name: [math.exp(one.logs[name] - rival.logs[name])] for name in sorted(shared)}, level
    )


def _center(one: "SettingResult") -> float:
    return one.ratio.center if isinstance(one.ratio, Estimate) else 0.0
