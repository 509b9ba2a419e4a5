"""The list of metrics, for people and for machines."""

from typing import Any

from gatekeeper.terms.metrics import ALL, Metric, Sight


def document() -> dict[str, Any]:
    """Return every metric as JSON."""
    return {
        "schema": 1,
        "metrics": [
            {
                "name": metric.name,
                "unit": metric.unit,
                "better": "higher" if metric.higher_is_better else "lower",
                "per": metric.per.value,
                "needs": _needs(metric),
                "when": metric.default_when,
                "population": metric.population,
                "says": metric.says,
            }
            for metric in ALL
        ],
    }


def _needs(metric: Metric) -> list[str]:
    if metric.host:
        return ["host telemetry"]
    return sorted(str(flag.name).lower() for flag in Sight if flag in metric.needs)


def render() -> str:
    """Return one paragraph a metric."""
    out = []
    for metric in ALL:
        better = "higher" if metric.higher_is_better else "lower"
        needs = ", ".join(_needs(metric)) or "nothing"
        facts = f"{metric.unit}; {better} is better; per {metric.per.value}; needs {needs}"
        out.append(f"{metric.name}\n    {metric.says}\n    {facts}")
    return "\n".join(out) + "\n"
