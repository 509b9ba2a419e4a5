"""The case: everything a verdict is derived from, and what was recorded of one soak."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

from gatekeeper.analysis.metrics.exactness import Divergence, divergences
from gatekeeper.analysis.metrics.forced import passes_wanted, stand_ins
from gatekeeper.analysis.metrics.paired_answers import Pair, PairedAnswers, pair_answers
from gatekeeper.analysis.plan.ladder import bound_level, look_levels
from gatekeeper.analysis.plan.objectives import (
    first_token_workloads,
    forced_workloads,
    warm_cache_workloads,
    workloads_with,
)
from gatekeeper.analysis.plan.settings import concurrency_of, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.plan.sweep_plan import SweepPlan
from gatekeeper.analysis.sweep.sweep_answers import SweepAnswers, sweep_answers
from gatekeeper.analysis.verdict.against_certified import Certified
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import MISSING, Answer, Forced, Generation, HostSample, Role, Setting, StoredRecords, Tie
from gatekeeper.core.slo import Slo
from gatekeeper.core.text import counted
from gatekeeper.core.verdict import Finding, Missing

SOAK_ROLES = frozenset({Role.MEASURED, Role.SENTINEL})
"""Roles of answers given while the soak's clock runs; blocks and the closing pass are outside of it."""


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a verdict is derived from."""

    slo: Slo
    canaries: Mapping[str, Sequence[Canary]]
    plan: SweepPlan
    manifest_sha256: str
    sweep: Mapping[str, StoredRecords[Generation]]
    """By the name of the trial."""
    soaks: Mapping[str, StoredRecords[Generation]]
    """By the name of the soak, the records of all its parts together."""
    looks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By the name of a soak of several parts: how many records it had after each part."""
    extended: float = 0.0
    """Seconds that a soak may last beyond max_duration, all in all; 0 without `--extend`."""
    ties: Mapping[str, StoredRecords[Tie]] = field(default_factory=dict)
    """By the name of the file."""
    forced: Mapping[str, StoredRecords[Forced]] = field(default_factory=dict)
    """Passes of the target over tokens of answers, by the name of the file."""
    after_soak: Mapping[str, StoredRecords[Generation]] = field(default_factory=dict)
    """Untimed plain answers, answers from a warm prompt cache, sampled first tokens, by the name of the file."""
    routing: StoredRecords[Generation] = field(default_factory=lambda: StoredRecords(()))
    """What was asked at the end of the run to compare the routes; nothing where the sweep sufficed."""
    region: StoredRecords[Generation] = field(default_factory=lambda: StoredRecords(()))
    """The answers at the points of the region, of all workloads."""
    region_ties: StoredRecords[Tie] = field(default_factory=lambda: StoredRecords(()))
    region_ended: bool = True
    """Nothing more is measured there: what is missing stays open."""
    host_samples: Sequence[HostSample] = ()
    host_trouble: str | None = None
    interval: float = 1.0
    conditions: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The host's facts before and after each soak."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Share of each workload in the soak profile's mix."""
    certified: Certified = field(default_factory=Certified)
    """The certified run that objectives may compare this one with."""
    findings: tuple[Finding, ...] = ()
    """Findings of the freeze stage."""
    doubts: tuple[str, ...] = ()
    """Why nothing can be promoted, whatever the records show: a host other than the SLO's, a damaged record."""

    @property
    def sweep_records(self) -> dict[str, Sequence[Generation]]:
        """Return the answers of the sweep by the name of the trial."""
        return {name: recorded.records for name, recorded in self.sweep.items()}

    def sweep_answers(self, workload: str) -> SweepAnswers:
        """Return what the sweep recorded of *workload*."""
        return sweep_answers(self.slo, self.plan, self.sweep_records, workload, self.canaries[workload])


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a soak after one of its parts: how many records it had, and the confidence of each bound."""

    end: int
    level: float


def looks_at(case: Case, soak: SoakPlan, workload: str) -> tuple[Look, ...]:
    """Return the looks at the soak after each part in which *workload* took part."""
    records = case.soaks[soak.name].records
    answers = (0, *accumulate(one.workload == workload for one in records))
    ends = (0, *(min(end, len(records)) for end in case.looks.get(soak.name, (len(records),))))
    new = [end for begun, end in pairwise(ends) if answers[end] > answers[begun]] or [ends[-1]]
    levels = look_levels(case.slo, [(soaked_seconds(records[:end]), answers[end]) for end in new])
    return tuple(Look(end, level) for end, level in zip(new, levels, strict=True))


def soak_answers(case: Case, soak: SoakPlan, workload: str, end: int | None = None) -> PairedAnswers:
    """Gather what a soak recorded of *workload*, for its metrics; only its first *end* records where that is given."""
    knobs = soak.settings[workload]
    answers = [one for one in case.soaks[soak.name].records[:end] if one.workload == workload]
    plain = tuple(one for one in answers if one.arm == "plain")
    candidate = tuple(one for one in answers if one.arm == "candidate")
    whole = soak.whole
    ties = case.ties[whole.ties_file].records if whole.ties_file in case.ties else ()
    words = case.after_soak[whole.words_file].records if whole.words_file in case.after_soak else ()
    forced = case.forced[whole.forced_file].records if whole.forced_file in case.forced else ()
    speculating = speculates(knobs)

    def recorded_after(file: str) -> tuple[Generation, ...] | str:
        found = case.after_soak.get(file, StoredRecords((), MISSING))
        if found.trouble is not None:
            return f"{file}: {found.trouble}"
        return tuple(one for one in found.records if one.workload == workload)

    paired = pair_answers(
        PairedAnswers(
            workload,
            {canary.id: canary for canary in case.canaries[workload]},
            candidate if speculating else plain,
            plain if speculating else (),
            bound_level(case.slo),
            case.plan.seed,
            greedy=dict(knobs).get("temperature", case.slo.sampling.temperature) == 0,
            window_s=case.slo.soak.window_s,
            drift_limit=case.slo.soak.sentinel_drift,
            decays=case.plan.terms.rules > 1,
            rules=case.plan.terms.rules,
            interleaved=not any(one.role is Role.BLOCK for one in plain),
            before=_pairs_before(case, workload, knobs) if speculating else (),
            swept=_swept(case, workload, knobs) if speculating else ((), ()),
            untimed=tuple(one for one in words if one.workload == workload) if speculating else (),
            ties=tuple(tie for tie in ties if tie.workload == workload),
            warm_cache=recorded_after(soak.warm_file),
            pauses=recorded_after(soak.pauses_file),
            first_tokens=recorded_after(soak.draws_file),
        )
    )
    made = [one for one in forced if one.workload == workload]
    if not made or not paired.greedy or not speculating:
        return paired
    shown = stand_ins(paired, made)
    if isinstance(shown, Missing):
        return replace(paired, not_forced=shown.because)
    return replace(paired, untimed=(*paired.untimed, *shown))


def _pairs_before(case: Case, workload: str, knobs: Setting) -> tuple[Pair, ...]:
    """Return the sweep's pairs of the setting most like *knobs*; none where the sweep's arms ran apart."""
    trials = [one for one in case.plan.candidates if concurrency_of(case.slo, one.setting) == 1]
    if not trials or not case.plan.shares_process:
        return ()
    nearest = max(trials, key=lambda one: len(set(one.setting) & set(knobs)))
    return case.sweep_answers(workload).paired(nearest).pairs


def _swept(case: Case, workload: str, knobs: Setting) -> tuple[tuple[Generation, ...], tuple[Generation, ...]]:
    """Return the sweep's greedy answers at exactly this setting, and the plain ones to the same canaries."""
    greedy = dict(knobs).get("temperature", case.slo.sampling.temperature) == 0
    trial = next((one for one in case.plan.candidates if one.setting == knobs), None)
    if trial is None or not greedy or case.plan.terms.rules < 2:
        return (), ()
    seen = case.sweep_answers(workload).paired(trial)
    both = {one.canary for one in seen.answers} & {one.canary for one in seen.plain}
    return (
        tuple(one for one in seen.answers if one.canary in both),
        tuple(one for one in seen.plain if one.canary in both),
    )


def compared_in_sweep(case: Case, soak: SoakPlan) -> dict[str, frozenset[str]]:
    """Return, by workload, the canaries whose words the sweep compared at the setting of *soak*."""
    return {
        name: frozenset(one.canary for one in _swept(case, name, knobs)[0])
        for name, knobs in soak.settings.items()
        if speculates(knobs)
    }


def forbidden_divergences(case: Case, soak: SoakPlan) -> dict[str, tuple[Divergence, ...]]:
    """Return, by workload, where greedy answers of a soak diverge from plain decoding's against an objective.

    The target's logits there tell a near-tie from a wrong answer.
    """
    found = {}
    if soak.name in case.soaks:
        for name in workloads_with(case.slo, soak.settings, "token_agreement", case.plan.terms):
            seen = soak_answers(case, soak, name).words
            if seen.greedy and (where := divergences(seen.answers, seen.plain)):
                found[name] = where
    return found


def wanted_passes(case: Case, soak: SoakPlan) -> tuple[Forced, ...]:
    """Return the passes of the target that compare a soak's words with plain decoding's, without their results."""
    found: list[Forced] = []
    for name in forced_workloads(case.slo, soak.settings, case.plan.terms) if soak.name in case.soaks else ():
        found += passes_wanted(replace(soak_answers(case, soak, name), untimed=()))
    return tuple(found)


def canaries_without_plain(case: Case, soak: SoakPlan) -> dict[str, tuple[str, ...]]:
    """Return, by workload, the canaries that need a plain answer: no forced pass shows what it would be."""
    found = {}
    for name in forced_workloads(case.slo, soak.settings, case.plan.terms) if soak.name in case.soaks else ():
        seen = soak_answers(case, soak, name).words
        answered = {one.canary for one in seen.plain}
        lacking = dict.fromkeys(one.canary for one in seen.answers if one.canary not in answered)
        if lacking:
            found[name] = tuple(lacking)
    return found


def _files_after(case: Case, soak: SoakPlan) -> list[str]:
    """Name the answer files that objectives need recorded after a soak."""
    warm = [soak.warm_file] if warm_cache_workloads(case.slo, soak.settings) else []
    return warm + ([soak.draws_file] if first_token_workloads(case.slo, soak.settings) else [])


def is_due(case: Case, soak: SoakPlan) -> bool:
    """Return whether a soak, or a stage after it, has not run yet."""
    if soak.name not in case.soaks or any(file not in case.after_soak for file in _files_after(case, soak)):
        return True
    if soak.forced_file not in case.forced and wanted_passes(case, soak):
        return True
    if soak.words_file not in case.after_soak and canaries_without_plain(case, soak):
        return True
    return soak.ties_file not in case.ties and bool(forbidden_divergences(case, soak))


def damage_after_soak(case: Case, soak: SoakPlan) -> list[str]:
    """Describe what is wrong with the files recorded after a soak that the verdict needs."""
    files = [(file, case.after_soak[file].trouble) for file in _files_after(case, soak) if file in case.after_soak]
    if soak.ties_file in case.ties and forbidden_divergences(case, soak):
        files.insert(0, (soak.ties_file, case.ties[soak.ties_file].trouble))
    words = case.after_soak.get(soak.words_file, StoredRecords())
    if words.trouble not in {None, MISSING} or canaries_without_plain(case, soak):
        files.insert(0, (soak.words_file, words.trouble))
    if soak.forced_file in case.forced and wanted_passes(case, soak):
        files.insert(0, (soak.forced_file, case.forced[soak.forced_file].trouble))
    return [f"{file}: {trouble}" for file, trouble in files if trouble is not None]


def clock_ran_backwards(answers: Iterable[Generation]) -> str | None:
    """Describe answers that ended before they began: then no time near them can be trusted; None if there are none."""
    wrong = [one.key for one in answers if not _in_order(one.answer)]
    return f"the clock ran backwards in {counted(len(wrong), 'answer')}, first in {wrong[0]}" if wrong else None


def _in_order(answer: Answer) -> bool:
    instants = [answer.sent_ns, *answer.columns.times(), answer.ended_ns]
    return instants == sorted(instants)


def too_short(case: Case, answers: Sequence[Generation]) -> str | None:
    """Describe how much of the soak is missing; None if one of its uninterrupted parts has the whole duration."""
    measured = [one for one in answers if one.role in SOAK_ROLES]
    if not measured:
        return "the soak has no measured answer"
    seconds = max(_seconds_by_segment(measured).values())
    # The first answer is sent a moment after the clock starts and the last may end a moment before it stops.
    if seconds < 0.98 * case.slo.soak.duration - 1:
        return f"the soak ran for {seconds:.0f} s without interruption; {case.slo.soak.duration:.0f} s are required"
    return None


def soaked_seconds(answers: Iterable[Generation]) -> float:
    """Return the seconds of all parts of a soak."""
    return sum(_seconds_by_segment([one for one in answers if one.role in SOAK_ROLES]).values())


def _seconds_by_segment(answers: Sequence[Generation]) -> dict[int, float]:
    """Return the time from the first request to the last answer of each segment; clocks of two do not compare."""
    spans: dict[int, tuple[int, int]] = {}
    for one in answers:
        begun, ended = spans.get(one.segment, (one.answer.sent_ns, one.answer.ended_ns))
        spans[one.segment] = min(begun, one.answer.sent_ns), max(ended, one.answer.ended_ns)
    return {segment: (ended - begun) / 1e9 for segment, (begun, ended) in spans.items()}
