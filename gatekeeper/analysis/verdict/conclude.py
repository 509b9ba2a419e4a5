"""From all records of a run to its verdict, or to the soaks it still needs. One function drives the run and judges it.

`certify` calls it, runs the soaks it asks for, and calls it again; `judge` calls it once on what is stored. So the
ladder that was climbed down while measuring is climbed down again, alike, when a stored run is judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gatekeeper.analysis.metrics.comparability import voided_metrics
from gatekeeper.analysis.metrics.host_findings import DISQUALIFYING
from gatekeeper.analysis.plan.ladder import next_step
from gatekeeper.analysis.plan.settings import PLAIN, setting_document, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.sweep.routing import routing
from gatekeeper.analysis.verdict.case import (
    Case,
    Recorded,
    cache_findings,
    clock_ran_backwards,
    damage_after_soak,
    evidence_of,
    is_due,
    too_short,
)
from gatekeeper.analysis.verdict.findings import examine
from gatekeeper.analysis.verdict.host_checks import host_checks as witnessed
from gatekeeper.analysis.verdict.sweep_result import negative_controls, sweep_choices
from gatekeeper.analysis.verdict.workload import judge_workload
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import CERTIFICATION_S, Slo
from gatekeeper.core.verdict import Check, Finding, Outcome, Transition, Verdict, WorkloadVerdict, worst


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The verdict as far as the records reach, and the soaks that are still to run."""

    verdict: Verdict
    needs: tuple[SoakPlan, ...] = ()


@dataclass(slots=True)
class _Walk:
    """Where each workload stands on its ladder."""

    at: dict[str, Setting]
    rungs: dict[str, tuple[str, ...]]
    settled: dict[str, WorkloadVerdict] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    host_checks: dict[str, Check] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    controls: tuple[Finding, ...] = ()
    """Findings of the sweep about the subject as a whole."""
    doubts: list[str] = field(default_factory=list)


def conclude(case: Case) -> Conclusion:
    """Judge what is recorded; name the soaks that are missing."""
    choices, doubts = sweep_choices(case)
    walk = _Walk(
        at={name: choice.setting for name, choice in choices.items()},
        rungs=dict.fromkeys(choices, ()),
        doubts=[*case.doubts, *doubts, *([f"host.jsonl: {case.host_trouble}"] if case.host_trouble else [])],
        findings=[finding for choice in choices.values() for finding in choice.findings],
        controls=negative_controls(case),
    )
    walk.findings += walk.controls
    _first_transitions(case, choices, walk)
    needs: tuple[SoakPlan, ...] = ()
    for turn in range(1, len(case.slo.fallback.ladder) + 2):
        open_ones = [name for name in walk.at if name not in walk.settled]
        if not open_ones:
            break
        legs = legs_of(case, {name: walk.at[name] for name in open_ones}, turn)
        needs = tuple(leg for leg in legs if is_due(case, leg))
        for leg in legs:
            _judge_leg(case, leg, choices, walk)
        if needs:
            break
    return Conclusion(_verdict(case, choices, walk), needs)


def legs_of(case: Case, settings: Mapping[str, Setting], turn: int) -> tuple[SoakPlan, ...]:
    """Group workloads by the process that serves them; plain ones join where one process serves both arms."""
    groups: dict[str, dict[str, Setting]] = {}
    for name, knobs in settings.items():
        groups.setdefault(case.residence(knobs), {})[name] = knobs
    plain = case.residence(PLAIN)
    if case.shares_process and len(groups) > 1 and plain in groups:
        joined = groups.pop(plain)
        groups[next(iter(groups))].update(joined)
    legs = []
    for number, group in enumerate(groups.values(), start=1):
        resident = max(group.values(), key=speculates)
        name = f"soak-{turn}" if len(groups) == 1 else f"soak-{turn}-{number}"
        legs.append(SoakPlan(name, {one: group[one] for one in settings if one in group}, resident))
    return tuple(legs)


def _first_transitions(case: Case, choices: Mapping[str, Choice], walk: _Walk) -> None:
    """Log what the sweep already sent to plain decoding."""
    drafts = [trial for trial in case.plan.trials if trial.arm == "candidate"]
    if not drafts:
        return
    for name, choice in choices.items():
        if not speculates(choice.setting):
            last = max((one.at for recorded in case.sweep.values() for one in recorded.answers), default="")
            walk.transitions.append(
                Transition(
                    last, name, setting_document(drafts[0].setting), setting_document(PLAIN), f"sweep: {choice.because}"
                )
            )


def _judge_leg(case: Case, leg: SoakPlan, choices: Mapping[str, Choice], walk: _Walk) -> None:
    recorded = case.soaks.get(leg.name)
    if recorded is None:
        return
    if recorded.trouble is not None:
        walk.doubts.append(f"{leg.file}: {recorded.trouble}")
    elif (why := clock_ran_backwards(recorded.answers) or too_short(case, recorded.answers)) is not None:
        walk.doubts.append(f"{leg.file}: {why}")
    walk.doubts += damage_after_soak(case, leg)
    host_checks, findings = witnessed(case, leg, recorded)
    host_outcome = worst(one.outcome for one in host_checks) if host_checks else Outcome.PASS
    walk.findings += findings
    walk.doubts += [f"{one.about}: {one.detail}" for one in findings if one.kind in DISQUALIFYING]
    verdicts = {name: _examined(case, leg, name, choices[name], walk) for name in leg.settings}
    walk.findings += cache_findings(case.slo, leg.name, verdicts)
    lower = {
        name: next_step(case.slo, walk.at[name], walk.rungs[name])
        for name, verdict in verdicts.items()
        if case.plan.fixed is None and (verdict.outcome == "failed" or host_outcome is Outcome.FAIL)
    }
    # A host that failed beside speculation is judged again without it; so are the plain workloads soaked with it.
    again = host_outcome is Outcome.FAIL and any(lower.values())
    for name, verdict in verdicts.items():
        if (down := lower.get(name)) is not None:
            broken = [one for one in (*verdict.checks, *host_checks) if one.outcome is Outcome.FAIL]
            _step_down(walk, name, down, broken, _ended(recorded), case.slo)
        elif not (again and not speculates(walk.at[name]) and verdict.outcome != "failed"):
            walk.settled[name] = verdict
    if not again:
        for one in host_checks:
            before = walk.host_checks.get(f"{one.metric} {one.bound}")
            if before is None or one.outcome > before.outcome:
                walk.host_checks[f"{one.metric} {one.bound}"] = one


def _examined(case: Case, leg: SoakPlan, name: str, choice: Choice, walk: _Walk) -> WorkloadVerdict:
    """Note what a workload's records give away, then judge it without what can not be trusted."""
    evidence, knobs = evidence_of(case, leg, name), leg.settings[name]
    findings = examine(evidence, knobs, f"{name}, {leg.name}") if speculates(knobs) else ()
    walk.findings += findings
    return judge_workload(case, name, knobs, evidence, choice, voided_metrics((*walk.controls, *findings)))


def _ended(recorded: Recorded) -> str:
    return max((one.at for one in recorded.answers), default="")


def _step_down(walk: _Walk, name: str, down: tuple[str, Setting], broken: Sequence[Check], at: str, slo: Slo) -> None:
    rung, knobs = down
    because = f"{rung}: " + "; ".join(f"{one.metric}: {one.because}" for one in broken)
    walk.transitions.append(Transition(at, name, setting_document(walk.at[name]), setting_document(knobs), because))
    walk.rungs[name] = (*walk.rungs[name], *_passed(slo, rung))
    walk.at[name] = knobs


def _passed(slo: Slo, rung: str) -> tuple[str, ...]:
    """Return the rungs that are used up once *rung* is taken: itself and those above it."""
    ladder: tuple[str, ...] = slo.fallback.ladder
    return ladder[: ladder.index(rung) + 1]


def _last_step(walk: _Walk, name: str) -> str | None:
    """Return why a workload stepped down last; what the sweep liked about it does not say why it decodes plainly."""
    return next((one.because for one in reversed(walk.transitions) if one.workload == name), None)


def _verdict(case: Case, choices: Mapping[str, Choice], walk: _Walk) -> Verdict:
    doubt = "; ".join(dict.fromkeys(walk.doubts)) or None
    workloads = []
    for workload in case.slo.workload:
        settled = walk.settled.get(workload.name)
        if settled is None:
            settled = WorkloadVerdict(
                workload.name,
                "unproven",
                setting_document(walk.at[workload.name]),
                (),
                workload.speculation == "required",
                f"its soak at this setting has not been run; sweep: {choices[workload.name].because}",
                choice=choices[workload.name].document(),
            )
            doubt = doubt or "the run is not finished"
        elif walk.doubts and settled.outcome in {"promoted", "graded_back"}:
            settled = replace(settled, outcome="unproven", because=f"{doubt}; otherwise {settled.because}")
        elif settled.outcome == "graded_back" and (down := _last_step(walk, workload.name)) is not None:
            settled = replace(settled, because=down)
        workloads.append(settled)
    return Verdict(
        slo=case.slo.name,
        grade="certification" if case.slo.soak.duration >= CERTIFICATION_S else "demo",
        manifest_sha256=case.manifest_sha256,
        workloads=tuple(workloads),
        host_checks=tuple(walk.host_checks.values()),
        findings=(*case.findings, *walk.findings),
        transitions=tuple(walk.transitions),
        incomplete=doubt,
        routing=_routing(case, workloads, walk),
    )


def _routing(case: Case, workloads: Sequence[WorkloadVerdict], walk: _Walk) -> dict[str, Any]:
    """Say what the routes win, once there are any; a workload that is not promoted is routed to plain decoding."""
    if case.plan.fixed is not None or any(one.outcome == "unproven" for one in workloads):
        return {}
    routes = {one.name: walk.at[one.name] if one.outcome == "promoted" else PLAIN for one in workloads}
    records = {name: recorded.answers for name, recorded in case.sweep.items()}
    return routing(case.slo, case.plan, records, case.weights, routes, case.seed)
