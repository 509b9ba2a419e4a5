"""Checks: one objective against one estimate gives pass, fail or unproven."""

import math
from functools import partial

from gatekeeper.core.judgement import Bounds, Check, Estimate, Missing, Outcome, StillChanging, round_figure
from gatekeeper.core.metrics.metric import Metric
from gatekeeper.core.slo import Objective


def check(objective: Objective, estimate: Estimate | Missing) -> Check:
    """Judge one objective: pass where the whole interval meets the bound, fail where all of it misses the bound."""
    return check_bound(objective.of, objective.bound, objective.threshold, estimate, why=objective.why)


def check_bound(metric: Metric, bound: str, threshold: float, estimate: Estimate | Missing, *, why: str) -> Check:
    """Judge one bound on *metric*, from an objective or a guard."""
    threshold = round_figure(threshold)
    judged = partial(Check, metric.name, bound, threshold, unit=metric.unit, why=why)
    if isinstance(estimate, Missing):
        changing = isinstance(estimate, StillChanging)
        return judged(outcome=Outcome.UNPROVEN, because=estimate.because, n=estimate.n, still_changing=changing)
    near = estimate.round_figures()
    outcome, because = _compare(metric, near, bound, threshold)
    if outcome is Outcome.FAIL and near.shows:
        because = f"{near.shows}: {because}"
    return judged(
        outcome=outcome,
        because="; ".join((because, *near.notes)),
        center=_finite(near.center),
        lo=_finite(near.lo),
        hi=_finite(near.hi),
        n=near.n,
        scope=near.scope,
        population=Bounds(_finite(near.population.lo), _finite(near.population.hi)) if near.population else None,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _compare(metric: Metric, estimate: Estimate, bound: str, threshold: float) -> tuple[Outcome, str]:
    """Return the outcome, and the sentence that every report shows for it."""
    if not math.isfinite(estimate.center) or math.isnan(estimate.lo) or math.isnan(estimate.hi):
        return Outcome.UNPROVEN, "the measured value is not a finite number"
    floor = bound == "at_least"
    met, missed = (
        (estimate.lo >= threshold, estimate.hi < threshold)
        if floor
        else (estimate.hi <= threshold, estimate.lo > threshold)
    )
    measured = metric.show_interval(estimate.center, estimate.lo, estimate.hi) + _about(estimate)
    limit = metric.show(threshold)
    if met:
        return Outcome.PASS, f"{measured}, {f'at least {limit} required' if floor else f'at most {limit} allowed'}"
    if missed:
        return Outcome.FAIL, f"{measured}, {f'below the required {limit}' if floor else f'above the allowed {limit}'}"
    by_time = metric.host or estimate.scope == "frozen"
    advice = "a longer soak would narrow it" if by_time else "more canaries would narrow it"
    return Outcome.UNPROVEN, f"{measured}; the limit of {limit} lies inside: not decided; {advice}"


def _about(estimate: Estimate) -> str:
    """Describe which prompts an interval is about; nothing for a value that was counted."""
    if estimate.scope is None:
        return ""
    return f" on these {estimate.n} canaries" if estimate.scope == "frozen" else " for prompts like these"
