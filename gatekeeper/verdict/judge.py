"""One promise against one estimate: pass, fail or unproven."""

import math

from gatekeeper.terms.metrics import Metric
from gatekeeper.terms.outcome import Check, Estimate, Missing, Outcome, rounded
from gatekeeper.terms.slo import Objective, Slo
from gatekeeper.terms.units import show
from gatekeeper.verdict.draws import FALSE_ALARM

IMPLICIT: tuple[Objective, ...] = (
    Objective(metric="error_rate", at_most=0.0, when="speculating", why="implicit: no answer may fail"),
    Objective(metric="speculation_engaged", at_least=1.0, why="implicit: a draft that proposes nothing earns nothing"),
    Objective(
        metric="truncation_rate", at_most=0.0, why="implicit: no answer is cut short that plain decoding completes"
    ),
)
"""Promised of every speculating setting; an SLO relaxes one by naming its metric."""

WARM = Objective(
    metric="warm_cache_agreement",
    at_least=1.0,
    why='implicit with prompt_cache = "as-deployed": a cache may save time, not change answers',
)

DRAWN = Objective(
    metric="first_tokens_p_value",
    at_least=FALSE_ALARM,
    why="implicit with distribution_check: a draft may not change what is sampled",
)


def implicit(slo: Slo) -> tuple[Objective, ...]:
    """Return the implicit promises this SLO does not speak of itself."""
    named = {objective.metric for objective in slo.objective}
    warm = (WARM,) if slo.subject.prompt_cache == "as-deployed" else ()
    all_of_them = (*IMPLICIT, *warm, *((DRAWN,) if slo.sampling.distribution_check else ()))
    return tuple(objective for objective in all_of_them if objective.metric not in named)


def promises(slo: Slo, workload: str, *, speculating: bool) -> tuple[Objective, ...]:
    """Return every promise to check for *workload*: the SLO's own, then the implicit ones."""
    own = slo.objectives_for(workload, speculating=speculating)
    return (*own, *implicit(slo)) if speculating else own


def check(objective: Objective, estimate: Estimate | Missing) -> Check:
    """Judge one promise: pass only when the whole interval keeps it, fail only when all of it breaks it."""
    return against(objective.of, objective.bound, objective.threshold, estimate, why=objective.why)


def against(metric: Metric, bound: str, threshold: float, estimate: Estimate | Missing, *, why: str) -> Check:
    """Judge one bound on *metric*, whoever set it and why."""
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
