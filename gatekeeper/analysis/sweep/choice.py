"""The choice of a sweep: which setting a workload gets, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.lost_pairs import MAX_LOST_SHARE
from gatekeeper.analysis.plan.ladder import shorter_draft
from gatekeeper.analysis.plan.objectives import least_ratio
from gatekeeper.analysis.plan.settings import PLAIN, concurrency_of, defaults, setting_document
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.sweep.setting_result import SettingResult, interval_document, measure_of
from gatekeeper.analysis.sweep.sweep_answers import SweepAnswers
from gatekeeper.core.metrics import SYSTEM_RATIO
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import CHOSEN, DRAFT_LENGTHS, Slo
from gatekeeper.core.text import knob_name
from gatekeeper.core.units import show_ratio, show_times
from gatekeeper.core.verdict import Estimate, Finding, Missing, figures, known


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting to soak."""

    setting: Setting
    because: str
    results: tuple[SettingResult, ...] = ()
    """Of every candidate setting, the default one first."""
    by_streams: tuple[tuple[int, Estimate | Missing], ...] = ()
    """The throughput of all streams over plain decoding's, by concurrency, where several were swept."""
    longer: Setting | None = None
    """The fastest longer draft that may be faster, to soak after this one where that is too slow."""
    doubt: str | None = None
    """Why the sweep could not compare with plain decoding, so that plain decoding is not proven the better choice."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of the sweep, each once."""
        return tuple(dict.fromkeys(finding for result in self.results for finding in result.findings))

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "setting": setting_document(self.setting),
            "because": self.because,
            "null": interval_document(self.results[0].noise) if self.results else None,
            "settings": [result.document() for result in self.results],
            **known(
                by_concurrency=[
                    {"concurrency": streams, **figures("ratio", ratio)} for streams, ratio in self.by_streams
                ]
                or None,
            ),
        }


def choose(slo: Slo, results: Sequence[SettingResult], workload: str, *, required: bool = False) -> Choice:
    """Choose, knob by knob, the fastest setting, or a shorter one that keeps the bound; plain decoding if none gains.

    Where speculation is *required* of this workload, plain decoding only if no setting can reach what it must.
    """
    if not results:
        return Choice(PLAIN, "no draft is configured: plain decoding")
    default = results[0]
    usual = [result for result in results if result.conditions == default.conditions and not result.proposes_nothing]
    measured = [result for result in usual if isinstance(result.ratio, Estimate)]
    if not measured:
        return _inconclusive(slo, results, usual, must_draft=required)
    best, pick = _best_and_shortest(slo, measured, workload)
    winner, reason = pick.chosen, _speed(pick)
    if pick is not best:
        reason += f", shorter and within noise of the fastest, {_speed(best)}"
    if slo.sweep.design == "one-at-a-time":
        winner, combined = _combine(slo, measured, default, pick, workload)
        reason += combined
    beats = [result for result in _not_abandoned(measured) if result.beats_plain]
    open_ones = _not_ruled_out(slo, workload, usual) if required and not beats else []
    if not beats and not open_ones:
        because = f"no draft setting is faster than plain decoding: best {_best_ratio(best)}"
        return Choice(PLAIN, because + _stopped(usual), tuple(results))
    if not beats:
        if pick not in open_ones:
            pick = max(open_ones, key=lambda result: result.center)
            winner, reason = pick.chosen, _speed(pick)
        reason += "; no gain shows, none is ruled out, so the soak decides"
    elif pick not in beats:
        pick = max(beats, key=lambda result: result.center)
        winner, reason = pick.chosen, f"{_speed(pick)}, the fastest that beats plain decoding beyond noise"
    if slo.sweep.prefer == "energy" and beats:
        winner, reason = _fewest_joules(slo, beats, workload) or (winner, f"{reason}; {_unweighed(beats)}")
    return Choice(winner, reason + _stopped(usual), tuple(results), longer=_longer(slo, usual, winner))


def _inconclusive(
    slo: Slo, results: Sequence[SettingResult], drafting: Sequence[SettingResult], *, must_draft: bool
) -> Choice:
    """Choose where no setting has a ratio, because none was measured, or none proposed a token."""
    default = (drafting or results)[0]
    if not drafting:
        because = "the draft proposed no tokens in any answer, so this is plain decoding whatever the setting"
        return Choice(PLAIN, ": ".join(filter(None, (because, default.findings[-1].advice))), tuple(results))
    because = default.ratio.because if isinstance(default.ratio, Missing) else "no setting was measured"
    voided = any(measure_of(slo, default.trial) in finding.voids for finding in default.findings)
    doubt = because if voided else None
    if must_draft and not voided:
        because = f"the sweep is inconclusive: {because}; the soak decides"
        return Choice(default.chosen, because, tuple(results))
    return Choice(PLAIN, f"the sweep is inconclusive: {because}", tuple(results), doubt=doubt)


def _not_ruled_out(slo: Slo, workload: str, results: Sequence[SettingResult]) -> list[SettingResult]:
    """Return the settings that are not proven too slow: below plain decoding, or below the workload's bound.

    A process that still warms up is slower than it will be: a setting must stay too slow if it becomes as much faster
    as that may make it.
    """

    def too_slow(result: SettingResult) -> bool:
        floor = least_ratio(slo, workload, result.measure) / result.may_gain
        proven = result.ratio.hi < floor if isinstance(result.ratio, Estimate) else False
        return proven or result.slower_than_another or sequential.decide(result.throughout, floor) == "fail"

    return [result for result in results if not too_slow(result)]


def _longer(slo: Slo, results: Sequence[SettingResult], pick: Setting) -> Setting | None:
    """Return the fastest draft that is not proven slower and from which `shrink-draft` leads to the *pick*."""

    def leads_to_pick(knobs: Setting | None) -> bool:
        return knobs is not None and (knobs == pick or leads_to_pick(shorter_draft(slo, knobs)))

    kept = [result for result in results if not result.abandoned]
    longer = [result for result in kept if leads_to_pick(shorter_draft(slo, result.chosen))]
    if not longer or "shrink-draft" not in slo.fallback.ladder:
        return None
    return max(longer, key=lambda result: result.center).chosen


def _stopped(results: Sequence[SettingResult]) -> str:
    """Describe how many settings were stopped early; each one's document has the reason."""
    early = sum(result.stop is not None for result in results)
    return f"; {early} of {len(results)} settings were stopped early" if early else ""


def _combine(
    slo: Slo,
    measured: Sequence[SettingResult],
    default: SettingResult,
    pick: SettingResult,
    workload: str,
) -> tuple[Setting, str]:
    """Combine the best value of each knob; the soak tests the combination."""
    knobs, swept = dict(default.chosen), []
    for knob in CHOSEN:
        along = [result for result in measured if result is default or result.trial.changed == knob]
        if len(along) < 2:
            continue
        _, shortest = _best_and_shortest(slo, along, workload)
        knobs[knob] = dict(shortest.chosen)[knob]
        swept.append(knob)
    combined = setting(**knobs)
    if combined == pick.chosen or len(swept) < 2:
        return pick.chosen, ""
    best_of = " and ".join(knob_name(knob) for knob in swept)
    return combined, f"; the best values of {best_of} are combined, and the soak tests the combination"


def _best_and_shortest(
    slo: Slo, results: Sequence[SettingResult], workload: str
) -> tuple[SettingResult, SettingResult]:
    """Return the fastest setting, and the shortest and lightest one within noise of it that keeps its bound.

    Where none is proven to keep it that is the fastest one: within noise of it is no proof of being as fast.
    """
    candidates = _not_abandoned(results)
    best = max(candidates, key=lambda result: result.center)

    within = [result for result in candidates if result is best or _within_noise(result, best, slo.confidence)]
    proven = [result for result in within if _keeps_bound(slo, workload, result)] or [best]
    return best, min(proven, key=lambda result: _cost(slo, result))


def _keeps_bound(slo: Slo, workload: str, result: SettingResult) -> bool:
    least = least_ratio(slo, workload, result.measure)
    return isinstance(result.ratio, Estimate) and result.ratio.lo >= least


def _fewest_joules(slo: Slo, results: Sequence[SettingResult], workload: str) -> tuple[Setting, str] | None:
    """Return the setting with the fewest joules a token of those that keep their bound; None where none was weighed."""
    weighed = [
        (result.energy.center, result)
        for result in results
        if isinstance(result.energy, Estimate) and _keeps_bound(slo, workload, result)
    ]
    if not weighed:
        return None
    joules, fewest = min(weighed, key=lambda pair: pair[0])
    reason = f"{_name(fewest)}: the fewest joules a token, {joules:.2f} times plain decoding's"
    return fewest.chosen, f"{reason}, of {len(weighed)} settings that keep their bound; {_ratio(fewest)}"


def _unweighed(results: Sequence[SettingResult]) -> str:
    """Say why the setting with the fewest joules is not known."""
    reasons = (result.energy.because for result in results if isinstance(result.energy, Missing))
    return f"by speed, as the energy is not known: {next(reasons, 'no setting is proven to keep its bound')}"


def _not_abandoned(results: Sequence[SettingResult]) -> Sequence[SettingResult]:
    return [result for result in results if not result.abandoned] or results


def _within_noise(result: SettingResult, best: SettingResult, level: float) -> bool:
    """Return whether *best* is not proven faster than *result* on the canaries they share."""
    apart = best.over(result, level)
    return isinstance(apart, Missing) or apart.lo <= 1


def _cost(slo: Slo, result: SettingResult) -> tuple[Any, ...]:
    """Order settings from short and light to long and heavy."""
    knobs = dict(result.chosen)
    lengths = tuple(knobs.get(knob) or 0 for knob in DRAFT_LENGTHS)
    drafts = slo.subject.drafts
    weight = -drafts.index(knobs["draft"]) if knobs.get("draft") in drafts else 0
    return (*lengths, weight, knobs.get("window") or 0)


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
            pairs = replace(sweep.paired(trial), greedy=False, lost_limit=MAX_LOST_SHARE)
            ratios[concurrency_of(sweep.slo, trial.setting)] = estimate(SYSTEM_RATIO, pairs)
    return tuple(sorted(ratios.items()))


def _name(result: SettingResult) -> str:
    knobs = [f"{knob_name(knob)} {value}" for knob, value in result.chosen if knob != "draft"]
    return ", ".join(knobs) or result.trial.name


def _speed(result: SettingResult) -> str:
    return f"{_name(result)}: {_ratio(result)}"


def _best_ratio(result: SettingResult) -> str:
    """Write a ratio and, where it is known, what plain decoding reads against itself, which is noise."""
    noise = result.noise
    if not isinstance(noise, Estimate) or not isinstance(result.ratio, Estimate):
        return _ratio(result)
    return f"{show_times(result.ratio.center)} (noise {show_ratio(noise.center, noise.lo, noise.hi)})"


def _ratio(result: SettingResult) -> str:
    if isinstance(result.ratio, Missing):
        return "not measured"
    return show_ratio(result.ratio.center, result.ratio.lo, result.ratio.hi)
