"""What `gatekeeper doctor` and `gatekeeper --version` print."""

from collections.abc import Mapping

from gatekeeper.core.text import aligned
from gatekeeper.report.commands import Document

HEADS = {
    "remote": "the remote host",
    "model": "models of the SLO",
    "backend": "serving systems",
    "program": "programs",
    "host": "host telemetry",
    "now": "this machine now",
    "variable": "variables that make speculation lossy",
}
NOT_INSTALLED = "  not installed: {}; how to install each: gatekeeper doctor --json"


def doctor_text(document: Document) -> str:
    """Return the tables of what is installed, each fix once with what it is for, and at the end what to do next."""
    lines = [versions_text(document["versions"]).rstrip()]
    fixes: dict[str, list[str]] = {}
    for kind, head in HEADS.items():
        items = [item for item in document["items"] if item["kind"] == kind]
        if not items:
            continue
        # One serving system is enough: those that are not installed are no fault.
        listed = [item for item in items if item["found"] or kind != "backend"]
        absence = "set" if kind == "variable" else "missing"
        rows = [
            ("" if item["found"] else absence, item["what"], item["needed_for"], item["found"] or "") for item in listed
        ]
        lines += ["", head, *(f"  {row}" for row in aligned(rows))]
        if absent := [item["needed_for"].removeprefix("backend ") for item in items if item not in listed]:
            lines += [NOT_INSTALLED.format(", ".join(absent))]
        for item in listed:
            if item["fix"]:
                fixes.setdefault(item["fix"], []).append(item["needed_for"])
    if fixes:
        lines += ["", "what is missing, and what to do"]
        for fix, uses in fixes.items():
            lines += [f"  for {', '.join(uses)}:", f"      {fix}"]
    lines += ["", f"ready for: {'; '.join(document['ready'])}"]
    lines += [f"missing for: {'; '.join(document['missing']) or 'nothing'}", f"next: {document['next']}"]
    return "\n".join(lines) + "\n"


def versions_text(versions: Mapping[str, str | None]) -> str:
    """Return a line for each version, our own first."""
    return "".join(f"{name} {version or 'not found'}\n" for name, version in versions.items())
