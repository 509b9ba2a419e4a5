"""What `gatekeeper metrics` prints, as text and as JSON."""

from typing import Any

from gatekeeper.core.metrics import ALL
from gatekeeper.core.metrics.metric import Metric, Sight


def metrics_text() -> str:
    """Return one paragraph per metric."""
    paragraphs = []
    for metric in ALL:
        better = "higher" if metric.higher_is_better else "lower"
        needs = ", ".join(_needs(metric)) or "nothing"
        facts = f"{metric.unit}; {better} is better; per {metric.per.value}; needs {needs}"
        paragraphs.append(f"{metric.name}\n    {metric.description}\n    {facts}")
    return "\n".join(paragraphs) + "\n"


def metrics_document() -> dict[str, Any]:
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
                "says": metric.description,
            }
            for metric in ALL
        ],
    }


def _needs(metric: Metric) -> list[str]:
    if metric.host:
        return ["host telemetry"]
    return sorted(str(flag.name).lower() for flag in Sight if flag in metric.needs)
