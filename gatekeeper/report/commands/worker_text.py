"""What `gatekeeper worker check` prints."""

from gatekeeper.backends.worker_backend.worker_check import WorkerCheck
from gatekeeper.core.text import show_count

MANUAL = "gatekeeper explain worker-protocol"


def worker_check_text(check: WorkerCheck) -> str:
    """Return a line a part of the protocol with what to do, and at the end whether something is to be repaired."""
    lines = []
    width = max(len(part.state) for part in check.parts)
    for part in check.parts:
        remedy = f"; {part.remedy}" if part.remedy else ""
        lines.append(f"{part.state:{width}}  {part.name}: {part.text}{remedy}")
    lines += check.log.splitlines()
    if check.to_repair:
        lines.append(f"{show_count(check.to_repair, 'part')} to repair: {MANUAL}")
    else:
        lines.append('nothing to repair; certify it with backend = "worker" and command in [subject] of an SLO file')
    return "\n".join(lines) + "\n"
