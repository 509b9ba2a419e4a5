"""The conclusion of a run: from all its records to the verdict, or to the soaks it still needs.

`certify` calls it, runs the soaks that are due, and calls it again; `judge` calls it once on a stored run. Both
therefore take the same steps down the fallback ladder.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gatekeeper.analysis.plan.objectives import all_objectives
from gatekeeper.analysis.plan.settings import PLAIN, plain_of, setting_document, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan, soak_plans
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.verdict.answer_findings import cache_findings
from gatekeeper.analysis.verdict.case import Case, damage_after_soak, is_due
from gatekeeper.analysis.verdict.host_checks import DISQUALIFYING, host_checks
from gatekeeper.analysis.verdict.ladder_state import LadderState
from gatekeeper.analysis.verdict.routing_gain import routing
from gatekeeper.analysis.verdict.run_verdict import (
    SETTLED,
    AbandonedStep,
    Verdict,
    WorkloadOutcome,
    WorkloadVerdict,
    no_soak_decides,
)
from gatekeeper.analysis.verdict.soak_time import clock_ran_backwards, soaked_seconds, too_short
from gatekeeper.analysis.verdict.sweep_result import carried_in_sweep, negative_controls, sweep_choices, sweep_lies
from gatekeeper.analysis.verdict.workload_verdict import judge_baseline, judge_workload, no_gain_proven
from gatekeeper.core.judgement import Doubt, Outcome
from gatekeeper.core.reasons import CERTIFICATION_S
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Workload

LEAST_PART = 0.25
"""A further part shorter than this share of the soak's duration would decide little."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The verdict as far as the records go, and the soaks that are still to run."""

    verdict: Verdict
    needs: tuple[SoakPlan, ...] = ()
    routes: Mapping[str, Setting] = field(default_factory=dict)
    """The setting of each workload, once all are known."""


def conclude(case: Case) -> Conclusion:
    """Judge the records; name the soaks that are missing."""
    choices, damage = sweep_choices(case)
    controls = negative_controls(case)
    state = LadderState(
        case,
        choices,
        settings={name: choice.setting for name, choice in choices.items()},
        controls=controls,
        lies=sweep_lies(case),
        doubts=[
            *case.doubts,
            *map(Doubt, damage),
            *([Doubt(f"host.jsonl: {case.host_trouble}")] if case.host_trouble else []),
        ],
        findings=[
            *(finding for choice in choices.values() for finding in choice.findings),
            *controls,
            *carried_in_sweep(case),
        ],
    )
    state.note_plain_choices()
    state.settled |= _hopeless(case, choices)
    due: tuple[SoakPlan, ...] = ()
    # Turn 1 soaks the sweep's choice, each further turn one step of the ladder. A turn whose soak is recorded is
    # judged, which moves workloads down; the first one whose soak is not recorded yet says what is due.
    for turn in range(1, len(case.slo.fallback.ladder) + 2):
        unsettled = {name: knobs for name, knobs in state.settings.items() if name not in state.settled}
        soaks = soak_plans(case.plan, unsettled, turn)
        due = tuple(soak for soak in soaks if is_due(case, soak))
        further = [_judge_soak(state, soak) for soak in soaks if soak.name in case.soaks]
        due = due or tuple(part for part in further if part is not None)
        if due:
            break
    verdict = _verdict(state)
    # While a soak is due, the setting of a workload may still change, and with it what the routes gain together.
    routes = {} if due else state.routes(verdict.workloads)
    if routes:
        soaked = (answer for soak in case.soaks.values() for answer in soak.records)
        gain = routing(case.slo, case.plan, case.sweep_records, case.weights, routes, soaked=soaked)
        verdict = replace(verdict, routing=gain)
    return Conclusion(verdict, due, routes)


def _hopeless(case: Case, choices: Mapping[str, Choice]) -> dict[str, WorkloadVerdict]:
    """Return the verdicts of a run that ends with its sweep: plain decoding cannot be compared with where it must be.

    A soak of plain decoding could not decide whether a draft helps. A demo is soaked all the same, because that takes
    a minute and shows what a soak is.
    """
    required = {workload.name for workload in case.slo.workload if workload.speculation == "required"}
    is_demo = case.slo.soak.duration < CERTIFICATION_S
    if is_demo or case.soaks or not no_soak_decides(choices, required):
        return {}
    return {
        name: WorkloadVerdict(
            name, WorkloadOutcome.UNPROVEN, setting_document(choice.setting), name in required,
            f"it is unproven whether a draft would help, and no soak could show it: {choice.doubt}"
            if choice.doubt is not None else f"no soak was sent; sweep: {choice.because}",
            (), choice=choice,
        )
        for name, choice in choices.items()
    }  # fmt: skip


def _judge_soak(state: LadderState, soak: SoakPlan) -> SoakPlan | None:
    """Judge each workload of a soak: settle it, or move it one step down its ladder; return a further part if due."""
    case, recorded = state.case, state.case.soaks[soak.name]
    trouble = (
        recorded.trouble or clock_ran_backwards(recorded.records) or too_short(recorded.records, case.slo.soak.duration)
    )
    state.doubts += [Doubt(f"{soak.file}: {trouble}")] if trouble is not None else []
    state.doubts += map(Doubt, damage_after_soak(case, soak))
    checks, findings = host_checks(case, soak)
    state.doubts += [
        Doubt(f"{finding.about}: {finding.detail}", finding.advice)
        for finding in findings
        if finding.kind in DISQUALIFYING
    ]
    state.findings += findings
    verdicts = {}
    for name in soak.settings:
        # A backend that contradicted itself in the sweep is not believed in the soak either.
        lie = state.lies.get(name)
        controls = (*state.controls, lie) if lie is not None else state.controls
        verdicts[name], wrong = judge_workload(case, soak, name, state.choices[name], controls)
        state.findings += wrong
    state.findings += cache_findings(case.cache_off, soak.name, verdicts)
    host_failed = any(check.outcome is Outcome.FAIL for check in checks)
    # A bound of the host that broke was broken by all workloads together: each of them moves down.
    lower = {
        name: state.next_step(name)
        for name, verdict in verdicts.items()
        if case.plan.fixed is None and (verdict.outcome is WorkloadOutcome.FAILED or host_failed)
    }
    for name, verdict in verdicts.items():
        if case.plan.fixed is None and lower.get(name) is None:
            verdicts[name] = _without_gain(state, soak, verdict, lower)
    # A host check that failed during speculation is repeated without it, together with the plain workloads.
    again = host_failed and any(lower.values())
    ended = max((answer.at for answer in recorded.records), default="")
    for name, verdict in verdicts.items():
        if (down := lower.get(name)) is not None:
            state.step_down(soak, verdict, down, checks, ended)
        elif not (again and not speculates(state.settings[name]) and verdict.outcome is not WorkloadOutcome.FAILED):
            # A sound plain workload is soaked again beside those that moved down, so it is not settled yet.
            state.settled[name] = verdict
    if not again:
        # Of several soaks the worst result of each check counts.
        for check in checks:
            key = check.metric, check.bound
            if key not in state.host_checks or check.outcome > state.host_checks[key].outcome:
                state.host_checks[key] = check
    decided = all(check.outcome is Outcome.PASS for check in checks) and not state.doubts
    return _further_part(state, soak, verdicts) if decided else None


def _without_gain(
    state: LadderState, soak: SoakPlan, verdict: WorkloadVerdict, lower: dict[str, tuple[str, Setting] | None]
) -> WorkloadVerdict:
    """Return the verdict; where speculation is optional and no gain was proven, that on plain decoding.

    If the soak's baseline requests do not prove it, plain decoding is soaked: *lower* then has that step.
    """
    name, because = verdict.name, no_gain_proven(verdict.checks)
    if because is None or verdict.required or verdict.outcome is not WorkloadOutcome.UNPROVEN:
        return verdict
    plain = judge_baseline(state.case, soak, name, state.choices[name], because)
    before = state.settings[name]
    if plain is not None:
        ended = max((answer.at for answer in state.case.soaks[soak.name].records), default="")
        state.note_transition(ended, name, before, PLAIN, because)
        state.note_step(soak, verdict, (), because)
        state.settings[name] = plain_of(before)
        return plain
    if "autoregressive" in state.case.slo.fallback.ladder:
        lower[name] = "autoregressive", plain_of(before)
    return verdict


def _further_part(state: LadderState, soak: SoakPlan, verdicts: Mapping[str, WorkloadVerdict]) -> SoakPlan | None:
    """Return the part that continues a soak: as long as it took so far, for the workloads it can still decide.

    It is due while a workload that must speculate is open and max_duration leaves time. A workload whose speculation is
    optional joins in, but does not hold the soak open: plain decoding is a safe answer for it.
    """
    case, slo = state.case, state.case.slo
    can_be_decided = {
        name for name, verdict in verdicts.items() if speculates(soak.settings[name]) and _can_be_decided(case, verdict)
    }
    required = {workload.name for workload in slo.workload if workload.speculation == "required"}
    if slo.soak.ends != "decided" or not can_be_decided & required:
        return None
    seconds = soaked_seconds(case.soaks[soak.name].records)
    seconds_left = min(seconds, max(slo.soak.max_duration, case.extended) - seconds)
    if seconds_left < LEAST_PART * slo.soak.duration:
        return None
    settings = {name: knobs for name, knobs in soak.settings.items() if name in can_be_decided}
    return replace(soak, settings=settings, part=1 + len(case.looks.get(soak.name, (0,))), seconds=seconds_left)


def _can_be_decided(case: Case, verdict: WorkloadVerdict) -> bool:
    """Return whether more answers can decide a workload: all that is open are intervals for its own canaries."""
    objectives = all_objectives(case.slo, verdict.name, speculating=True, terms=case.plan.terms)
    on_population = {objective.metric for objective in objectives if objective.scope == "population"}
    return verdict.outcome is WorkloadOutcome.UNPROVEN and all(
        check.outcome is Outcome.PASS
        or check.still_changing
        or (check.center is not None and check.metric not in on_population)
        for check in verdict.checks
    )


def _verdict(state: LadderState) -> Verdict:
    case, slo = state.case, state.case.slo
    workloads = tuple(_workload_verdict(state, workload) for workload in slo.workload)
    unfinished = None if len(state.settled) == len(workloads) else "the run is not finished"
    return Verdict(
        slo=slo.name,
        grade="certification" if slo.soak.duration >= CERTIFICATION_S else "demo",
        manifest_sha256=case.manifest_sha256,
        workloads=workloads,
        host_checks=tuple(state.host_checks.values()),
        findings=(*case.findings, *state.lies.values(), *state.findings),
        transitions=tuple(state.transitions),
        incomplete=state.doubt or unfinished,
        doubts=tuple(dict.fromkeys(state.doubts)),
    )


def _failed_turns(steps: Iterable[AbandonedStep]) -> str | None:
    """Return that turns failed with the prompt cache on at a setting that was given up; None where none did.

    Plain decoding is then safe, and yet the system under test does not work as it is deployed: that is never code 0.
    """
    return next(
        (
            f"{check.metric}: {check.because}"
            for step in steps
            for check in step.checks
            if check.metric == "warm_cache_error_rate" and check.outcome is Outcome.FAIL
        ),
        None,
    )


def _workload_verdict(state: LadderState, workload: Workload) -> WorkloadVerdict:
    """Return the verdict of a workload after all soaks, with doubts and steps down the ladder applied."""
    name = workload.name
    choice, settled = state.choices[name], state.settled.get(name)
    steps = tuple(state.steps.get(name, ()))
    if settled is None:
        because = f"the soak of this setting has not run yet; sweep: {choice.because}"
        setting, required = setting_document(state.settings[name]), workload.speculation == "required"
        outcome = WorkloadOutcome.UNPROVEN
        return WorkloadVerdict(name, outcome, setting, required, because, (), choice=choice, steps=steps)
    settled = replace(settled, steps=steps)
    if settled.outcome is WorkloadOutcome.GRADED_BACK and (reason := _failed_turns(steps)) is not None:
        return replace(settled, outcome=WorkloadOutcome.FAILED, because=reason)
    if state.doubts and settled.outcome in SETTLED:
        return replace(
            settled, outcome=WorkloadOutcome.UNPROVEN, because=f"{state.doubt}; without that: {settled.because}"
        )
    # The sweep's reason is for the setting it chose, not for the one that the workload has now.
    reasons = [transition.because for transition in state.transitions if transition.workload == name]
    return replace(settled, because=reasons[-1]) if settled.outcome in SETTLED and reasons else settled
