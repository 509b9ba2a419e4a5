"""What `gatekeeper explain` prints of words, and of the metrics that an objective may name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatekeeper.core.metrics import ALL, BY_NAME
from gatekeeper.core.metrics.metric import Metric, Sight
from gatekeeper.core.system.inputs import shipped_folder
from gatekeeper.core.text import align_columns
from gatekeeper.report.data.glossary import GlossaryEntry


def find_page(name: str) -> Path | None:
    """Return the page of the documentation with this *name*, a guide before a reference; None where none ships."""
    stem = name.lower().replace(" ", "-").replace("_", "-")
    guides = shipped_folder("docs")
    pages = (folder / f"{stem}.md" for folder in (guides, guides / "reference"))
    return next((page for page in pages if page.is_file()), None)


def explain_text(entries: Sequence[GlossaryEntry]) -> str:
    """Return what a word means, how it is computed and what to do."""
    parts = []
    for entry in entries:
        facts = metric_facts(BY_NAME[entry.word]) if entry.kind == "metric" else ""
        rows = [("means", entry.means), ("formula", entry.formula), ("unit", facts), ("what to do", entry.remedy)]
        parts.append("\n".join([f"{entry.word} ({entry.kind})", *(f"  {name}: {text}" for name, text in rows if text)]))
    return "\n\n".join(parts) + "\n"


def list_text(entries: Sequence[GlossaryEntry]) -> str:
    """Return every word with its meaning, by kind."""
    lines = []
    for kind in dict.fromkeys(entry.kind for entry in entries):
        rows = [(entry.word, entry.means) for entry in entries if entry.kind == kind]
        lines += [f"{kind}s", *(f"  {row}" for row in align_columns(rows)), ""]
    return "\n".join(lines)


def metrics_text() -> str:
    """Return one paragraph per metric."""
    paragraphs = [f"{metric.name}\n    {metric.description}\n    {metric_facts(metric)}" for metric in ALL]
    return "\n".join(paragraphs) + "\n"


def metric_facts(metric: Metric) -> str:
    """Return the unit of a metric, which direction is better, what one sample is and what it needs."""
    better = "higher" if metric.higher_is_better else "lower"
    return f"{metric.unit}; {better} is better; per {metric.per.value}; needs {_describe_needs(metric) or 'nothing'}"


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


def _describe_needs(metric: Metric) -> str:
    return "host telemetry" if metric.host else metric.needs.words


def _needs(metric: Metric) -> list[str]:
    if metric.host:
        return ["host telemetry"]
    return sorted(str(flag.name).lower() for flag in Sight if flag in metric.needs)
