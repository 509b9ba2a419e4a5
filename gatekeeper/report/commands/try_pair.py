"""What `gatekeeper try` prints."""

from gatekeeper.report.commands import Document
from gatekeeper.report.commands.probe import probe_text


def try_text(document: Document, *, verbose: bool) -> str:
    """Return the answer in a sentence and what to do next; *verbose* adds what the probe measured."""
    details = probe_text(document) if verbose else ""
    advice = f"next: {document['next']}, which writes an SLO file for this machine; then certify it"
    return f"{document['sentence']}\n{details}{advice}\n"
