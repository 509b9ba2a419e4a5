"""Checks: one objective against one estimate gives pass, fail or unproven."""

import math

from gatekeeper.core.metrics import Metric
from gatekeeper.core.slo import Objective
from gatekeeper.core.units import show
from gatekeeper.core.verdict import Check, Estimate, Missing, Outcome, rounded


def check(objective: Objective, estimate: Estimate | Missing) -> Check:
    """Judge one objective: pass only when the whole interval keeps it, fail only when all of it breaks it."""
    return check_bound(objective.of, objective.bound, objective.threshold, estimate, why=objective.why)


def check_bound(metric: Metric, bound: str, threshold: float, estimate: Estimate | Missing, *, why: str) -> Check:
    """Judge one bound on *metric*, from an objective or a guard."""
    threshold = rounded(threshold)
    if isinstance(estimate, Missing):
        outcome, because = Outcome.UNPROVEN, estimate.because
        return Check(metric.name, bound, threshold, outcome, metric.unit, because, why, n=estimate.n)
    seen = estimate.rounded()
    outcome, because = _compare(seen, bound, threshold, metric.unit)
    return Check(
        metric.name,
        bound,
        threshold,
        outcome,
        metric.unit,
        "; ".join((because, *seen.notes)),
        why,
        _finite(seen.center),
        _finite(seen.lo),
        _finite(seen.hi),
        seen.n,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _compare(seen: Estimate, bound: str, threshold: float, unit: str) -> tuple[Outcome, str]:
    if not math.isfinite(seen.center) or math.isnan(seen.lo) or math.isnan(seen.hi):
        return Outcome.UNPROVEN, "not a finite number"
    wanted = f"{'at least' if bound == 'at_least' else 'at most'} {show(threshold, unit)}"
    kept, broken = (
        (seen.lo >= threshold, seen.hi < threshold)
        if bound == "at_least"
        else (seen.hi <= threshold, seen.lo > threshold)
    )
    exact = seen.lo == seen.hi
    span = show(seen.center, unit) if exact else f"[{show(seen.lo, unit)}, {show(seen.hi, unit)}]"
    if kept:
        return Outcome.PASS, f"{span} is {wanted}"
    if broken:
        return Outcome.FAIL, f"{span} is not {wanted}"
    return Outcome.UNPROVEN, f"{span} lies on both sides of {wanted}; more canaries would narrow it"
