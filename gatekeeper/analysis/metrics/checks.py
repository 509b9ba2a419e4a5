"""Checks: one objective against one estimate gives pass, fail or unproven."""

import math

from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.slo import Objective
from gatekeeper.core.verdict import Bounds, Check, Estimate, Missing, Outcome, StillChanging, rounded


def check(objective: Objective, estimate: Estimate | Missing) -> Check:
    """Judge one objective: pass where the whole interval meets the bound, fail where all of it misses the bound."""
    return check_bound(objective.of, objective.bound, objective.threshold, estimate, why=objective.why)


def check_bound(metric: Metric, bound: str, threshold: float, estimate: Estimate | Missing, *, why: str) -> Check:
    """Judge one bound on *metric*, from an objective or a guard."""
    threshold = rounded(threshold)
    if isinstance(estimate, Missing):
        outcome, because = Outcome.UNPROVEN, estimate.because
        return Check(
            metric.name,
            bound,
            threshold,
            outcome,
            metric.unit,
            because,
            why,
            n=estimate.n,
            settles=isinstance(estimate, StillChanging),
        )
    seen = estimate.rounded()
    outcome, because = _compare(metric, seen, bound, threshold)
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
        seen.scope,
        Bounds(_finite(seen.population.lo), _finite(seen.population.hi)) if seen.population else None,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _compare(metric: Metric, seen: Estimate, bound: str, threshold: float) -> tuple[Outcome, str]:
    """Return the outcome, and the sentence that every report shows for it."""
    if not math.isfinite(seen.center) or math.isnan(seen.lo) or math.isnan(seen.hi):
        return Outcome.UNPROVEN, "the measured value is not a finite number"
    floor = bound == "at_least"
    met, missed = (seen.lo >= threshold, seen.hi < threshold) if floor else (seen.hi <= threshold, seen.lo > threshold)
    measured, limit = metric.show_range(seen.lo, seen.hi) + _about(seen), metric.show(threshold)
    if met:
        return Outcome.PASS, f"{measured}, {f'at least {limit} required' if floor else f'at most {limit} allowed'}"
    if missed:
        return Outcome.FAIL, f"{measured}, {f'below the required {limit}' if floor else f'above the allowed {limit}'}"
    advice = "a longer soak would narrow it" if seen.scope == "frozen" else "more canaries would narrow it"
    return Outcome.UNPROVEN, f"{measured}; the limit of {limit} lies inside: not decided; {advice}"


def _about(seen: Estimate) -> str:
    """Describe which prompts an interval is about; nothing for a value that was counted."""
    if seen.scope is None:
        return ""
    return f" on these {seen.n} canaries" if seen.scope == "frozen" else " for prompts like these"
