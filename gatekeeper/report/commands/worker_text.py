"""What `gatekeeper worker check` prints."""

from gatekeeper.core.text import counted
from gatekeeper.report.commands import Document

MANUAL = "docs/reference/worker-protocol.md"


def worker_check_text(document: Document) -> str:
    """Return a line a part of the protocol with what to do, and at the end whether something is to be repaired."""
    lines = []
    width = max(len(part["state"]) for part in document["parts"])
    for part in document["parts"]:
        remedy = f"; {part['remedy']}" if part["remedy"] else ""
        lines.append(f"{part['state']:{width}}  {part['name']}: {part['text']}{remedy}")
    lines += document["log"].splitlines()
    if document["to_repair"]:
        lines.append(f"{counted(document['to_repair'], 'part')} to repair: {MANUAL}")
    else:
        lines.append('nothing to repair; certify it with backend = "worker" and command in [subject] of an SLO file')
    return "\n".join(lines) + "\n"
