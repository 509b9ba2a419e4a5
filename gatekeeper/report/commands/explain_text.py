"""What `gatekeeper explain` prints."""

from collections.abc import Sequence

from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import aligned
from gatekeeper.report.commands.metrics_text import metric_facts
from gatekeeper.report.data.glossary import GlossaryEntry


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
        lines += [f"{kind}s", *(f"  {row}" for row in aligned(rows)), ""]
    return "\n".join(lines)
