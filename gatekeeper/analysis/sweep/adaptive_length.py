"""Adaptive draft lengths: a server that chooses the length by itself, against the best fixed one and plain decoding.

Such a setting carries a risk that a fixed one does not: what it does depends on the load, and vllm#49548 shows one that
is as fast as it should be for one stream and falls to a tenth where the load crosses its threshold. So it is taken only
where it is proven faster than the best fixed length, or as fast and slower than plain decoding at no load that was
measured, where the fixed one is; and never where it is proven slower at any of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gatekeeper.analysis.plan.settings import adapts
from gatekeeper.analysis.sweep.early_stop import ALIKE
from gatekeeper.analysis.sweep.setting_result import SettingResult
from gatekeeper.core.slo import DRAFT_LENGTHS
from gatekeeper.core.text import knob_name
from gatekeeper.core.units import show_ratio
from gatekeeper.core.verdict import Estimate, Missing, figures


@dataclass(frozen=True, slots=True)
class AdaptiveResult:
    """An adaptive length compared with the best fixed one."""

    adaptive: SettingResult
    rival: SettingResult
    """The fastest fixed setting."""
    ratio: Estimate | Missing
    """Its speed over the rival's, on the same canaries."""
    taken: bool
    because: str

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "trial": self.adaptive.trial.name,
            "against": self.rival.trial.name,
            **figures("ratio", self.ratio),
            "chosen": self.taken,
            "because": self.because,
        }


def compare_adaptive(results: Sequence[SettingResult], level: float) -> tuple[AdaptiveResult, ...]:
    """Compare every adaptive setting under the default conditions with the fastest fixed one; the best first."""
    usual = [result for result in results if result.conditions == results[0].conditions]
    measured = [result for result in usual if isinstance(result.ratio, Estimate)]
    fixed = [result for result in measured if not adapts(result.chosen)]
    if not fixed:
        return ()
    rival = max(fixed, key=lambda result: result.center)
    comparisons = [_compare(result, rival, results, level) for result in measured if adapts(result.chosen)]
    return tuple(sorted(comparisons, key=lambda comparison: (not comparison.taken, -comparison.adaptive.center)))


def _compare(
    adaptive: SettingResult, rival: SettingResult, results: Sequence[SettingResult], level: float
) -> AdaptiveResult:
    ratio = adaptive.over(rival, level)
    text = f"against the best fixed one, {_length(rival)}"
    if not isinstance(ratio, Estimate):
        return AdaptiveResult(adaptive, rival, ratio, taken=False, because=f"not compared {text}: {ratio.because}")
    text = f"{show_ratio(ratio.center, ratio.lo, ratio.hi)} {text}"
    if (worse := _collapse(adaptive, results, level)) is not None:
        taken, reason = False, worse
    elif not adaptive.beats_plain:
        taken, reason = False, "no gain over plain decoding is proven"
    elif ratio.lo > 1:
        taken, reason = True, "proven faster"
    elif ratio.lo > 1 / (1 + ALIKE) and (safer := _safer(adaptive, rival, results)) is not None:
        taken, reason = True, f"as fast, and {safer}"
    else:
        taken, reason = False, "not proven faster, so the fixed length is the smaller risk"
    return AdaptiveResult(adaptive, rival, ratio, taken, f"{text}: {reason}")


def _collapse(adaptive: SettingResult, results: Sequence[SettingResult], level: float) -> str | None:
    """Return where it is proven slower than plain decoding, or than a fixed length; None where it is nowhere."""
    for there in _elsewhere(adaptive, results):
        where = _conditions(there)
        if isinstance(there.ratio, Estimate) and there.ratio.hi < 1:
            return f"at {where} it is {there.ratio.center:.2f}x plain decoding"
        for rival in results:
            if rival.conditions != there.conditions or adapts(rival.chosen):
                continue
            apart = there.over(rival, level)
            if isinstance(apart, Estimate) and apart.hi < 1 / (1 + ALIKE):
                return f"at {where} it is {apart.center:.2f}x {_length(rival)}"
    return None


def _safer(adaptive: SettingResult, rival: SettingResult, results: Sequence[SettingResult]) -> str | None:
    """Return where the fixed length is proven slower than plain decoding and this one is proven not to be."""
    ratio_by_conditions = {there.conditions: there.ratio for there in _elsewhere(adaptive, results)}
    for there in _elsewhere(rival, results):
        ratio = ratio_by_conditions.get(there.conditions)
        slower = isinstance(there.ratio, Estimate) and there.ratio.hi < 1
        if slower and isinstance(ratio, Estimate) and ratio.lo > 1 / (1 + ALIKE):
            return f"at {_conditions(there)} only the fixed length is slower than plain decoding"
    return None


def _length(result: SettingResult) -> str:
    lengths = [f"{knob_name(knob)} {value}" for knob, value in result.chosen if knob in DRAFT_LENGTHS]
    return ", ".join(lengths) or result.trial.name


def _conditions(result: SettingResult) -> str:
    return ", ".join(f"{knob_name(knob)} {value}" for knob, value in result.conditions)


def _elsewhere(result: SettingResult, results: Sequence[SettingResult]) -> list[SettingResult]:
    """Return the results of the same setting under other conditions."""
    return [there for there in results if there is not result and there.chosen == result.chosen]
