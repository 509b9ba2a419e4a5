"""The reports: each one function from a verdict, all data of a page or a table to text. No number is computed here."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib import import_module


class RenderedFrom(Enum):
    """What a format shows."""

    VERDICT = "the verdict alone"
    DECISION = "the verdict with its headline, and what the policy says"
    PAGE = "the decision, and figures from the records"
    TABLE = "the records as rows"


@dataclass(frozen=True, slots=True)
class Format:
    """A choice of `gatekeeper report --format`; its module is imported when it is used."""

    module: str
    source: RenderedFrom
    function: str = "render"
    extensions: tuple[str, ...] = ()
    """The endings of an output file that choose it without --format."""

    def load(self) -> Callable[..., str]:
        """Return the function from the verdict, the Decision, PageData or a RowTable to text."""
        render: Callable[..., str] = getattr(import_module(f"gatekeeper.{self.module}"), self.function)
        return render


FORMATS: dict[str, Format] = {
    "csv": Format("report.tables", RenderedFrom.TABLE, "render_csv", extensions=(".csv",)),
    "html": Format("report.html.page", RenderedFrom.PAGE, extensions=(".html", ".htm")),
    "json": Format("core.document", RenderedFrom.VERDICT, "text_of", extensions=(".json",)),
    "junit": Format("report.junit", RenderedFrom.VERDICT, extensions=(".xml",)),
    "line": Format("report.run_document", RenderedFrom.DECISION, "render_line"),
    "markdown": Format("report.run_document", RenderedFrom.PAGE, "render_summary", extensions=(".md",)),
    "ndjson": Format("report.tables", RenderedFrom.TABLE, "render_ndjson", extensions=(".ndjson",)),
    "text": Format("report.run_document", RenderedFrom.DECISION, "render_evidence", extensions=(".txt",)),
}


def format_of_file(name: str) -> str | None:
    """Return the format that the extension of a file's *name* stands for, in every command; None for no format."""
    name = name.lower()
    return next((form for form, about in FORMATS.items() if name.endswith(about.extensions)), None)
