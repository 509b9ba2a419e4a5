"""What `canaries import` and `canaries check` print for people."""

import json
from pathlib import Path
from typing import Any

from gatekeeper.core.text import counted

MOST_LISTED = 30
"""Problems of a set that are listed; --json has all."""


def import_text(document: dict[str, Any]) -> str:
    """Return what was imported, how well it mirrors the traffic, and the lines for an SLO file."""
    total = sum(workload["canaries"] for workload in document["workloads"])
    repeats = f"{document['repeated']} of them repeats"
    lines = [f"{document['requests']} requests, {repeats}; {total} canaries in {document['output']}"]
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
                f"  {kept['file']:<24} {counted(kept['count'], 'conversation')}, {counted(kept['turns'], 'turn')}"
            )
    mirror, answers = document["mirror"], ""
    if mirror["answer_difference"] is not None:
        answers = f", of answer lengths by at most {mirror['answer_difference']:.3f}"
    lines.append(
        f"mix: {100 * mirror['overlap']:.1f} % as in the logs by workload and length; the distributions of prompt "
        f"lengths differ by at most {mirror['prompt_difference']:.3f}{answers}"
    )
    replaced = document["personal_data"]
    if replaced is None:
        lines.append("personal data: kept as it is")
    else:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(replaced.items())) or "none found"
        lines.append(f"personal data replaced: {kinds}; review {document['review']}, then delete it")
        lines.append("names of people in sentences are not found: read the canaries before you share them")
    lines += ["", "Add to an SLO file (paths relative to it work, too):"]
    folder = Path(document["output"]).absolute()
    for workload in document["workloads"]:
        lines += [
            "[[workload]]", f'name = "{workload["name"]}"', f'tier = "{workload["tier"]}"',
            f"canaries = {_toml_text(folder / workload['file'])}",
        ]  # fmt: skip
    lines += ["[soak]", f"profile = {_toml_text(folder / 'profile.toml')}"]
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
    lines.append(f"{counted(document['errors'], 'error')}, {counted(len(problems) - document['errors'], 'note')}")
    return "\n".join(lines) + "\n"
