"""What comes next after a run: what to change, and the next command."""

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.core.metrics import ALL
from gatekeeper.core.text import listed
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import FindingKind, Outcome

TIMES = frozenset(
    metric.name
    for metric in ALL
    if not metric.host and (metric.speed_ratio or metric.relative or metric.unit in {"s", "tok/s"})
)
"""Metrics whose interval is wider, or missing, on a busy machine."""


def next_step(verdict: Verdict, unfinished: str | None, extend: float | None) -> tuple[str, str]:
    """Return what to change, and the next command."""
    again = "gatekeeper certify {slo}"
    resumed = f"{again} --resume --output {{run}}"
    if unfinished:
        return "", resumed
    if verdict.outcome is WorkloadOutcome.UNPROVEN:
        deployable, busy = _proven_alone(verdict), _busy(verdict)
        if extend is None:
            unsteady = any(finding.kind == FindingKind.UNSTABLE_ARM for finding in verdict.findings)
            cause = "close other programs and let the machine cool" if unsteady else "remove the cause"
            cause, ended = f"{busy}: close them" if busy else cause, verdict.ended_with_sweep
            then = "continue, which measures plain decoding first" if ended else f"certify again{deployable}"
            return f"{cause}, then {then}", resumed if ended else again
        advice = f"{f'{busy}; ' if busy else ''}about {show_seconds(extend)} more soak should decide it{deployable}"
        return advice, f"{again} --extend {extend / 60:.0f}m --output {{run}}"
    if verdict.outcome is WorkloadOutcome.PROMOTED and verdict.grade == "demo":
        return "for a certificate, soak 600 s or more; for your models, write an SLO", "gatekeeper init"
    if verdict.outcome is WorkloadOutcome.PROMOTED:
        return "", "gatekeeper admit {slo} --run {run}"
    return "change the draft, the setting or the bound, then certify again", again


def _busy(verdict: Verdict) -> str:
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


def _proven_alone(verdict: Verdict) -> str:
    """Write how the workloads that are proven can be deployed although others, which must draft, are open."""
    proven = [workload.name for workload in verdict.workloads if workload.outcome is WorkloadOutcome.PROMOTED]
    is_open = (workload for workload in verdict.workloads if workload.outcome is WorkloadOutcome.UNPROVEN)
    waiting = [workload.name for workload in is_open if workload.required]
    if not proven or not waiting:
        return ""
    optional = f'with speculation = "optional" for {listed(waiting)}'
    return f"; {listed(proven)} {'is' if len(proven) == 1 else 'are'} proven, and deployed {optional}"
