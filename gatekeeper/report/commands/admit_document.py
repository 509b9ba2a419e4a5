"""What `gatekeeper admit` shows."""

from gatekeeper.report.commands import JsonObject
from gatekeeper.report.outcome_signs import write_as_words
from gatekeeper.report.shown_document import Command, Document, Listing, Table

WORDS = {0: "admitted", 1: "refused, an objective is not met", 3: "refused"}


def admit_document(answer: JsonObject) -> Document:
    """Return the first reason in the headline, then what to do next and what was checked."""
    code = answer["exit_code"]
    word = write_as_words(answer["reason"])
    reason = f"{word}: " if code == 3 and not answer["because"].startswith(word) else ""
    run = f" ({answer['run']})" if answer["run"] else ""
    rows = [(check["check"], check["detail"]) for check in answer["checks"]]
    for link in answer.get("chain", ()):
        host = ", ".join(str(link["host"][key]) for key in ("chip", "os") if link["host"][key])
        people = " and ".join(link["by"]) or "unknown"
        rows.append((link["step"], f"by {people} on {host or 'unknown'}, {link['at'][:16]}Z"))
    if (tries := answer.get("tries")) is not None and (tries["not_passed"] or tries["at_least"]):
        rows.append(("tries", _describe_tries(tries)))
    remarks = [
        f"{part['outcome']}: {part['part']}: {part['detail']}"
        for part in answer.get("server", ())
        if part["outcome"] != "as certified"
    ]
    remarks += [f"skipped {skipped['run']}: {skipped['because']}" for skipped in answer["passed_over"]]
    headline = f"{answer['slo']}: {WORDS[code]}: {reason}{answer['because']}{run}"
    return Document("admit", headline, (Command(answer["next"]), Table(("", ""), rows), Listing(remarks)))


def _describe_tries(tries: JsonObject) -> str:
    finished, failed = tries["finished"], tries["not_passed"]
    least = "at least " if tries["at_least"] else ""
    counts = f"{least}{failed} of {finished} finished runs of this did not pass"
    if not failed:  # "at least 0 of 1" says no more than this
        counts = "no finished run of this is known to have failed; there may be more runs"
    return f"{counts} ({tries['because']})" if tries["at_least"] else counts
