"""What to do after a run: one advice, from the finding or the check that decided it, and the next command."""

from collections.abc import Iterable, Sequence

from gatekeeper.analysis.verdict.host_checks import DISQUALIFYING
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.core.judgement import FindingKind, Outcome
from gatekeeper.core.metrics import ALL
from gatekeeper.core.reasons import CERTIFICATION
from gatekeeper.core.text import join_names
from gatekeeper.core.units import show_seconds
from gatekeeper.report.data.objective_rows import ObjectiveRow

AGAIN = "gatekeeper certify {slo}"
RESUMED = f"{AGAIN} --resume --output {{run}}"
MOST_REMEDIES = 2
"""An advice names so many; each objective has its own remedy beside it."""
LITTLE_DEMOS = frozenset({"quickstart", "quickstart-warm-cache", "smoke"})
"""Names of the shipped SLOs of the little pair, which say nothing of a user's own models."""
FASTER_DRAFT = 'use a faster draft, or set speculation = "optional"'
"""Where the sweep found no setting faster than plain decoding, and the SLO requires drafting."""
SERVER_FAULTS = frozenset({FindingKind.DRAFTED_FAILED, FindingKind.CONTRADICTION})
"""Findings about the server alone, whose advice comes before any about the machine."""
TIMES = frozenset(
    metric.name
    for metric in ALL
    if not metric.host and (metric.speed_ratio or metric.relative or metric.unit in {"s", "tok/s"})
)
"""Metrics whose interval is wider, or missing, on a busy machine."""


def advise_next(
    verdict: Verdict, rows: Sequence[ObjectiveRow], unfinished: str | None, extend: float | None
) -> tuple[str, str]:
    """Return what to change, and the next command; *rows* are the objectives that failed or are not proven."""
    if unfinished:
        return "", RESUMED
    if verdict.outcome is WorkloadOutcome.PROMOTED:
        return _advise_promoted(verdict)
    disqualifying = [finding for finding in verdict.findings if finding.kind in DISQUALIFYING]
    if disqualifying:
        return _join(finding.advice for finding in disqualifying), AGAIN
    if verdict.outcome is not WorkloadOutcome.UNPROVEN:
        failed = [row for row in rows if row.blocking and row.check.outcome is Outcome.FAIL]
        return f"{_join(row.remedy for row in failed) or FASTER_DRAFT}, then certify again", AGAIN
    if verdict.doubts:
        return _join(doubt.advice for doubt in verdict.doubts), verdict.doubts[0].next
    return _advise_unproven(verdict, rows, extend)


def _join(remedies: Iterable[str]) -> str:
    """Write the first of several remedies, each once."""
    return "; ".join(list(dict.fromkeys(remedies))[:MOST_REMEDIES])


def _advise_promoted(verdict: Verdict) -> tuple[str, str]:
    if verdict.grade != "demo":
        return "", "gatekeeper admit {slo} --run {run}"
    if verdict.slo in LITTLE_DEMOS:
        return "this was the little pair; write an SLO for your own models", "gatekeeper init"
    return f'for a certificate, set duration = "{CERTIFICATION}" or more in [soak]', AGAIN


def _advise_unproven(verdict: Verdict, rows: Sequence[ObjectiveRow], extend: float | None) -> tuple[str, str]:
    """Return what decides an unproven run whose evidence is whole: its cause, else the remedies of what is open."""
    deployable, busy = _offer_proven(verdict), _list_busy_programs(verdict)
    if extend is not None:
        advice = f"{f'{busy}; ' if busy else ''}about {show_seconds(extend)} more soak should decide it{deployable}"
        return advice, f"{AGAIN} --extend {extend / 60:.0f}m --output {{run}}"
    unsteady = any(finding.kind == FindingKind.UNSTABLE_ARM for finding in verdict.findings)
    # A busy machine refuses no request and counts no token twice.
    faults = [finding.advice for finding in verdict.findings if finding.kind in SERVER_FAULTS]
    is_open = [row.remedy for row in rows if row.blocking and row.check.outcome is Outcome.UNPROVEN]
    if faults:
        cause = faults[0]
    elif busy:
        cause = f"{busy}: close them"
    elif unsteady:
        cause = "close other programs and let the machine cool"
    else:
        cause = _join(is_open) or "remove the cause"
    if verdict.ended_with_sweep:
        return f"{cause}, then continue, which measures plain decoding first", RESUMED
    return f"{cause}, then certify again{deployable}", AGAIN


def _list_busy_programs(verdict: Verdict) -> str:
    """Write which programs kept the machine busy during the stage that left times open; empty where none did."""
    waiting = [workload for workload in verdict.workloads if workload.outcome is WorkloadOutcome.UNPROVEN]
    checks = [check for workload in waiting for check in workload.checks if check.outcome is Outcome.UNPROVEN]
    if checks and not any(
        check.metric in TIMES and (check.center is not None or check.because == FindingKind.UNSTABLE_ARM.means)
        for check in checks
    ):
        return ""
    stage = "soak" if any(workload.checks for workload in waiting) else ""
    busy_findings = [finding for finding in verdict.findings if finding.kind == FindingKind.BUSY_MACHINE]
    return next(
        (f"{finding.about} {finding.detail}" for finding in reversed(busy_findings) if stage in finding.about), ""
    )


def _offer_proven(verdict: Verdict) -> str:
    """Write how the workloads that are proven can be deployed although others, which must draft, are open."""
    proven = [workload.name for workload in verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED]
    is_open = (workload for workload in verdict.workloads if workload.outcome is WorkloadOutcome.UNPROVEN)
    waiting = [workload.name for workload in is_open if workload.required]
    if not proven or not waiting:
        return ""
    optional = f'with speculation = "optional" for {join_names(waiting)}'
    return f"; {join_names(proven)} {'is' if len(proven) == 1 else 'are'} proven, and deployed {optional}"
