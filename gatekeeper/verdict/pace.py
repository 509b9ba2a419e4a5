"""The pace a bound implies: what a promise about latency means in tokens per second, and the other way round."""

from gatekeeper.terms.slo import Objective, Slo
from gatekeeper.terms.units import show, show_seconds
from gatekeeper.verdict.preflight import Complaint


def complaints(slo: Slo) -> list[Complaint]:
    """Note what each bound on latency or decode speed implies; a person who meant something else sees it here."""
    found = []
    for number, objective in enumerate(slo.objective, start=1):
        implied = _implied(objective)
        if implied is not None:
            message, hint = implied
            found.append(Complaint("weak", f"objective[{number}] {objective.metric}", message, hint))
    return found


def _implied(objective: Objective) -> tuple[str, str] | None:
    metric, bound = objective.metric, objective.threshold
    if bound <= 0:
        return None
    if metric in {"itl_p50", "itl_p95", "itl_p99"} and objective.bound == "at_most":
        tokens = f"{show_seconds(bound)} a token for {objective.of.quantile:.0%} of the tokens"
        message = f"{tokens} means at least {1 / bound:.3g} tok/s at that quantile"
        return message, "the median is faster; promise decode_throughput as well if you mean the median"
    if metric == "tpot_p95" and objective.bound == "at_most":
        message = f"{show_seconds(bound)} a token on average in 95% of the answers means at least {1 / bound:.3g} tok/s"
        return message, "promise itl_p95 as well if stalls matter"
    if metric == "decode_throughput" and objective.bound == "at_least":
        message = (
            f"{show(bound, 'tok/s')} means a token every {show_seconds(1 / bound)} in the median answer; single gaps "
            "may be far longer"
        )
        return message, "promise itl_p95 as well if stalls matter"
    return None
