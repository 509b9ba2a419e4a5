"""What `gatekeeper explain` prints of the metrics that an objective may name, as text and as JSON."""

from typing import Any

from gatekeeper.core.metrics import ALL
from gatekeeper.core.metrics.metric import Metric, Sight


def metrics_text() -> str:
    """Return one paragraph per metric."""
    paragraphs = [f"{metric.name}\n    {metric.description}\n    {metric_facts(metric)}" for metric in ALL]
    return "\n".join(paragraphs) + "\n"


def metric_facts(metric: Metric) -> str:
    """Return the unit of a metric, which direction is better, what one sample is and what it needs."""
    better = "higher" if metric.higher_is_better else "lower"
    return f"{metric.unit}; {better} is better; per {metric.per.value}; needs {_needed(metric) or 'nothing'}"


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


def _needed(metric: Metric) -> str:
    return "host telemetry" if metric.host else metric.needs.words


def _needs(metric: Metric) -> list[str]:
    if metric.host:
        return ["host telemetry"]
    return sorted(str(flag.name).lower() for flag in Sight if flag in metric.needs)
