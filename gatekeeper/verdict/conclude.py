"""From all records of a run to its verdict, or to the soaks it still needs. One function drives the run and judges it.

`certify` calls it, runs the soaks it asks for, and calls it again; `judge` calls it once on what is stored. So the
ladder that was climbed down while measuring is climbed down again, alike, when a stored run is judged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gatekeeper.terms.canary import Canary
from gatekeeper.terms.metrics import BY_NAME
from gatekeeper.terms.outcome import (
    Check,
    Estimate,
    Finding,
    Missing,
    Outcome,
    Transition,
    Verdict,
    WorkloadVerdict,
    rounded,
    worst,
)
from gatekeeper.terms.records import Generation, HostSample, Role, Setting, Tie
from gatekeeper.terms.slo import Objective, Slo
from gatekeeper.verdict import explain, host
from gatekeeper.verdict.account import accounted
from gatekeeper.verdict.aftermath import beside, cache_findings, parted, promised, sampled, warmed
from gatekeeper.verdict.agreement import Parting
from gatekeeper.verdict.choice import Choice, choose, look
from gatekeeper.verdict.derive import estimate
from gatekeeper.verdict.drift import drift
from gatekeeper.verdict.evidence import Evidence, gather
from gatekeeper.verdict.findings import Flaw, examine, negative_control, spoiled
from gatekeeper.verdict.judge import check, promises
from gatekeeper.verdict.ladder import PLAIN, level, shown, speculates, step
from gatekeeper.verdict.plan import Plan, with_conditions
from gatekeeper.verdict.routing import routing

CERTIFICATION_S = 600.0
"""A shorter soak is a demo (contract)."""
SOAKING = frozenset({Role.MEASURED, Role.SENTINEL})
"""Answers given while the soak's clock runs; blocks and the closing pass lie beside it."""
ALWAYS_SHOWN = ("throughput_ratio", "answer_throughput_ratio", "acceptance_rate", "ttft_delta", "decode_throughput")


@dataclass(frozen=True, slots=True)
class Leg:
    """One soak: the workloads one process serves together, each at its setting."""

    name: str
    settings: Mapping[str, Setting]
    resident: Setting

    @property
    def file(self) -> str:
        """Return the name of its record file."""
        return f"{self.name}.jsonl"

    @property
    def ties(self) -> str:
        """Return the name of the file with the near-ties of its partings."""
        return beside("ties", self.name)

    @property
    def warm(self) -> str:
        """Return the name of the file with its answers from a warm prompt cache."""
        return beside("warm", self.name)

    @property
    def draws(self) -> str:
        """Return the name of the file with the first tokens that were sampled for it."""
        return beside("draws", self.name)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The content of a record file, and what is wrong with it, if anything."""

    answers: tuple[Generation, ...] = ()
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """The near-ties that were read after a soak, and what is wrong with their file, if anything."""

    ties: tuple[Tie, ...] = ()
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a verdict rests on."""

    slo: Slo
    canaries: Mapping[str, Sequence[Canary]]
    plan: Plan
    residence: Callable[[Setting], str]
    shares_process: bool
    manifest_sha256: str
    seed: int
    sweep: Mapping[str, Recorded]
    soaks: Mapping[str, Recorded]
    ties: Mapping[str, Read] = field(default_factory=dict)
    """By the name of the soak."""
    warm: Mapping[str, Recorded] = field(default_factory=dict)
    """By the name of the soak."""
    draws: Mapping[str, Recorded] = field(default_factory=dict)
    """By the name of the soak."""
    host_samples: tuple[HostSample, ...] = ()
    host_trouble: str | None = None
    interval: float = 1.0
    conditions: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The host's facts before and after each soak."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Share of each workload in the soak profile's mix."""
    findings: tuple[Finding, ...] = ()
    """What the freeze stage found."""
    doubts: tuple[str, ...] = ()
    """Why nothing may be promoted whatever the records say: another host than the SLO's, a damaged record."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The verdict as far as the records reach, and the soaks that are still to run."""

    verdict: Verdict
    needs: tuple[Leg, ...] = ()


@dataclass(slots=True)
class _Walk:
    """Where each workload stands on its ladder."""

    at: dict[str, Setting]
    rungs: dict[str, tuple[str, ...]]
    settled: dict[str, WorkloadVerdict] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    host_checks: dict[str, Check] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    flaws: tuple[Flaw, ...] = ()
    """What the sweep gave away about the subject as a whole."""
    doubts: list[str] = field(default_factory=list)


def conclude(case: Case) -> Conclusion:
    """Judge what is recorded; name the soaks that are missing."""
    choices, doubts = choices_of(case)
    walk = _Walk(
        at={name: choice.setting for name, choice in choices.items()},
        rungs=dict.fromkeys(choices, ()),
        doubts=[*case.doubts, *doubts, *([f"host.jsonl: {case.host_trouble}"] if case.host_trouble else [])],
        findings=[finding for choice in choices.values() for finding in choice.findings],
        flaws=controls_of(case),
    )
    walk.findings += [flaw.finding for flaw in walk.flaws]
    _first_transitions(case, choices, walk)
    needs: tuple[Leg, ...] = ()
    for turn in range(1, len(case.slo.fallback.ladder) + 2):
        open_ones = [name for name in walk.at if name not in walk.settled]
        if not open_ones:
            break
        legs = legs_of(case, {name: walk.at[name] for name in open_ones}, turn)
        needs = tuple(leg for leg in legs if _is_due(case, leg))
        for leg in legs:
            _judge_leg(case, leg, choices, walk)
        if needs:
            break
    return Conclusion(_verdict(case, choices, walk), needs)


def legs_of(case: Case, settings: Mapping[str, Setting], turn: int) -> tuple[Leg, ...]:
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
        legs.append(Leg(name, {one: group[one] for one in settings if one in group}, resident))
    return tuple(legs)


def choices_of(case: Case) -> tuple[dict[str, Choice], list[str]]:
    """Return what the sweep chooses per workload, and which of its records are broken."""
    if case.plan.fixed is not None:
        fixed = Choice(with_conditions(case.slo, case.plan.fixed), "set by hand, without a sweep")
        return {one.name: fixed for one in case.slo.workload}, []
    broken = [
        f"{trial.file}: {trouble}" for trial in case.plan.trials if (trouble := _trouble(case, trial.name)) is not None
    ]
    records = {name: recorded.answers for name, recorded in case.sweep.items()}
    choices = {}
    for workload in case.slo.workload:
        by_id = {canary.id: canary for canary in case.canaries[workload.name]}
        seen = look(case.slo, case.plan, records, workload.name, by_id)
        choice = choose(case.slo, case.plan, seen)
        choice = accounted(case.slo, case.plan, records, workload.name, by_id, choice)
        choices[workload.name] = replace(choice, setting=with_conditions(case.slo, choice.setting))
    if broken:
        # The sweep can no longer say what it chose; what was soaked says it.
        for name, knobs in _soaked_first(case).items():
            if name in choices:
                choices[name] = replace(choices[name], setting=knobs, because="read off the soak's own records")
    return choices, broken


def controls_of(case: Case) -> tuple[Flaw, ...]:
    """Return what the default setting of the sweep gives away across workloads."""
    default = next((trial.name for trial in case.plan.trials if trial.arm == "candidate"), None)
    if default is None or default not in case.sweep:
        return ()
    canaries = {(name, one.id): one for name, many in case.canaries.items() for one in many}
    flaw = negative_control(case.sweep[default].answers, canaries)
    return (flaw,) if flaw is not None else ()


def _trouble(case: Case, trial: str) -> str | None:
    return case.sweep[trial].trouble if trial in case.sweep else "missing"


def _soaked_first(case: Case) -> dict[str, Setting]:
    first: dict[str, Setting] = {}
    for name in sorted(case.soaks):
        if name.startswith("soak-1"):
            for one in case.soaks[name].answers:
                if one.role is Role.MEASURED or one.arm == "candidate":
                    first.setdefault(one.workload, one.setting)
    return first


def _first_transitions(case: Case, choices: Mapping[str, Choice], walk: _Walk) -> None:
    """Log what the sweep already sent to plain decoding."""
    drafts = [trial for trial in case.plan.trials if trial.arm == "candidate"]
    if not drafts:
        return
    for name, choice in choices.items():
        if not speculates(choice.setting):
            last = max((one.at for recorded in case.sweep.values() for one in recorded.answers), default="")
            walk.transitions.append(
                Transition(last, name, shown(drafts[0].setting), shown(PLAIN), f"sweep: {choice.because}")
            )


def evidence_of(case: Case, leg: Leg, workload: str) -> Evidence:
    """Gather what a soak recorded of *workload*, for its metrics."""
    knobs = leg.settings[workload]
    answers = [one for one in case.soaks[leg.name].answers if one.workload == workload]
    plain = tuple(one for one in answers if one.arm == "plain")
    candidate = tuple(one for one in answers if one.arm == "candidate")
    return gather(
        Evidence(
            workload,
            {canary.id: canary for canary in case.canaries[workload]},
            candidate if speculates(knobs) else plain,
            plain if speculates(knobs) else (),
            level(case.slo),
            case.seed,
            greedy=dict(knobs).get("temperature", case.slo.sampling.temperature) == 0,
            window_s=case.slo.soak.window_s,
            drift_limit=case.slo.soak.sentinel_drift,
            ties=tuple(tie for tie in case.ties.get(leg.name, Read()).ties if tie.workload == workload),
            warm=_after(case.warm.get(leg.name), leg.warm, workload),
            draws=_after(case.draws.get(leg.name), leg.draws, workload),
        )
    )


def _after(recorded: Recorded | None, file: str, workload: str) -> tuple[Generation, ...] | str:
    if recorded is None or recorded.trouble is not None:
        return f"{file}: {'missing' if recorded is None else recorded.trouble}"
    return tuple(one for one in recorded.answers if one.workload == workload)


def partings_of(case: Case, leg: Leg) -> dict[str, tuple[Parting, ...]]:
    """Return, by workload, where greedy answers of a soak parted from plain decoding's although they may not."""
    if leg.name not in case.soaks:
        return {}
    names = promised(case.slo, leg.settings, "token_agreement")
    return parted({name: evidence_of(case, leg, name) for name in names})


def _is_due(case: Case, leg: Leg) -> bool:
    """Tell whether a soak, or what is recorded after it, is still to run."""
    after = ((case.warm, warmed), (case.draws, sampled))
    if leg.name not in case.soaks or any(
        leg.name not in seen and wanted(case.slo, leg.settings) for seen, wanted in after
    ):
        return True
    return leg.name not in case.ties and bool(partings_of(case, leg))


def _broken_beside(case: Case, leg: Leg) -> list[str]:
    """Say what is wrong with the files recorded after a soak that the verdict rests on."""
    read = case.ties.get(leg.name, Read())
    found = [f"{leg.ties}: {read.trouble}"] if read.trouble is not None and partings_of(case, leg) else []
    for file, seen, wanted in ((leg.warm, case.warm, warmed), (leg.draws, case.draws, sampled)):
        trouble = seen.get(leg.name, Recorded()).trouble
        found += [f"{file}: {trouble}"] if trouble is not None and wanted(case.slo, leg.settings) else []
    return found


def _judge_leg(case: Case, leg: Leg, choices: Mapping[str, Choice], walk: _Walk) -> None:
    recorded = case.soaks.get(leg.name)
    if recorded is None:
        return
    if recorded.trouble is not None:
        walk.doubts.append(f"{leg.file}: {recorded.trouble}")
    elif (short := too_short(case, recorded.answers)) is not None:
        walk.doubts.append(f"{leg.file}: {short}")
    walk.doubts += _broken_beside(case, leg)
    host_checks, findings = _host(case, leg, recorded)
    host_outcome = worst(one.outcome for one in host_checks) if host_checks else Outcome.PASS
    walk.findings += findings
    walk.doubts += [f"{one.about}: {one.detail}" for one in findings if one.kind in host.DISQUALIFYING]
    verdicts = {name: _examined(case, leg, name, choices[name], walk) for name in leg.settings}
    walk.findings += cache_findings(case.slo, leg.name, verdicts)
    lower = {
        name: step(case.slo, walk.at[name], walk.rungs[name])
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


def _examined(case: Case, leg: Leg, name: str, choice: Choice, walk: _Walk) -> WorkloadVerdict:
    """Note what a workload's records give away, then judge it without what can not be trusted."""
    evidence, knobs = evidence_of(case, leg, name), leg.settings[name]
    flaws = examine(evidence, knobs, f"{name}, {leg.name}") if speculates(knobs) else ()
    walk.findings += [flaw.finding for flaw in flaws]
    return _workload(case, name, knobs, evidence, choice, spoiled((*walk.flaws, *flaws)))


def _ended(recorded: Recorded) -> str:
    return max((one.at for one in recorded.answers), default="")


def _step_down(walk: _Walk, name: str, down: tuple[str, Setting], broken: Sequence[Check], at: str, slo: Slo) -> None:
    rung, knobs = down
    because = f"{rung}: " + "; ".join(f"{one.metric}: {one.because}" for one in broken)
    walk.transitions.append(Transition(at, name, shown(walk.at[name]), shown(knobs), because))
    walk.rungs[name] = (*walk.rungs[name], *_passed(slo, rung))
    walk.at[name] = knobs


def _passed(slo: Slo, rung: str) -> tuple[str, ...]:
    """Return the rungs that are used up once *rung* is taken: itself and those above it."""
    ladder: tuple[str, ...] = slo.fallback.ladder
    return ladder[: ladder.index(rung) + 1]


def too_short(case: Case, answers: Sequence[Generation]) -> str | None:
    """Say how much of the soak is missing, if any: its last unbroken stretch must last the whole duration."""
    measured = [one for one in answers if one.role in SOAKING]
    if not measured:
        return "no measured answer"
    last = max(one.segment for one in measured)
    stretch = [one for one in measured if one.segment == last]
    seconds = (max(one.answer.ended_ns for one in stretch) - min(one.answer.sent_ns for one in stretch)) / 1e9
    # The first answer is sent a moment after the clock starts and the last may end a moment before it stops.
    if seconds < 0.98 * case.slo.soak.duration - 1:
        return f"the soak ran {seconds:.0f} s without a break, of {case.slo.soak.duration:.0f} s"
    return None


def _workload(
    case: Case, name: str, knobs: Setting, evidence: Evidence, choice: Choice, lost: Mapping[str, str]
) -> WorkloadVerdict:
    """Judge one workload; metrics that are *lost* to a finding are unproven, and the finding says why."""
    spoken = speculates(knobs)
    required = next(one.speculation == "required" for one in case.slo.workload if one.name == name)
    checks = tuple(
        check(objective, _estimate(objective, evidence, lost))
        for objective in promises(case.slo, name, speculating=spoken)
    )
    outcome = worst(one.outcome for one in checks)
    if not checks and not spoken and evidence.answers:
        outcome = Outcome.PASS  # nothing is promised of plain decoding, and it answered
    word = {Outcome.FAIL: "failed", Outcome.UNPROVEN: "unproven"}.get(outcome, "promoted" if spoken else "graded_back")
    broken = [one for one in checks if one.outcome is outcome and outcome is not Outcome.PASS]
    because = "; ".join(f"{one.metric}: {one.because}" for one in broken) or choice.because
    if word == "graded_back" and choice.doubt is not None:
        word = "unproven"
        because = f"plain decoding keeps its promises, but whether a draft would help is unproven: {choice.doubt}"
    measured = _measured(evidence, lost)
    return WorkloadVerdict(name, word, shown(knobs), checks, required, because, measured, choice.document())


def _estimate(objective: Objective, evidence: Evidence, lost: Mapping[str, str]) -> Estimate | Missing:
    if objective.metric in lost:
        return Missing(lost[objective.metric], len(evidence.answers))
    return estimate(objective.metric, replace(evidence, frozen=objective.scope == "frozen"))


def _measured(evidence: Evidence, lost: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {"answers": len(evidence.answers), "plain_answers": len(evidence.plain)}
    for metric in ALWAYS_SHOWN:
        if metric in lost or (BY_NAME[metric].default_when == "speculating" and not evidence.plain):
            continue
        seen = estimate(metric, evidence)
        if isinstance(seen, Estimate):
            near = seen.rounded()
            out[metric] = {"center": near.center, "lo": near.lo, "hi": near.hi, "n": near.n}
    if chances := explain.positions(evidence.answers):
        out["acceptance_by_position"] = [rounded(chance) for chance in chances]
    return out


def _host(case: Case, leg: Leg, recorded: Recorded) -> tuple[list[Check], list[Finding]]:
    samples = tuple(one for one in case.host_samples if one.phase == leg.name)
    spans = _spans(recorded.answers)
    shared: dict[str, Any] = {
        "interval": case.interval,
        "level": level(case.slo),
        "seed": case.seed,
        "spans": spans,
        "sentinels_held": _sentinels_held(case, leg),
        "earlier": tuple(one for one in case.host_samples if one.phase != leg.name and one.segment in spans),
    }
    findings = host.findings(samples, conditions=case.conditions.get(leg.name, ()), **shared)
    findings = [replace(one, about=f"{leg.name}, {one.about}") for one in findings]
    promised = case.slo.host_objectives
    if not promised:
        return [], findings
    if case.host_trouble is not None:
        missing = Missing(f"host.jsonl: {case.host_trouble}", len(samples))
        return [check(objective, missing) for objective in promised], findings
    tokens = sum(one.answer.output_tokens or 0 for one in recorded.answers if one.role in SOAKING)
    seen = host.estimates(samples, tokens=tokens, **shared)
    return [check(one, seen.get(one.metric, Missing("this host does not show it"))) for one in promised], findings


def _spans(answers: Sequence[Generation]) -> dict[int, tuple[int, int]]:
    """Return when each unbroken stretch of the soak began and ended; host samples number them alike."""
    spans: dict[int, tuple[int, int]] = {}
    for one in answers:
        if one.role in SOAKING:
            number = host_segment(one.segment, one.repeat)
            begun, ended = spans.get(number, (one.answer.sent_ns, one.answer.ended_ns))
            spans[number] = min(begun, one.answer.sent_ns), max(ended, one.answer.ended_ns)
    return spans


def host_segment(segment: int, stretch: int) -> int:
    """Return the number of an unbroken stretch; a plain block midway through a soak breaks it as a restart does."""
    return 2 * segment + stretch


def _sentinels_held(case: Case, leg: Leg) -> bool | None:
    """Tell whether plain decoding's own speed held; None where that is not known."""
    seen = [drift(evidence_of(case, leg, name)) for name, knobs in leg.settings.items() if speculates(knobs)]
    known = [one for one in seen if isinstance(one, Estimate)]
    if not known:
        return None
    return all(abs(one.center) <= case.slo.soak.sentinel_drift for one in known)


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
                shown(walk.at[workload.name]),
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
