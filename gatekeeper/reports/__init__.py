"""The reports: each one function from a verdict to text. No number is computed here."""

from collections.abc import Callable
from importlib import import_module

from gatekeeper.terms.outcome import Verdict

Render = Callable[[Verdict], str]


def _later(module: str) -> Callable[[], Render]:
    def load() -> Render:
        render: Render = import_module(f"gatekeeper.reports.{module}").render
        return render

    return load


FORMATS: dict[str, Callable[[], Render]] = {
    "json": _later("machine"),
    "junit": _later("junit"),
    "text": _later("plaintext"),
}
"""What `gatekeeper report --format` offers; a format is imported when it is asked for."""
