"""The summary in Markdown for a job's page on GitHub: tables, no charts, and no longer than GitHub allows."""

from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.document_markdown import render_markdown
from gatekeeper.report.run_document import run_document

MOST_BYTES = 1_000_000
"""GitHub drops a step's summary above 1 MiB, all of it."""


def render(page: PageData) -> str:
    """Return the summary; where it would be too long the passed checks are left out, then it is cut at the end."""
    for with_passed in (True, False):
        text = render_markdown(run_document(page, with_passed=with_passed))
        if len(text.encode("utf-8", "replace")) <= MOST_BYTES:
            return text.encode("utf-8", "replace").decode()
    short = text.encode("utf-8", "replace")[:MOST_BYTES].decode("utf-8", "ignore").rsplit("\n", 1)[0]
    return f"{short}\n\nCut off here: see `report.html` for the rest.\n"
