"""The choice of a sweep: which setting a workload gets, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, PlainSerializer

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.lost_pairs import MAX_LOST_SHARE
from gatekeeper.analysis.plan.objectives import least_ratio
from gatekeeper.analysis.plan.settings import PLAIN, concurrency_of, defaults, setting_document
from gatekeeper.analysis.sweep.setting_result import SettingResult, measure_of
from gatekeeper.analysis.sweep.sweep_answers import SweepAnswers
from gatekeeper.core.document import IF_ANY, UNWRITTEN
from gatekeeper.core.judgement import Estimate, Finding, Missing, figures
from gatekeeper.core.metrics import SYSTEM_RATIO
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import CHOSEN, Slo
from gatekeeper.core.text import knob_name
from gatekeeper.core.units import show_ratio

_BY_STREAMS = (
    Field(alias="by_concurrency"),
    PlainSerializer(lambda ratios: [{"concurrency": streams, **figures("ratio", ratio)} for streams, ratio in ratios]),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting to soak."""

    setting: Annotated[Setting, PlainSerializer(setting_document)]
    because: str
    results: Annotated[tuple[SettingResult, ...], Field(alias="settings")] = ()
    """The result of every candidate setting, the default one first."""
    by_streams: Annotated[tuple[tuple[int, Estimate | Missing], ...], IF_ANY, *_BY_STREAMS] = ()
    """The throughput of all streams over plain decoding's, by concurrency, where several were swept."""
    doubt: Annotated[str | None, UNWRITTEN] = None
    """Why the sweep could not compare with plain decoding, so that plain decoding is not proven the better choice."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of the sweep, each once."""
        return tuple(dict.fromkeys(finding for result in self.results for finding in result.findings))


def choose(slo: Slo, results: Sequence[SettingResult], workload: str, *, required: bool = False) -> Choice:
    """Choose the setting that reads fastest; plain decoding where none gains.

    Where speculation is *required* of the workload, plain decoding only if that setting is proven slower.
    """
    if not results:
        return Choice(PLAIN, "no draft is configured: plain decoding")
    default = results[0]
    usual = [result for result in results if result.conditions == default.conditions and not result.proposes_nothing]
    measured = [result for result in usual if isinstance(result.ratio, Estimate)]
    if not measured:
        return _choose_without_ratios(slo, results, usual, must_draft=required)
    # A setting that was stopped as slower has few answers, and may read faster than it is.
    in_race = [result for result in measured if result.stop is None]
    best = max(in_race or measured, key=lambda result: result.center)
    early = sum(result.stop is not None for result in usual)
    stopped = f"; {early} of {len(usual)} settings were stopped early" if early else ""
    # No interval need lie above 1 where drafting is required: the soak has the answers to prove or refute a small gain.
    gives_up = best.slower_than_plain if required else not best.beats_plain
    if gives_up:
        because = f"no draft setting is faster than plain decoding: best {_ratio(best)}"
        return Choice(PLAIN, because + stopped, tuple(results))
    winner, because = best.chosen, f"{_name(best)}: {_ratio(best)}"
    if not best.beats_plain:
        because += "; no gain is proven, so the soak decides"
    if slo.sweep.design == "one-at-a-time":
        # The best values of two knobs were never measured together: the soak does that.
        winner, combined = _combine(measured, default, best)
        because += combined
    if slo.sweep.prefer == "energy":
        # Energy decides among the settings that are fast enough only; without a figure the fastest one stays.
        winner, because = _fewest_joules(slo, measured, workload) or (
            winner,
            f"{because}; {_explain_unknown_energy(measured)}",
        )
    return Choice(winner, because + stopped, tuple(results))


def _choose_without_ratios(
    slo: Slo, results: Sequence[SettingResult], drafting: Sequence[SettingResult], *, must_draft: bool
) -> Choice:
    """Choose where no setting has a ratio, because none was measured, or none proposed a token."""
    default = (drafting or results)[0]
    if not drafting:
        because = "the draft proposed no tokens in any answer, so this is plain decoding whatever the setting"
        return Choice(PLAIN, ": ".join(filter(None, (because, default.findings[-1].advice))), tuple(results))
    because = default.ratio.because if isinstance(default.ratio, Missing) else "no setting was measured"
    # What voids a ratio in the sweep voids it in a soak too; answers that are merely too few do not.
    voided = any(measure_of(slo, default.trial) in finding.voids for finding in default.findings)
    if must_draft and not voided:
        because = f"the sweep is inconclusive: {because}; the soak decides"
        return Choice(default.chosen, because, tuple(results))
    doubt = because if voided else None
    return Choice(PLAIN, f"the sweep is inconclusive: {because}", tuple(results), doubt=doubt)


def _combine(measured: Sequence[SettingResult], default: SettingResult, best: SettingResult) -> tuple[Setting, str]:
    """Return the setting with the fastest value of each knob, and that it is a combination where it is one."""
    knobs, swept = dict(default.chosen), []
    for knob in CHOSEN:
        along = [result for result in measured if result is default or result.trial.changed == knob]
        if len(along) > 1:
            racing = [result for result in along if result.stop is None]
            knobs[knob] = dict(max(racing or along, key=lambda result: result.center).chosen)[knob]
            swept.append(knob)
    combined = setting(**knobs)
    if combined == best.chosen or len(swept) < 2:
        return best.chosen, ""
    best_of = " and ".join(knob_name(knob) for knob in swept)
    return combined, f"; the best values of {best_of} are combined, and the soak tests the combination"


def _fewest_joules(slo: Slo, results: Sequence[SettingResult], workload: str) -> tuple[Setting, str] | None:
    """Return the setting with the fewest joules a token of those that keep their bound; None where none was weighed."""
    weighed = [
        (result.energy.center, result)
        for result in results
        if isinstance(result.energy, Estimate)
        and isinstance(result.ratio, Estimate)
        and result.beats_plain
        and result.ratio.lo >= least_ratio(slo, workload, result.measure)
    ]
    if not weighed:
        return None
    joules, fewest = min(weighed, key=lambda pair: pair[0])
    reason = f"{_name(fewest)}: the fewest joules a token, {joules:.2f} times plain decoding's"
    return fewest.chosen, f"{reason}, of {len(weighed)} settings that keep their bound; {_ratio(fewest)}"


def _explain_unknown_energy(results: Sequence[SettingResult]) -> str:
    """Say why the setting with the fewest joules is not known."""
    reasons = (result.energy.because for result in results if isinstance(result.energy, Missing))
    return f"by speed, as the energy is not known: {next(reasons, 'no setting is proven to keep its bound')}"


def ratios_by_streams(sweep: SweepAnswers) -> tuple[tuple[int, Estimate | Missing], ...]:
    """Return the throughput of all streams over plain decoding's at each concurrency, the fewest streams first.

    It is that of the default setting. Empty for one concurrency.
    """
    if len(sweep.slo.sweep.concurrency) < 2:
        return ()
    compared = {knob: value for knob, value in defaults(sweep.slo).items() if knob != "concurrency"}
    ratios: dict[int, Estimate | Missing] = {}
    for trial in sweep.plan.candidates:
        if compared.items() <= dict(trial.setting).items():
            # A policy rests on it, so as few answers may be lost as in a soak.
            pairs = replace(sweep.pair_trial(trial), greedy=False, lost_limit=MAX_LOST_SHARE)
            ratios[concurrency_of(sweep.slo, trial.setting)] = estimate(SYSTEM_RATIO, pairs)
    return tuple(sorted(ratios.items()))


def _name(result: SettingResult) -> str:
    knobs = [f"{knob_name(knob)} {value}" for knob, value in result.chosen if knob != "draft"]
    return ", ".join(knobs) or result.trial.name


def _ratio(result: SettingResult) -> str:
    if isinstance(result.ratio, Missing):
        return "not measured"
    return show_ratio(result.ratio.center, result.ratio.lo, result.ratio.hi)
