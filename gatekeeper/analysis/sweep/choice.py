"""The choice of a sweep: which setting a workload gets, and why."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import fmean, median
from typing import Any

from gatekeeper.analysis.metrics.comparability import length_mismatches, unstable_plain_arm, voided_metrics
from gatekeeper.analysis.metrics.estimate import estimate, mean_ratio
from gatekeeper.analysis.metrics.paired_answers import (
    PairedAnswers,
    by_canary,
    successful,
    too_many_lost,
)
from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.timing import acceptance_rate, answer_rate, decode_rate
from gatekeeper.analysis.plan.objectives import NO_LOSS
from gatekeeper.analysis.plan.settings import PLAIN, chosen_of, concurrency_of, conditions_of, setting_document
from gatekeeper.analysis.plan.sweep_plan import BASELINE, NULL, Trial
from gatekeeper.analysis.stats import intervals, sequential
from gatekeeper.analysis.sweep.adaptive_length import AdaptiveResult, adapts, compare_adaptive
from gatekeeper.analysis.sweep.early_stop import ABANDONED, PROVEN, Stop, early_stops
from gatekeeper.analysis.sweep.sweep_answers import SweepAnswers
from gatekeeper.core.manifest import RULES
from gatekeeper.core.records import Answer, Setting
from gatekeeper.core.slo import ADAPTIVE, CHOSEN, DRAFT_LENGTHS, Slo
from gatekeeper.core.text import knob_name
from gatekeeper.core.units import show_ratio
from gatekeeper.core.verdict import Estimate, Finding, Missing, figures, rounded

NO_NULL = Missing("no null arm")
WARM_UP_GAIN, WARM_UP_S = 1.6, 600.0
"""How many times as fast as at its start a process may become, and within how many seconds: one that begins 35 % slower
does."""


@dataclass(frozen=True, slots=True)
class SettingResult:
    """What the sweep measured of one candidate setting."""

    trial: Trial
    ratio: Estimate | Missing
    measure: str
    """The ratio that it is judged by."""
    logs: Mapping[str, float]
    """Mean log ratio per canary, to compare settings on the same canaries."""
    acceptance: float | None
    claimed: bool = field(default=False, kw_only=True)
    """The acceptance is the server's claim."""
    noise: Estimate | Missing = NO_NULL
    """Plain against plain decoding, by the same measure."""
    findings: tuple[Finding, ...] = ()
    stop: Stop | None = None
    """Why sampling of this setting stopped early."""
    passed: bool = False
    """The gain is proven by the sequential interval, and is larger than the noise of the null arm."""
    throughout: Estimate | Missing | None = None
    """The sequential interval, which holds although the answers decided when to stop."""
    age_s: float = 0.0
    """How old the process was on average, in seconds."""
    rules: int = RULES
    """Version of the rules that the run is judged by."""

    @property
    def may_gain(self) -> float:
        """Return how many times as fast it may become while its process still warms up."""
        at_start = 1 / WARM_UP_GAIN
        return 1 / (at_start + (1 - at_start) * min(1.0, self.age_s / WARM_UP_S)) if self.rules > 1 else 1.0

    @property
    def abandoned(self) -> bool:
        """Return whether it is proven slower than plain decoding or another setting."""
        return self.stop is not None and self.stop.kind in ABANDONED

    @property
    def slower_than_another(self) -> bool:
        """Return whether it is proven slower than another setting."""
        return self.stop is not None and self.stop.kind == "slower-than-another"

    @property
    def beats_plain(self) -> bool:
        """Return whether the gain is larger than the noise between two plain arms.

        Here the canaries are the frozen set; the soak must prove the gain for the prompts they stand for. Without a
        null arm the interval over canaries must lie above 1.
        """
        if not isinstance(self.ratio, Estimate):
            return False
        if self.stop is not None and self.stop.kind in PROVEN:
            return self.passed
        if not isinstance(self.noise, Estimate):
            return self.ratio.lo > 1
        return self.ratio.center > max(self.noise.hi, 1 / self.noise.lo)

    def document(self) -> dict[str, Any]:
        """Return it as verdict.json writes it."""
        document: dict[str, Any] = {
            "trial": self.trial.name,
            "setting": dict(self.trial.setting),
            "changed": self.trial.changed,
            "measure": self.measure,
            **figures("ratio", self.ratio),
        }
        because = {"because": document.pop("because")} if "because" in document else {}
        document["acceptance_rate"] = rounded(self.acceptance) if self.acceptance is not None else None
        if self.claimed and self.acceptance is not None:
            document["acceptance_from"] = "claims"
        if self.stop is not None:
            because["stopped"] = self.stop.document() | {
                "throughout": _interval(self.throughout or Missing("the answers were not compared"))
            }
        return document | because


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting to soak."""

    setting: Setting
    because: str
    results: tuple[SettingResult, ...] = field(default=())
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The cost model of each setting, by trial."""
    effects: tuple[Mapping[str, Any], ...] = ()
    """The effect of each knob, the largest first."""
    concurrency: Mapping[str, Any] = field(default_factory=dict)
    """At which concurrency the faster arm changes, where concurrency was swept."""
    adaptive: tuple[AdaptiveResult, ...] = ()
    """What a draft length that the server chooses by itself gains over the best fixed one."""
    doubt: str | None = None
    """Why the sweep could not compare with plain decoding, so that plain decoding is not proven the better choice."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of the sweep, each once."""
        return tuple(dict.fromkeys(finding for result in self.results for finding in result.findings))

    def document(self) -> dict[str, Any]:
        """Return it as verdict.json writes it."""
        models = {name: {"model": model} for name, model in self.models.items()}
        return {
            "setting": setting_document(self.setting),
            "because": self.because,
            "null": _interval(self.results[0].noise) if self.results else None,
            "settings": [result.document() | models.get(result.trial.name, {}) for result in self.results],
            "effects": list(self.effects),
            **({"adaptive": [comparison.document() for comparison in self.adaptive]} if self.adaptive else {}),
        } | ({"concurrency": self.concurrency} if self.concurrency else {})


def measure_of(slo: Slo, trial: Trial) -> str:
    """Return the ratio that decides: above one stream only the system's throughput counts."""
    return "throughput_ratio" if concurrency_of(slo, trial.setting) == 1 else "system_throughput_ratio"


def setting_results(sweep: SweepAnswers) -> tuple[SettingResult, ...]:
    """Compare every candidate trial with its baseline, and plain decoding with itself."""
    null = tuple(sweep.paired(trial) for trial in sweep.plan.trials if trial.name == NULL)
    noise = cache(lambda measure: estimate(measure, null[0]) if null else NO_NULL)
    about = f"{sweep.workload}, sweep"
    early = early_stops(sweep)

    @cache
    def unstable(baseline: str) -> tuple[Finding, ...]:
        plain = (*sweep.of(baseline), *(sweep.of(NULL) if baseline == BASELINE else ()))
        return unstable_plain_arm(plain, about, sweep.plan.terms.rules)

    results = []
    for trial in sweep.plan.candidates:
        pairs, name = sweep.paired(trial), trial.name
        findings = (*unstable(trial.baseline), *length_mismatches(pairs, f"{about} of {name}"))
        result = _setting_result(sweep, trial, pairs, findings)
        results.append(
            replace(
                result,
                noise=noise(result.measure),
                stop=early.stops.get(name),
                passed=name in early.passed,
                throughout=early.against_plain.get(name),
            )
        )
    return tuple(results)


def _setting_result(
    sweep: SweepAnswers, trial: Trial, pairs: PairedAnswers, findings: tuple[Finding, ...]
) -> SettingResult:
    measure = measure_of(sweep.slo, trial)
    read: Callable[[Answer], float | None] = partial(decode_rate, together_s=pairs.burst_gap)
    ratios, lost = sweep.ratios(trial, read if measure == "throughput_ratio" else answer_rate)
    if measure == "system_throughput_ratio":
        ratio = estimate(measure, pairs)
    elif (why := too_many_lost(lost, pairs)) is None:
        ratio = mean_ratio(ratios, (), pairs)
    else:  # answers that arrive whole, such as tool calls
        measure = "answer_throughput_ratio"
        ratios, lost = sweep.ratios(trial, answer_rate)
        why = too_many_lost(lost, pairs)
        ratio = mean_ratio(ratios, (), pairs) if why is None else Missing(why, len(pairs.pairs))
    logs = {canary: fmean(map(math.log, values)) for canary, values in by_canary(ratios).items()}
    answers, claimed = counted_or_claimed(pairs.answers)
    accepted = [
        value for generation in successful(answers) if (value := acceptance_rate(generation.answer)) is not None
    ]
    if (why := voided_metrics(findings).get(measure)) is not None:
        ratio = Missing(why, len(pairs.pairs))
    rate = median(accepted) if accepted else None
    return SettingResult(
        trial,
        ratio,
        measure,
        logs,
        rate,
        claimed=claimed,
        findings=findings,
        age_s=sweep.age_s(trial),
        rules=sweep.plan.terms.rules,
    )


def choose(
    slo: Slo, results: Sequence[SettingResult], required: str | None = None, workload: str | None = None
) -> Choice:
    """Choose among the fixed settings, then an adaptive draft length in their place where it is proven better."""
    adaptive = compare_adaptive(results, slo.confidence) if results else ()
    if not adaptive:
        return _choose_fixed(slo, results, required, workload)
    fixed = [result for result in results if not adapts(result.trial.setting)]
    choice = _choose_fixed(slo, fixed, required, workload, kind="draft of one length")
    first = adaptive[0]
    setting = chosen_of(first.adaptive.trial.setting) if first.taken else choice.setting
    because = f"{_name(first.adaptive)}: {_ratio(first.adaptive)}" if first.taken else choice.because
    because += f"; {_name(first.adaptive)}: {first.because}"
    return replace(choice, setting=setting, because=because, results=tuple(results), adaptive=adaptive)


def _choose_fixed(
    slo: Slo, results: Sequence[SettingResult], required: str | None, workload: str | None, kind: str = "draft setting"
) -> Choice:
    """Choose, knob by knob, the shortest setting within noise of the best; plain decoding if none is faster.

    Where a setting keeps the bounds that *workload* has on its ratio, the shortest that does: a shorter one, within
    noise too, may miss them, and no later step is faster. Where speculation is *required* of this workload, plain
    decoding only if no setting can reach what it must.
    """
    bounds = _bounds(slo, required or workload)
    if not results:
        return Choice(PLAIN, "no draft is configured: plain decoding")
    default = results[0]
    usual = [
        result for result in results if conditions_of(result.trial.setting) == conditions_of(default.trial.setting)
    ]
    measured = [result for result in usual if isinstance(result.ratio, Estimate)]
    if not measured:
        because = default.ratio.because if isinstance(default.ratio, Missing) else "no setting was measured"
        voided = any(measure_of(slo, default.trial) in finding.voids for finding in default.findings)
        doubt = because if voided else None
        if required is not None and not voided:
            because = f"the sweep is inconclusive: {because}; the soak decides"
            return Choice(chosen_of(default.trial.setting), because, tuple(results))
        return Choice(PLAIN, f"the sweep is inconclusive: {because}", tuple(results), doubt=doubt)
    best, pick = _best_and_shortest(slo, measured, bounds)
    winner = pick.trial.setting
    why = f"{_name(pick)}: {_ratio(pick)}"
    if pick is not best:
        why += f", shorter and within noise of the fastest, {_name(best)}: {_ratio(best)}"
    if slo.sweep.design == "one-at-a-time":
        winner, combined = _combine(slo, measured, default, pick, bounds)
        why += combined
    beats = [result for result in _not_abandoned(measured) if result.beats_plain]
    if not beats and required is not None and (open_ones := _not_ruled_out(bounds, usual)):
        pick = max(open_ones, key=_center)
        because = f"{_name(pick)}: {_ratio(pick)}; no gain shows, none is ruled out, so the soak decides"
        return Choice(chosen_of(pick.trial.setting), because + _stopped(usual), tuple(results))
    if not beats:
        because = f"no {kind} is faster than plain decoding: best {_best_ratio(best)}"
        return Choice(PLAIN, because + _stopped(usual), tuple(results))
    if pick not in beats:
        pick = max(beats, key=_center)
        winner, why = (
            pick.trial.setting,
            f"{_name(pick)}: {_ratio(pick)}, the fastest that beats plain decoding beyond noise",
        )
    return Choice(chosen_of(winner), why + _stopped(usual), tuple(results))


def _bounds(slo: Slo, workload: str | None) -> Mapping[str, float]:
    """Return, by metric, the least that the objectives of *workload* allow."""
    bounds: dict[str, float] = {}
    for objective in slo.objectives_for(workload, speculating=True) if workload is not None else ():
        if objective.bound == "at_least":
            bounds[objective.metric] = max(objective.threshold, bounds.get(objective.metric, objective.threshold))
    return bounds


def _not_ruled_out(bounds: Mapping[str, float], results: Sequence[SettingResult]) -> list[SettingResult]:
    """Return the settings that are not proven too slow: below plain decoding, or below the workload's bound.

    A process that still warms up is slower than it will be: a setting must stay too slow if it becomes as much faster
    as that may make it.
    """

    def too_slow(result: SettingResult) -> bool:
        floor = max(NO_LOSS, bounds.get(result.measure, NO_LOSS)) / result.may_gain
        proven = result.ratio.hi < floor if isinstance(result.ratio, Estimate) else False
        abandoned = result.slower_than_another if result.rules > 1 else result.abandoned
        return proven or abandoned or sequential.decide(result.throughout, floor) == "fail"

    return [result for result in results if not too_slow(result)]


def _stopped(results: Sequence[SettingResult]) -> str:
    """Describe how many settings were stopped early; each one's document has the reason."""
    early = sum(result.stop is not None for result in results)
    return f"; {early} of {len(results)} settings were stopped early" if early else ""


def _combine(
    slo: Slo,
    measured: Sequence[SettingResult],
    default: SettingResult,
    pick: SettingResult,
    bounds: Mapping[str, float],
) -> tuple[Setting, str]:
    """Combine the best value of each knob; the soak tests the combination."""
    knobs = dict(default.trial.setting)
    swept = []
    for knob in CHOSEN:
        along = [result for result in measured if result is default or result.trial.changed == knob]
        if len(along) < 2:
            continue
        _, shortest = _best_and_shortest(slo, along, bounds)
        knobs[knob] = dict(shortest.trial.setting)[knob]
        swept.append(knob)
    combined = tuple(sorted(knobs.items()))
    if combined == pick.trial.setting or len(swept) < 2:
        return pick.trial.setting, ""
    best_of = " and ".join(knob_name(knob) for knob in swept)
    return combined, f"; the best values of {best_of} are combined, and the soak tests the combination"


def _best_and_shortest(
    slo: Slo, results: Sequence[SettingResult], bounds: Mapping[str, float]
) -> tuple[SettingResult, SettingResult]:
    """Return the fastest setting, and the shortest and lightest one within noise of it that keeps the *bounds*.

    Where none is proven to keep them that is the fastest one: within noise of it is no proof of being as fast.
    """
    candidates = _not_abandoned(results)
    best = max(candidates, key=_center)
    within = [result for result in candidates if result is best or _within_noise(result, best, slo.confidence)]
    within_bounds = [
        result
        for result in within
        if isinstance(result.ratio, Estimate) and result.ratio.lo >= bounds.get(result.measure, 0.0)
    ]
    proven = within_bounds or ([best] if best.rules > 1 else within)
    return best, min(proven, key=lambda result: _cost(slo, result))


def _not_abandoned(results: Sequence[SettingResult]) -> Sequence[SettingResult]:
    return [result for result in results if not result.abandoned] or results


def _center(result: SettingResult) -> float:
    return result.ratio.center if isinstance(result.ratio, Estimate) else 0.0


def _within_noise(result: SettingResult, best: SettingResult, level: float) -> bool:
    """Return whether *best* is not proven faster than *result* on the canaries they share."""
    shared = result.logs.keys() & best.logs.keys()
    apart = intervals.geometric_mean_ratio(
        {name: [math.exp(best.logs[name] - result.logs[name])] for name in shared}, level
    )
    return isinstance(apart, Missing) or apart.lo <= 1


def _cost(slo: Slo, result: SettingResult) -> tuple[Any, ...]:
    """Order settings from short and light to long and heavy."""
    knobs = dict(result.trial.setting)
    lengths = tuple(math.inf if knobs.get(knob) == ADAPTIVE else knobs.get(knob) or 0 for knob in DRAFT_LENGTHS)
    drafts = slo.subject.drafts
    weight = -drafts.index(knobs["draft"]) if knobs.get("draft") in drafts else 0
    return (*lengths, weight, knobs.get("window") or 0)


def _name(result: SettingResult) -> str:
    knobs = {knob: value for knob, value in result.trial.setting if knob in CHOSEN and knob != "draft"}
    inner = ", ".join(f"{knob_name(knob)} {value}" for knob, value in knobs.items())
    return inner or result.trial.name


def _best_ratio(result: SettingResult) -> str:
    """Write a ratio with the noise of plain against plain decoding, or with its own interval where that is unknown."""
    if not isinstance(result.noise, Estimate) or not isinstance(result.ratio, Estimate):
        return _ratio(result)
    return f"{result.ratio.center:.2f}x (noise {result.noise.lo:.2f}x to {result.noise.hi:.2f}x)"


def _interval(ratio: Estimate | Missing) -> dict[str, Any]:
    return figures("ratio", ratio) if isinstance(ratio, Estimate) else {"n": ratio.n, "because": ratio.because}


def _ratio(result: SettingResult) -> str:
    if isinstance(result.ratio, Missing):
        return "not measured"
    return show_ratio(result.ratio.center, result.ratio.lo, result.ratio.hi)
