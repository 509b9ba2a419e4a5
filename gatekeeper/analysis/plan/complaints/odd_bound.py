"""Bounds that can be met by anything, because their unit or their direction is not the one that was meant."""

from collections.abc import Iterator

from gatekeeper.analysis.plan.complaints.complaint import Complaint
from gatekeeper.core.slo import Objective, Slo
from gatekeeper.core.units import show

SLOWEST_S = 30.0
"""A time per token, or to the first one, from which on a bound was rather meant in milliseconds."""
SMALLEST_B = 1e6
"""A size of memory below which a bound was rather meant in gigabytes."""
FASTEST = 10.0
"""A gain in speed from which on a bound was rather meant in per cent."""


def odd_bounds(slo: Slo) -> Iterator[Complaint]:
    """Yield a warning for each objective whose bound says something else than people mean by its number."""
    for number, objective in enumerate(slo.objective, start=1):
        if objective.against is not None:
            continue
        odd = _odd_size(objective) or _odd_direction(objective, slo)
        if odd is not None:
            yield Complaint("weak", f"objective[{number}] {objective.metric}", *odd)


def _odd_size(objective: Objective) -> tuple[str, str] | None:
    metric, bound = objective.of, objective.threshold
    says = f"{objective.bound} = {bound:g} means {show(bound, metric.unit)}"
    if metric.unit == "s" and not metric.host and objective.bound == "at_most" and bound >= SLOWEST_S:
        return says, f'for milliseconds write "{bound:g} ms"'
    if metric.unit == "B" and objective.bound == "at_least" and 0 < bound < SMALLEST_B:
        return says, f'for gigabytes write "{bound:g} GB"'
    if metric.speed_ratio and objective.bound == "at_least" and bound >= FASTEST:
        return f"at_least = {bound:g} means {bound:g} times plain decoding's speed", "for 20 % more write 1.2"
    return None


def _odd_direction(objective: Objective, slo: Slo) -> tuple[str, str] | None:
    """Return a complaint of a bound on the good side, where no objective bounds the bad side of the same metric."""
    good = "at_most" if objective.of.higher_is_better else "at_least"
    beside = any(other.metric == objective.metric and other.bound != good for other in slo.objective)
    if objective.bound != good or beside:
        return None
    better = "higher" if objective.of.higher_is_better else "lower"
    right = "at_least" if objective.of.higher_is_better else "at_most"
    return f"{good} limits how good it may be: {better} is better", f"write {right}"
