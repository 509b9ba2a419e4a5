"""What a bound on latency or decode speed implies, in case that is not what was meant."""

from gatekeeper.analysis.plan.complaints.complaint import Complaint
from gatekeeper.core.slo import Objective, Slo
from gatekeeper.core.units import percent, show, show_seconds

STALLS = "add an objective on itl_p95 if stalls matter"


def latency_complaints(slo: Slo) -> list[Complaint]:
    """Note what each bound on latency or decode speed implies, in case that is not what was meant."""
    complaints = []
    for number, objective in enumerate(slo.objective, start=1):
        implied = _implied(objective)
        if implied is not None:
            message, hint = implied
            complaints.append(Complaint("weak", f"objective[{number}] {objective.metric}", message, hint))
    return complaints


def _implied(objective: Objective) -> tuple[str, str] | None:
    base, bound, share = objective.of.base, objective.threshold, percent(objective.of.quantile or 0.0)
    if bound <= 0 or objective.against is not None:
        return None
    if base == "itl" and objective.bound == "at_most":
        tokens = f"{show_seconds(bound)} per token for {share} of the tokens"
        message = f"{tokens} means at least {1 / bound:.3g} tok/s at that quantile"
        return message, "the median is faster; use decode_throughput if you mean the median"
    if base == "tpot" and objective.bound == "at_most":
        message = (
            f"{show_seconds(bound)} per token on average in {share} of the answers means at least {1 / bound:.3g} tok/s"
        )
        return message, STALLS
    if base == "decode_throughput" and objective.bound == "at_least":
        message = (
            f"{show(bound, 'tok/s')} means one token every {show_seconds(1 / bound)} in the median answer; single gaps "
            "may be far longer"
        )
        return message, STALLS
    return None
