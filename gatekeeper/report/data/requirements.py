"""What decides the exit code besides the objectives: drafting where the SLO requires it, and evidence that suffices."""

from collections.abc import Iterator
from dataclasses import dataclass

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Outcome
from gatekeeper.core.reasons import CERTIFICATION
from gatekeeper.report.data.decision import NO_CERTIFICATE, Decision

CERTIFY_AGAIN = "certify again"
LONGER_SOAK = f'set duration = "{CERTIFICATION}" or more in [soak], then certify again'
DRAFTING = {Outcome.PASS: "drafting is on", Outcome.FAIL: "drafting is off", Outcome.UNPROVEN: "not decided"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One of them, and whether it is met."""

    about: str
    """A workload; empty for the whole run."""
    name: str
    rule: str
    outcome: Outcome
    shown: str
    """What is the case, in two words."""
    reason: str
    remedy: str
    """Empty where the open objectives say it."""


def requirements(verdict: Verdict, unfinished: str | None = None) -> tuple[Requirement, ...]:
    """Return what every run must meet; *unfinished*: where it was interrupted."""
    lacks = verdict.incomplete or (f"the run was interrupted {unfinished}" if unfinished else "")
    outcome = Outcome.UNPROVEN if lacks else Outcome.PASS
    says = lacks or "the records are whole, and nothing about the host or in the findings voids them"
    remedy = "; ".join(dict.fromkeys(doubt.advice for doubt in verdict.doubts)) or CERTIFY_AGAIN
    if unfinished:
        remedy = "continue it: gatekeeper certify SLO.toml --resume --output RUN_DIR"
    shown = "does not suffice" if lacks else "suffices"
    evidence = Requirement("", "evidence", "complete", outcome, shown, says, remedy)
    return *_drafting(verdict), evidence


def open_requirements(decision: Decision, unfinished: str | None = None) -> tuple[Requirement, ...]:
    """Return what a run does not meet, also of the command line; not what its open objectives say already."""
    required = requirements(decision.verdict, unfinished)
    if decision.exit_code != decision.verdict.exit_code:
        certificate = (Outcome.UNPROVEN, "demo", NO_CERTIFICATE, LONGER_SOAK)
        required = (*required, Requirement("", "grade", "certification", *certificate))
    return tuple(each for each in required if each.outcome is not Outcome.PASS and each.remedy)


def _drafting(verdict: Verdict) -> Iterator[Requirement]:
    """Yield whether each workload drafts that must; of one that need not, only that its outcome is open."""
    for workload in verdict.workloads:
        outcome = _drafts(workload)
        if not workload.required and outcome is not Outcome.UNPROVEN:
            continue
        rule = "required" if workload.required else "optional"
        off = 'speculation = "optional", where plain decoding will do; or another draft or setting'
        open_checks = any(check.outcome is not Outcome.PASS for check in workload.checks)
        # Where plain decoding fails an objective too, no other draft helps.
        remedy = "" if open_checks else off if outcome is Outcome.FAIL else CERTIFY_AGAIN
        shown = DRAFTING[outcome]
        yield Requirement(workload.name, "speculation", rule, outcome, shown, workload.because, remedy)


def _drafts(workload: WorkloadVerdict) -> Outcome:
    if workload.outcome is WorkloadOutcome.PROMOTED:
        return Outcome.PASS
    if workload.outcome is WorkloadOutcome.GRADED_BACK or workload.setting.get("draft") is None:
        return Outcome.UNPROVEN if workload.outcome is WorkloadOutcome.UNPROVEN else Outcome.FAIL
    return Outcome.UNPROVEN
