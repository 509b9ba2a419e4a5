"""The verdict as its own JSON document."""

import json

from gatekeeper.core.verdict import Verdict


def render(verdict: Verdict) -> str:
    """Return the content of verdict.json: the same bytes for the same verdict."""
    return json.dumps(verdict.document(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
