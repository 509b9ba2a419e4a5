"""What `versus` and `bisect` print."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.core.metrics import BY_NAME, DECODE_RATIO
from gatekeeper.core.units import percent, show, show_seconds

_RATIO = BY_NAME[DECODE_RATIO]


def versus(document: Mapping[str, Any]) -> str:
    """Return B over A, metric by metric, with what differs between them."""
    lines = [f"{document['slo']}, {document['workload']}: {show_seconds(document['seconds'])}, B over A"]
    for key in ("a", "b"):
        side = document[key]
        versions = ", ".join(f"{name} {version}" for name, version in side["versions"].items())
        lines.append(f"{side['side']}: {side['name']}{f' ({versions})' if versions else ''}")
    for row in document["metrics"]:
        if row["center"] is None:
            lines.append(f"{row['metric']}: {row['says']}: {row['because']}")
            continue
        metric = BY_NAME[row["metric"]]
        shown = metric if metric.relative or metric.name == "token_agreement" else _RATIO
        span = shown.show_range(row["lo"], row["hi"])
        says = (
            f"{span}: {row['says']}" if row["says"] else f"{percent(row['center'])} of the canaries have equal answers"
        )
        lines.append(f"{row['metric']}: {says}")
    if document["differences"]:
        lines.append(f"differs: {', '.join(document['differences'])}")
    lines += [f"run: {document['run']}"] if document["run"] else []
    return "\n".join(lines) + "\n"


def bisect(document: Mapping[str, Any]) -> str:
    """Return each tested version with its answer, and the first bad one."""
    metric = BY_NAME[document["metric"]]
    bound, limit = document["bound"].replace("_", " "), document["threshold"]
    good = f", good: {bound} {metric.show(limit)}" if limit is not None else ""
    lines = [f"{document['slo']}, {document['workload']}: {metric.name}{good}"]
    for step in document["steps"]:
        if step["center"] is None:
            lines.append(f"  {step['name']}: {step['answer']}: {step['because']}")
            continue
        seen = metric.show_range(step["lo"], step["hi"])
        took = f", {show_seconds(step['seconds'])}" if step.get("seconds") else ""
        why = f": {step['because']}" if step["because"] else ""
        lines.append(f"  {step['name']}: {step['answer'] or 'tested'}, {seen} on {step['n']} canaries{took}{why}")
    if document["first_bad"]:
        lines.append(f"first bad: {document['first_bad']}; last good: {document['last_good']}")
    if document["also_differs"]:
        lines.append(f"differs between them, too: {', '.join(document['also_differs'])}")
    if document["because"]:
        lines.append(f"not found: {document['because']}")
    if document["hint"]:
        lines.append(f"hint: {document['hint']}")
    if document["reproduce"]:
        lines.append(f"again: {document['reproduce']}")
    if document["environments"]:
        place = document["environments"]
        lines.append(
            f"environments: {show(place['bytes'], 'B')} in {place['folder']}; to free it: rm -r {place['folder']}"
        )
    lines.append(f"run: {document['run']}")
    return "\n".join(lines) + "\n"
