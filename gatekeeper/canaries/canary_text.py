"""What `canaries import` and `canaries check` print for people."""

from typing import Any

from gatekeeper.core.text import counted

SHOWN = 30
"""Problems of a set that are listed; --json has all."""


def imported(document: dict[str, Any]) -> str:
    """Return what was imported, how well it mirrors the traffic, and the lines for an SLO file."""
    made = sum(one["canaries"] for one in document["workloads"])
    repeats = f"{document['repeated']} of them repeats"
    lines = [f"{document['requests']} requests, {repeats}; {made} canaries in {document['output']}"]
    lines += [f"  left out {one['count']}: {one['why']} (first: {one['first']})" for one in document["unusable"]]
    for one in document["workloads"]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in one["expect"].items())
        lines.append(
            f"  {one['file']:<24} {one['canaries']:>4} of {one['distinct']} distinct, "
            f"{100 * one['share']:.1f} % of the requests; expects: {kinds}"
        )
    mirror, answers = document["mirror"], ""
    if mirror["answer_difference"] is not None:
        answers = f", of answer lengths by at most {mirror['answer_difference']:.3f}"
    lines.append(
        f"mix: {100 * mirror['overlap']:.1f} % as in the logs by workload and length; the distributions of prompt "
        f"lengths differ by at most {mirror['prompt_difference']:.3f}{answers}"
    )
    found = document["personal_data"]
    if found is None:
        lines.append("personal data: kept as it is")
    else:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items())) or "none found"
        lines.append(f"personal data replaced: {kinds}; review {document['review']}, then delete it")
        lines.append("names of people in sentences are not found: read the canaries before you share them")
    lines += ["", "Add to an SLO file in a folder beside the one of the canaries:"]
    folder = document["output"].rstrip("/").rpartition("/")[2]
    for one in document["workloads"]:
        lines += [
            "[[workload]]", f'name = "{one["name"]}"', f'tier = "{one["tier"]}"',
            f'canaries = "{folder}/{one["name"]}"',
        ]  # fmt: skip
    lines += ["[soak]", f'profile = "../canaries/{folder}/profile.toml"']
    return "\n".join(lines) + "\n"


def checked(document: dict[str, Any]) -> str:
    """Return the sets with what they suffice for, and their problems."""
    lines = []
    for one in document["sets"]:
        enough = ", ".join(one["quantiles"]) or "no quantile"
        lines.append(
            f"{one['file']}: {one['canaries']} canaries, {one['expect']} with expectation; enough for {enough}"
        )
    problems = document["problems"]
    lines += [f"{one['weight']}: {one['where']}: {one['kind']}: {one['message']}" for one in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"and {len(problems) - SHOWN} more: see --json")
    lines.append(f"{counted(document['errors'], 'error')}, {counted(len(problems) - document['errors'], 'note')}")
    return "\n".join(lines) + "\n"
