"""What `gatekeeper worker check` shows."""

from gatekeeper.backends.worker_backend.worker_check import WorkerCheck
from gatekeeper.core.text import show_count
from gatekeeper.report.shown_document import Document, Listing, Note, Table

MANUAL = "gatekeeper explain worker-protocol"


def worker_document(check: WorkerCheck) -> Document:
    """Return a line a part of the protocol with what to do, and at the end whether something is to be repaired."""
    rows = [(part.state, f"{part.name}: {'; '.join(filter(None, (part.text, part.remedy)))}") for part in check.parts]
    end = 'nothing to repair; certify it with backend = "worker" and command in [subject] of an SLO file'
    if check.to_repair:
        end = f"{show_count(check.to_repair, 'part')} to repair: {MANUAL}"
    return Document("worker check", "", (Table(("", ""), rows), Listing(check.log.splitlines()), Note(end)))
