"""The case: everything a verdict is derived from, and what was recorded of one soak."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.follow_ups.follow_up import FollowUp, Needs, Soaked
from gatekeeper.analysis.metrics.answer_table import AnswerTable, burst_gap, tabulate
from gatekeeper.analysis.metrics.host.energy import answer_powers
from gatekeeper.analysis.metrics.host.host_series import HostSamples, host_segment, run_segment
from gatekeeper.analysis.metrics.lost_pairs import Pair
from gatekeeper.analysis.metrics.paired_answers import AnswerPowers, PairedAnswers, pair_answers
from gatekeeper.analysis.plan.ladder import bound_level, look_levels
from gatekeeper.analysis.plan.settings import concurrency_of, is_greedy, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.plan.sweep_plan import SweepPlan
from gatekeeper.analysis.sweep.sweep_answers import SweepAnswers, sweep_answers
from gatekeeper.analysis.verdict.against_certified import Certified
from gatekeeper.analysis.verdict.soak_time import SOAK_ROLES, soaked_seconds, spans_by
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Doubt, Finding
from gatekeeper.core.records import MISSING, Generation, HostSample, Role, Setting, StoredRecords
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.slo import Slo

LIVE_LAG = 2
"""Intervals by which a sample of the host may be written late."""


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a verdict is derived from."""

    slo: Slo
    canaries: Mapping[str, Sequence[Canary]]
    plan: SweepPlan
    manifest_sha256: str
    sweep: Mapping[str, StoredRecords[Generation]]
    """The records by the name of the trial."""
    soaks: Mapping[str, StoredRecords[Generation]]
    """The records of all parts of a soak together, by its name."""
    looks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """How many records a soak of several parts had after each part, by its name."""
    extended: float = 0.0
    """Seconds that a soak may last beyond max_duration, all in all; 0 without `--extend`."""
    after_soak: Mapping[str, StoredRecords[Any]] = field(default_factory=dict)
    """What the follow-ups of the soaks recorded, by the name of the file, the records of all its parts together."""
    host_samples: Sequence[HostSample] = ()
    host_trouble: str | None = None
    interval: float = 1.0
    conditions: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The host's facts before and after each soak."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Share of each workload in the soak profile's mix."""
    certified: Certified = field(default_factory=Certified)
    """The certified run that objectives may compare this one with."""
    cache_off: str | None = None
    """How the backend is deployed with its prompt cache off; None where nothing more is known."""
    findings: tuple[Finding, ...] = ()
    """Findings of the freeze stage."""
    doubts: tuple[Doubt, ...] = ()
    """Why nothing can be promoted, whatever the records show: a host other than the SLO's, a damaged record."""
    sweeps: dict[str, SweepAnswers] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What `sweep_answers` read, by workload; a changed copy of this case reads it again."""
    tables: dict[str, AnswerTable] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The table that `table_of` read last: one workload is judged at once, and a day has tens of megabytes of them."""
    needs: dict[str, Mapping[str, Needs]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What `needs_after` found of each soak, by its file; a changed copy of this case finds it again."""

    @property
    def sweep_records(self) -> dict[str, Sequence[Generation]]:
        """Return the answers of the sweep by the name of the trial."""
        return {name: recorded.records for name, recorded in self.sweep.items()}

    def table_of(self, workload: str) -> AnswerTable:
        """Return every answer of the sweep and the soaks to *workload* in columns, which are computed once.

        The plain answers of a soak tell its bursts.
        """
        if workload not in self.tables:
            parts = [*self.sweep_answers(workload).parts]
            for recorded in self.soaks.values():
                answers = [answer for answer in recorded.records if answer.workload == workload]
                parts.append((answers, burst_gap([answer for answer in answers if answer.arm == "plain"])))
            self.tables.clear()
            self.tables[workload] = tabulate(*parts)
        return self.tables[workload]

    def sweep_answers(self, workload: str) -> SweepAnswers:
        """Return what the sweep recorded of *workload*."""
        if workload not in self.sweeps:
            answers = sweep_answers(self.slo, self.plan, self.sweep_records, workload, self.canaries[workload])
            self.sweeps[workload] = answers
        # Not kept with a reference to this case: in a cycle, a day's records would outlive their last use.
        return replace(self.sweeps[workload], powers=lambda: _sweep_powers(self))


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a soak after one of its parts: how many records it had, and the confidence of each bound."""

    end: int
    level: float


def looks_at(case: Case, soak: SoakPlan, workload: str) -> tuple[Look, ...]:
    """Return the looks at the soak after each part in which *workload* took part."""
    records = case.soaks[soak.name].records
    answers = (0, *accumulate(record.workload == workload for record in records))
    ends = (0, *(min(end, len(records)) for end in case.looks.get(soak.name, (len(records),))))
    new = [end for begun, end in pairwise(ends) if answers[end] > answers[begun]] or [ends[-1]]
    levels = look_levels(case.slo, [(soaked_seconds(records[:end]), answers[end]) for end in new])
    return tuple(Look(end, level) for end, level in zip(new, levels, strict=True))


def soak_answers(case: Case, soak: SoakPlan, workload: str, end: int | None = None) -> PairedAnswers:
    """Gather what a soak recorded of *workload*, for its metrics; only its first *end* records where that is given."""
    knobs = soak.settings[workload]
    answers = [record for record in case.soaks[soak.name].records[:end] if record.workload == workload]
    plain, candidate = (tuple(answer for answer in answers if answer.arm == arm) for arm in ("plain", "candidate"))
    speculating = speculates(knobs)
    paired = pair_answers(
        PairedAnswers(
            workload,
            {canary.id: canary for canary in case.canaries[workload]},
            candidate if speculating else plain,
            plain if speculating else (),
            bound_level(case.slo),
            case.plan.seed,
            greedy=is_greedy(case.slo, knobs),
            window_s=case.slo.soak.window_s,
            drift_limit=case.slo.soak.baseline_drift,
            visible_harm=case.slo.visible_harm,
            settled_s=case.slo.soak.duration,
            interleaved=not any(answer.role is Role.BLOCK for answer in plain),
            before=_pairs_before(case, workload, knobs) if speculating else (),
            swept=_swept(case, workload, knobs) if speculating else ((), ()),
            elsewhere=_elsewhere(case, soak, workload, end) if speculating else (),
            recorded=partial(case.table_of, workload),
            powers=lambda: _powers(case, soak, answers),
        )
    )
    due = [follow_up for follow_up in FOLLOW_UPS if speculating or follow_up.of_plain]
    paired = replace(paired, followed={each.name: _select_records(case, each, soak, workload) for each in due})
    # The forced check, the first of the follow-ups, weighs what those after it recorded.
    for follow_up in reversed(due):
        paired = follow_up.add(paired, paired.followed[follow_up.name])
    return paired


def host_during(case: Case, soak: SoakPlan) -> HostSamples:
    """Return the host's samples during a soak, and those outside of it."""
    every = HostColumns.of(case.host_samples)
    during, outside = (
        every.select([(phase == soak.name) == within for phase in every.phase]) for within in (True, False)
    )
    answers = [answer for answer in case.soaks[soak.name].records if answer.role in SOAK_ROLES]
    # Host samples number the uninterrupted parts alike.
    spans = spans_by(lambda answer: host_segment(answer.segment, answer.repeat), answers)
    return HostSamples(during, case.interval, spans, outside=outside)


def _sweep_powers(case: Case) -> AnswerPowers | str:
    """Return the power during each answer of the sweep.

    The last samples count for nothing: while the run is live they may not have been written when the choice is made.
    """
    every = HostColumns.of(case.host_samples)
    answers = [answer for records in case.sweep_records.values() for answer in records]
    late = round(LIVE_LAG * case.interval * 1e9)
    spans = {
        number: (begun, ended - late)
        for number, (begun, ended) in spans_by(lambda answer: answer.segment, answers).items()
    }
    moments = zip(every.segment, every.at_ns, strict=True)
    of_sweep = every.select(
        [
            (span := spans.get(run_segment(segment))) is not None and span[0] <= at_ns <= span[1]
            for segment, at_ns in moments
        ]
    )
    host = HostSamples(of_sweep, case.interval)
    return answer_powers(host, of_sweep, answers, rested=False)


def _powers(case: Case, soak: SoakPlan, answers: Sequence[Generation]) -> AnswerPowers | str:
    if case.host_trouble is not None:
        return f"host.jsonl: {case.host_trouble}"
    return answer_powers(host_during(case, soak), HostColumns.of(case.host_samples), answers)


def _elsewhere(case: Case, soak: SoakPlan, workload: str, end: int | None) -> tuple[Generation, ...]:
    """Return the answers of the other workloads that speculate."""
    names = {name for name, knobs in soak.settings.items() if name != workload and speculates(knobs)}
    records = case.soaks[soak.name].records[:end]
    return tuple(record for record in records if record.workload in names and record.role is not Role.WARMUP)


def _select_records(case: Case, follow_up: FollowUp[Any], soak: SoakPlan, workload: str) -> StoredRecords[Any]:
    file = follow_up.file(soak.whole)
    recorded = case.after_soak.get(file, StoredRecords((), MISSING))
    trouble = None if recorded.trouble is None else f"{file}: {recorded.trouble}"
    records = (record for record in recorded.records if follow_up.of_all_workloads or record.workload == workload)
    return StoredRecords(tuple(records), trouble)


def _pairs_before(case: Case, workload: str, knobs: Setting) -> tuple[Pair, ...]:
    """Return the sweep's pairs of the setting most like *knobs*; none where the sweep's arms ran apart."""
    trials = [trial for trial in case.plan.candidates if concurrency_of(case.slo, trial.setting) == 1]
    if not trials or not case.plan.shares_process:
        return ()
    nearest = max(trials, key=lambda trial: len(set(trial.setting) & set(knobs)))
    return case.sweep_answers(workload).pair_trial(nearest).pairs


def _swept(case: Case, workload: str, knobs: Setting) -> tuple[tuple[Generation, ...], tuple[Generation, ...]]:
    """Return the sweep's answers at exactly this setting, and the plain ones to the same canaries."""
    trial = next((trial for trial in case.plan.candidates if trial.setting == knobs), None)
    if trial is None:
        return (), ()
    evidence = case.sweep_answers(workload).pair_trial(trial)
    shared = {answer.canary for answer in evidence.answers} & {answer.canary for answer in evidence.plain}
    answers, plain = (
        tuple(answer for answer in arm if answer.canary in shared) for arm in (evidence.answers, evidence.plain)
    )
    return answers, plain


def compared_in_sweep(case: Case, soak: SoakPlan) -> dict[str, frozenset[str]]:
    """Return, by workload, the canaries whose words the sweep compared at the setting of *soak*."""
    return {
        name: frozenset(answer.canary for answer in _swept(case, name, knobs)[0])
        for name, knobs in soak.settings.items()
        if speculates(knobs) and is_greedy(case.slo, knobs)
    }


def rebuild_soak(
    slo: Slo,
    sweep: SweepPlan,
    canaries: Mapping[str, Sequence[Canary]],
    soak: SoakPlan,
    load: Callable[[], Case],
    segment: int = 0,
) -> Soaked:
    """Return a soak that was recorded, as its follow-ups read it; *load* is called where one depends on its answers."""

    def answers(workload: str) -> PairedAnswers:
        return soak_answers(load(), soak, workload)

    def looks(workload: str) -> list[PairedAnswers]:
        case = load()
        return [
            replace(soak_answers(case, soak, workload, look.end), level=look.level)
            for look in looks_at(case, soak, workload)
        ]

    return Soaked(slo, soak, sweep.terms, answers, looks, canaries, sweep.seed, segment)


def needs_after(case: Case, soak: SoakPlan) -> Mapping[str, Needs]:
    """Return what each follow-up of *soak* still has to find out, by its file; nothing of those without need."""
    if soak.file not in case.needs:
        recorded = rebuild_soak(case.slo, case.plan, case.canaries, soak, lambda: case)
        case.needs[soak.file] = {each.file(soak): needs for each in FOLLOW_UPS if (needs := each.needs(recorded))}
    return case.needs[soak.file]


def is_due(case: Case, soak: SoakPlan) -> bool:
    """Return whether a soak, or a follow-up of it, has not run yet."""
    if soak.name not in case.soaks:
        return True
    return any(file not in case.after_soak for file in needs_after(case, soak))


def damage_after_soak(case: Case, soak: SoakPlan) -> list[str]:
    """Describe what is wrong with the files recorded after a soak that the verdict needs."""
    needed = needs_after(case, soak)
    files = [follow_up.file(soak) for follow_up in FOLLOW_UPS]
    stored = {file: case.after_soak[file].trouble for file in files if file in case.after_soak}
    return [
        f"{file}: {trouble}"
        for file, trouble in stored.items()
        if trouble is not None and (trouble != MISSING or file in needed)
    ]
