"""What `gatekeeper doctor` and `gatekeeper --version` show."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.report.shown_document import Command, Document, Facts, Listing, Node, Section, Table

HEADS = {
    "remote": "the remote host",
    "model": "models of the SLO",
    "backend": "serving systems",
    "program": "programs",
    "host": "host telemetry",
    "now": "this machine now",
    "variable": "variables that make speculation lossy",
}
NOT_INSTALLED = "not installed: {}; how to install each: gatekeeper doctor --json"


def doctor_document(found: Mapping[str, Any]) -> Document:
    """Return what is installed, each fix once with what it is for, and at the end what to do next."""
    nodes: list[Node] = [Listing(versions_text(found["versions"]).splitlines())]
    fixes: dict[str, list[str]] = {}
    for kind, title in HEADS.items():
        items = [item for item in found["items"] if item["kind"] == kind]
        if not items:
            continue
        # One serving system is enough: those that are not installed are no fault.
        listed = [item for item in items if item["found"] or kind != "backend"]
        absence = "set" if kind == "variable" else "missing"
        rows = [
            ("" if item["found"] else absence, item["what"], item["needed_for"], item["found"] or "") for item in listed
        ]
        absent = [item["needed_for"].removeprefix("backend ") for item in items if item not in listed]
        more = [NOT_INSTALLED.format(", ".join(absent))] if absent else []
        nodes.append(Section(title, (Table(("", "", "", ""), rows), Listing(more))))
        for item in listed:
            if item["fix"]:
                fixes.setdefault(item["fix"], []).append(item["needed_for"])
    if fixes:
        remedies = [line for fix, uses in fixes.items() for line in (f"for {', '.join(uses)}:", f"    {fix}")]
        nodes.append(Section("what is missing, and what to do", (Listing(remedies),)))
    missing = "; ".join(found["missing"]) or "nothing"
    lacks = Facts((("ready for", "; ".join(found["ready"])), ("missing for", missing)))
    return Document("doctor", "", (*nodes, lacks, Command(found["next"])))


def versions_text(versions: Mapping[str, str | None]) -> str:
    """Return a line for each version, our own first."""
    return "".join(f"{name} {version or 'not found'}\n" for name, version in versions.items())
