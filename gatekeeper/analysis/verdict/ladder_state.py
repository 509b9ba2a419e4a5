"""Each workload's place on its fallback ladder while a run is judged, and every step that it took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gatekeeper.analysis.plan.ladder import next_step
from gatekeeper.analysis.plan.settings import PLAIN, setting_document, speculates
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.sweep.choice import Choice
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import AbandonedStep, Transition, WorkloadOutcome, WorkloadVerdict
from gatekeeper.analysis.verdict.workload_verdict import no_gain_proven
from gatekeeper.core.judgement import Check, Doubt, Finding, Outcome
from gatekeeper.core.records import Setting

STEP_WORDS = {
    "shrink-draft": "shorter draft",
    "lighter-draft": "lighter draft",
    "autoregressive": "drafting off",
}


@dataclass(slots=True)
class LadderState:
    """Each workload's place on its fallback ladder, and what was found so far."""

    case: Case
    choices: Mapping[str, Choice]
    settings: dict[str, Setting]
    controls: tuple[Finding, ...]
    """Findings of the sweep about the system under test as a whole."""
    lies: Mapping[str, Finding]
    """Counters in the sweep that cannot be true, by workload."""
    doubts: list[Doubt]
    findings: list[Finding]
    last_step: dict[str, str] = field(default_factory=dict)
    settled: dict[str, WorkloadVerdict] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    steps: dict[str, list[AbandonedStep]] = field(default_factory=dict)
    host_checks: dict[tuple[str, str], Check] = field(default_factory=dict)

    @property
    def doubt(self) -> str | None:
        """Return why the records do not suffice, if they do not."""
        return "; ".join(dict.fromkeys(doubt.because for doubt in self.doubts)) or None

    def routes(self, workloads: Sequence[WorkloadVerdict]) -> dict[str, Setting]:
        """Return the setting of each workload, once all are known; one that is not promoted decodes plainly."""
        unproven = any(workload.outcome is WorkloadOutcome.UNPROVEN for workload in workloads)
        if self.case.plan.fixed is not None or unproven:
            return {}
        return {
            workload.name: self.settings[workload.name] if workload.outcome is WorkloadOutcome.PROMOTED else PLAIN
            for workload in workloads
        }

    def note_plain_choices(self) -> None:
        """Record a transition for each workload for which the sweep chose plain decoding."""
        candidates = self.case.plan.candidates
        if not candidates:
            return
        last = max((answer.at for recorded in self.case.sweep.values() for answer in recorded.records), default="")
        for name, choice in self.choices.items():
            if not speculates(choice.setting):
                self.note_transition(last, name, candidates[0].setting, PLAIN, f"sweep: {choice.because}")

    def note_transition(self, at: str, name: str, before: Setting, after: Setting, because: str) -> None:
        """Record that a workload went from one setting to another."""
        transition = Transition(at, name, setting_document(before), setting_document(after), because)
        self.transitions.append(transition)

    def next_step(self, name: str) -> tuple[str, Setting] | None:
        """Return the next step of a workload, and its setting; None after the last step."""
        return next_step(self.case.slo, self.settings[name], self.last_step.get(name))

    def step_down(
        self, soak: SoakPlan, verdict: WorkloadVerdict, down: tuple[str, Setting], host: Sequence[Check], at: str
    ) -> None:
        """Take a workload to its next step, for the checks that failed."""
        (step, knobs), name, checks = down, verdict.name, (*verdict.checks, *host)
        because = "; ".join(f"{check.metric}: {check.because}" for check in checks if check.outcome is Outcome.FAIL)
        because = because or no_gain_proven(checks) or ""
        self.note_transition(at, name, self.settings[name], knobs, f"{STEP_WORDS[step]}: {because}")
        self.note_step(soak, verdict, host, because)
        self.settings[name], self.last_step[name] = knobs, step

    def note_step(self, soak: SoakPlan, verdict: WorkloadVerdict, host: Sequence[Check], because: str) -> None:
        """Keep the checks of a setting that is given up, and those of the host where one of them failed."""
        failed = any(check.outcome is Outcome.FAIL for check in host)
        outcome, host_checks = (WorkloadOutcome.FAILED, tuple(host)) if failed else (verdict.outcome, ())
        step = AbandonedStep(
            soak.name, verdict.setting, outcome, because, verdict.checks, host_checks, measured=verdict.measured
        )
        self.steps.setdefault(verdict.name, []).append(step)
