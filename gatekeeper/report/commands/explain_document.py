"""What `gatekeeper explain` shows of words, and of the metrics that an objective may name."""

from collections.abc import Sequence
from pathlib import Path

from gatekeeper.core.metrics import ALL, BY_NAME
from gatekeeper.core.metrics.metric import Metric, Sight
from gatekeeper.core.system.inputs import shipped_folder
from gatekeeper.report.commands import JsonObject
from gatekeeper.report.data.glossary import GlossaryEntry
from gatekeeper.report.shown_document import Document, Facts, Note, Section, Table


def find_page(name: str) -> Path | None:
    """Return the page of the documentation with this *name*, a guide before a reference; None where none ships."""
    stem = name.lower().replace(" ", "-").replace("_", "-")
    guides = shipped_folder("docs")
    pages = (folder / f"{stem}.md" for folder in (guides, guides / "reference"))
    return next((page for page in pages if page.is_file()), None)


def words_document(entries: Sequence[GlossaryEntry]) -> Document:
    """Return what a word means, how it is computed and what to do."""
    sections = []
    for entry in entries:
        unit = metric_facts(BY_NAME[entry.word]) if entry.kind == "metric" else ""
        facts = [("means", entry.means), ("formula", entry.formula), ("unit", unit), ("what to do", entry.remedy)]
        sections.append(Section(f"{entry.word} ({entry.kind})", (Facts([fact for fact in facts if fact[1]]),)))
    return Document("explain", "", sections)


def glossary_document(entries: Sequence[GlossaryEntry]) -> Document:
    """Return every word with its meaning, by kind."""
    sections = []
    for kind in dict.fromkeys(entry.kind for entry in entries):
        rows = [(entry.word, entry.means) for entry in entries if entry.kind == kind]
        sections.append(Section(f"{kind}s", (Table(("", ""), rows),)))
    return Document("explain", "", sections)


def metrics_document() -> Document:
    """Return what an objective may name."""
    sections = [Section(metric.name, (Note(metric.description), Note(metric_facts(metric)))) for metric in ALL]
    return Document("explain", "", sections)


def metric_facts(metric: Metric) -> str:
    """Return the unit of a metric, which direction is better, what one sample is and what it needs."""
    better = "higher" if metric.higher_is_better else "lower"
    return f"{metric.unit}; {better} is better; per {metric.per.value}; needs {_describe_needs(metric) or 'nothing'}"


def list_metrics() -> JsonObject:
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
