"""The gate's answer, as lines to read."""

from collections.abc import Mapping
from typing import Any

WORDS = {0: "admitted", 1: "refused, a promise is broken", 3: "refused"}


def render(document: Mapping[str, Any]) -> str:
    """Return the first reason in the first line, then what to do next and what was looked at."""
    code = document["exit_code"]
    reason = f"{document['reason'].replace('_', ' ')}: " if code == 3 else ""
    where = f" ({document['run']})" if document["run"] else ""
    lines = [f"{document['slo']}: {WORDS[code]}: {reason}{document['because']}{where}", f"  next: {document['next']}"]
    lines += [f"  {one['check']:<10} {one['detail']}" for one in document["checks"]]
    lines += [f"  passed over {one['run']}: {one['because']}" for one in document["passed_over"]]
    return "\n".join(lines) + "\n"
