"""The verdict as its own JSON document."""

from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.document import document_of
from gatekeeper.core.text import json_text


def render(verdict: Verdict) -> str:
    """Return the content of verdict.json: the same bytes for the same verdict."""
    return json_text(document_of(verdict))
