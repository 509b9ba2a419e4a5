"""The reports: each one function from a verdict, or from the whole page, to text. No number is computed here."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Format:
    """What `gatekeeper report --format` offers; its module is imported when it is asked for."""

    module: str
    whole: bool = False
    """It renders a page, the records' figures included, rather than the verdict alone."""

    def load(self) -> Callable[[Any], str]:
        """Return the function from the verdict, or the page, to text."""
        render: Callable[[Any], str] = import_module(f"gatekeeper.report.{self.module}").render
        return render


FORMATS: dict[str, Format] = {
    "html": Format("html.page", whole=True),
    "json": Format("verdict_json"),
    "junit": Format("junit"),
    "line": Format("one_line"),
    "markdown": Format("markdown", whole=True),
    "openslo": Format("openslo", whole=True),
    "text": Format("text"),
}
