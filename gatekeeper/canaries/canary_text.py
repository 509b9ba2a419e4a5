"""What `canaries import` and `canaries check` print for people."""

import json
from pathlib import Path
from typing import Any

from gatekeeper.canaries.import_log import NOT_SET, PROFILE
from gatekeeper.core.text import show_count

MOST_LISTED = 30
"""Problems of a set that are listed; --json has all."""


def import_text(document: dict[str, Any]) -> str:
    """Return what was imported, what was not kept, and the lines for an SLO file."""
    total = sum(workload["canaries"] for workload in document["workloads"])
    requests, repeats = show_count(document["requests"], "request"), show_count(document["repeated"], "exact repeat")
    lines = [f"{requests}, {repeats} left out; canaries in {document['output']}: {total}"]
    lines += [
        f"  left out {group['count']}: {group['why']} (first: {group['first']})" for group in document["unusable"]
    ]
    for workload in document["workloads"]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in workload["expect"].items())
        lines.append(
            f"  {workload['file']:<24} {workload['canaries']:>4} of {workload['distinct']} distinct, "
            f"{100 * workload['share']:.1f} % of the requests; expects: {kinds}"
        )
        if kept := workload.get("conversations"):
            lines.append(
                f"  {kept['file']:<24} {show_count(kept['count'], 'conversation')}, {show_count(kept['turns'], 'turn')}"
            )
    if document["lost"]:
        lost = ", ".join(f"{name} ({show_count(count, 'request')})" for name, count in document["lost"].items())
        lines.append(f"not kept, as canaries have no key for it: {lost}")
    for name, counts in document["sampling"].items():
        values = ", ".join(f"{value} ({show_count(count, 'request')})" for value, count in counts.items())
        lines.append(f"{name}: {values}; an SLO has one for all of its canaries")
    if document["redacted_with"] is None:
        lines.append("nothing is removed: whatever is personal or secret in the log is in the canaries, too")
    else:
        lines.append(f"each text went through `{document['redacted_with']}`; what it left is in the canaries")
    lines += ["", "Add to an SLO file (paths relative to it work, too):"]
    folder = Path(document["output"]).absolute()
    for workload in document["workloads"]:
        lines += [
            "[[workload]]", f'name = "{workload["name"]}"', f'tier = "{workload["tier"]}"',
            f"canaries = {_toml_text(folder / workload['file'])}",
        ]  # fmt: skip
    commonest = {name: next(iter(counts)) for name, counts in document["sampling"].items()}
    if sampled := [f"{name} = {value}" for name, value in commonest.items() if value != NOT_SET]:
        lines += ["[sampling]", *sampled]
    lines += ["[soak]", f"profile = {_toml_text(folder / PROFILE)}"]
    return "\n".join(lines) + "\n"


def _toml_text(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)


def check_text(document: dict[str, Any]) -> str:
    """Return the sets with what they suffice for, and their problems."""
    lines = []
    for canaries in document["sets"]:
        enough = ", ".join(canaries["quantiles"]) or "no quantile"
        lines.append(
            f"{canaries['file']}: {canaries['canaries']} canaries, {canaries['expect']} with expectation; "
            f"enough for {enough}"
        )
    problems = document["problems"]
    lines += [
        f"{problem['weight']}: {problem['where']}: {problem['kind']}: {problem['message']}"
        for problem in problems[:MOST_LISTED]
    ]
    if len(problems) > MOST_LISTED:
        lines.append(f"and {len(problems) - MOST_LISTED} more: see --json")
    lines.append(f"{show_count(document['errors'], 'error')}, {show_count(len(problems) - document['errors'], 'note')}")
    return "\n".join(lines) + "\n"
