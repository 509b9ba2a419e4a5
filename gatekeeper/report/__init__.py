"""The reports: each one function from a verdict, or from all data of a page, to text. No number is computed here."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Format:
    """A choice of `gatekeeper report --format`; its module is imported when it is used."""

    module: str
    needs_page: bool = False
    """It renders PageData, with figures from the records, rather than the verdict alone."""
    needs_decision: bool = False
    """It renders the Decision: the verdict with its headline, and what the policy says."""
    function: str = "render"

    def load(self) -> Callable[..., str]:
        """Return the function from the verdict, the Decision or PageData to text."""
        render: Callable[..., str] = getattr(import_module(f"gatekeeper.report.{self.module}"), self.function)
        return render


FORMATS: dict[str, Format] = {
    "html": Format("html.page", needs_page=True),
    "json": Format("verdict_json"),
    "junit": Format("junit"),
    "line": Format("plain_text", needs_decision=True, function="render_line"),
    "markdown": Format("markdown", needs_page=True),
    "text": Format("plain_text", needs_decision=True),
}
