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
    worst,
)
from gatekeeper.terms.records import Generation, HostSample, Role, Setting, Tie
from gatekeeper.terms.slo import Objective, Slo
from gatekeeper.verdict import derive, host
from gatekeeper.verdict.aftermath import beside, cache_findings, parted, promised, sampled, warmed
from gatekeeper.verdict.agreement import Parting
from gatekeeper.verdict.choice import Choice, choose, look
from gatekeeper.verdict.judge import check, promises
from gatekeeper.verdict.ladder import PLAIN, level, shown, speculates, step
from gatekeeper.verdict.plan import Plan

CERTIFICATION_S = 600.0
"""A shorter soak is a demo (contract)."""
COVERAGE = 0.95
"""Host facts need this share of the expected samples; unmeasured time is not quiet time (contract)."""
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
    doubts: list[str] = field(default_factory=list)


def conclude(case: Case) -> Conclusion:
    """Judge what is recorded; name the soaks that are missing."""
    choices, doubts = choices_of(case)
    walk = _Walk(
        at={name: choice.setting for name, choice in choices.items()},
        rungs=dict.fromkeys(choices, ()),
        doubts=[*case.doubts, *doubts],
    )
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
        return {one.name: Choice(case.plan.fixed, "set by hand, without a sweep") for one in case.slo.workload}, []
    broken = [
        f"{trial.file}: {trouble}" for trial in case.plan.trials if (trouble := _trouble(case, trial.name)) is not None
    ]
    records = {name: recorded.answers for name, recorded in case.sweep.items()}
    choices = {}
    for workload in case.slo.workload:
        by_id = {canary.id: canary for canary in case.canaries[workload.name]}
        seen = look(case.slo, case.plan, records, workload.name, by_id)
        choices[workload.name] = choose(case.slo, case.plan, seen)
    if broken:
        # The sweep can no longer say what it chose; what was soaked says it.
        for name, knobs in _soaked_first(case).items():
            if name in choices:
                choices[name] = replace(choices[name], setting=knobs, because="read off the soak's own records")
    return choices, broken


def _trouble(case: Case, trial: str) -> str | None:
    return case.sweep[trial].trouble if trial in case.sweep else "missing"


def _soaked_first(case: Case) -> dict[str, Setting]:
    first: dict[str, Setting] = {}
    for name in sorted(case.soaks):
        if name.startswith("soak-1"):
            for one in case.soaks[name].answers:
                if one.role is Role.MEASURED or one.arm == "candidate":
                    first.setdefault(one.workload, PLAIN if one.arm == "plain" else one.setting)
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


def evidence_of(case: Case, leg: Leg, workload: str) -> derive.Evidence:
    """Gather what a soak recorded of *workload*, for its metrics."""
    knobs = leg.settings[workload]
    answers = [one for one in case.soaks[leg.name].answers if one.workload == workload]
    plain = tuple(one for one in answers if one.arm == "plain")
    candidate = tuple(one for one in answers if one.arm == "candidate")
    return derive.gather(
        derive.Evidence(
            workload,
            {canary.id: canary for canary in case.canaries[workload]},
            candidate if speculates(knobs) else plain,
            plain if speculates(knobs) else (),
            level(case.slo),
            case.seed,
            greedy=case.slo.sampling.temperature == 0,
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
    verdicts = {
        name: _workload(case, name, walk.at[name], evidence_of(case, leg, name), choices[name]) for name in leg.settings
    }
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


def _workload(case: Case, name: str, knobs: Setting, evidence: derive.Evidence, choice: Choice) -> WorkloadVerdict:
    spoken = speculates(knobs)
    required = next(one.speculation == "required" for one in case.slo.workload if one.name == name)
    checks = tuple(
        check(objective, _estimate(objective, evidence)) for objective in promises(case.slo, name, speculating=spoken)
    )
    outcome = worst(one.outcome for one in checks)
    if not checks and not spoken and evidence.answers:
        outcome = Outcome.PASS  # nothing is promised of plain decoding, and it answered
    word = {Outcome.FAIL: "failed", Outcome.UNPROVEN: "unproven"}.get(outcome, "promoted" if spoken else "graded_back")
    broken = [one for one in checks if one.outcome is outcome and outcome is not Outcome.PASS]
    because = "; ".join(f"{one.metric}: {one.because}" for one in broken) or choice.because
    return WorkloadVerdict(name, word, shown(knobs), checks, required, because, _measured(evidence), choice.document())


def _estimate(objective: Objective, evidence: derive.Evidence) -> Estimate | Missing:
    return derive.estimate(objective.metric, replace(evidence, frozen=objective.scope == "frozen"))


def _measured(evidence: derive.Evidence) -> dict[str, Any]:
    out: dict[str, Any] = {"answers": len(evidence.answers), "plain_answers": len(evidence.plain)}
    for metric in ALWAYS_SHOWN:
        if BY_NAME[metric].default_when == "speculating" and not evidence.plain:
            continue
        seen = derive.estimate(metric, evidence)
        if isinstance(seen, Estimate):
            near = seen.rounded()
            out[metric] = {"center": near.center, "lo": near.lo, "hi": near.hi, "n": near.n}
    return out


def _host(case: Case, leg: Leg, recorded: Recorded) -> tuple[list[Check], list[Finding]]:
    samples = tuple(one for one in case.host_samples if one.phase == leg.name)
    tokens = sum(one.answer.output_tokens or 0 for one in recorded.answers if one.role in SOAKING)
    promised = case.slo.host_objectives
    held = _sentinels_held(case, leg)
    findings = [replace(one, about=leg.name) for one in host.findings(samples, sentinels_held=held)] if samples else []
    if not promised:
        return [], findings
    trouble = case.host_trouble or _uncovered(case, samples, recorded.answers)
    if trouble is not None:
        return [check(objective, Missing(trouble, len(samples))) for objective in promised], findings
    seen = host.estimates(samples, interval=case.interval, tokens=tokens, level=level(case.slo), seed=case.seed)
    return [check(one, seen.get(one.metric, Missing("this host does not show it"))) for one in promised], findings


def _sentinels_held(case: Case, leg: Leg) -> bool | None:
    """Tell whether plain decoding's own speed held; None where that is not known."""
    seen = [derive.drift(evidence_of(case, leg, name)) for name, knobs in leg.settings.items() if speculates(knobs)]
    known = [one for one in seen if isinstance(one, Estimate)]
    if not known:
        return None
    return all(abs(one.center) <= case.slo.soak.sentinel_drift for one in known)


def _uncovered(case: Case, samples: Sequence[HostSample], answers: Sequence[Generation]) -> str | None:
    """Say how many host samples are missing, if too many are; the answers tell how long the soak was."""
    spans: dict[int, list[int]] = {}
    for one in answers:
        if one.role in SOAKING:
            spans.setdefault(one.segment, []).extend((one.answer.sent_ns, one.answer.ended_ns))
    expected = sum((max(span) - min(span)) / 1e9 / case.interval for span in spans.values())
    if len(samples) < COVERAGE * (expected - 1):
        return f"{len(samples)} of about {expected:.0f} host samples, fewer than {COVERAGE:.0%}"
    return None


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
    )
