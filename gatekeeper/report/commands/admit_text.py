"""What `gatekeeper admit` prints."""

from gatekeeper.report.commands import Document
from gatekeeper.report.outcome_signs import write_as_words

WORDS = {0: "admitted", 1: "refused, an objective is not met", 3: "refused"}


def admit_text(document: Document) -> str:
    """Return the first reason in the first line, then what to do next and what was checked."""
    code = document["exit_code"]
    word = write_as_words(document["reason"])
    reason = f"{word}: " if code == 3 and not document["because"].startswith(word) else ""
    run = f" ({document['run']})" if document["run"] else ""
    lines = [f"{document['slo']}: {WORDS[code]}: {reason}{document['because']}{run}", f"  next: {document['next']}"]
    lines += [f"  {check['check']:<11} {check['detail']}" for check in document["checks"]]
    for link in document.get("chain", ()):
        host = ", ".join(str(link["host"][key]) for key in ("chip", "os") if link["host"][key])
        people = " and ".join(link["by"]) or "unknown"
        lines.append(f"  {link['step']:<11} by {people} on {host or 'unknown'}, {link['at'][:16]}Z")
    lines += [
        f"  {part['outcome']}: {part['part']}: {part['detail']}"
        for part in document.get("server", ())
        if part["outcome"] != "as certified"
    ]
    lines += [f"  skipped {run['run']}: {run['because']}" for run in document["passed_over"]]
    tries = document.get("tries")
    if tries is not None and (tries["not_passed"] or tries["at_least"]):
        finished, failed = tries["finished"], tries["not_passed"]
        least = "at least " if tries["at_least"] and failed else ""
        counts = f"{least}{failed} of {finished} finished runs of this did not pass"
        if not failed:  # "at least 0 of 1" says no more than this
            counts = "no finished run of this is known to have failed; there may be more runs"
        why = f" ({tries['because']})" if tries["at_least"] else ""
        lines.append(f"  tries       {counts}{why}")
    return "\n".join(lines) + "\n"
