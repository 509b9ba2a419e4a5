"""What `gatekeeper prune` prints."""

from gatekeeper.core.text import counted
from gatekeeper.core.units import show
from gatekeeper.report.commands import Document
from gatekeeper.report.phrases import spaced


def prune_text(document: Document) -> str:
    """Return a line for each run, the removed ones first, and the sum at the end."""
    removed = "would remove" if document["dry_run"] else "removed"
    lines = [f"{removed}  {_run(run)}" for run in document["removed"]]
    lines += [f"kept  {_run(run)}: {'; '.join(run['because'])}" for run in document["kept"]]
    lines += [f"left alone  {run['run']}: {run['because']}" for run in document["left"]]
    lines += [f"cannot be removed  {run['run']}: {run['because']}" for run in document["failed"]]
    gone = f"{counted(len(document['removed']), 'run')}, {show(document['bytes'], 'B')}"
    rest = counted(len(document["kept"]) + len(document["left"]) + len(document["failed"]), "run")
    lines.append(f"{document['runs']}: {removed} {gone}; {rest} kept")
    return "\n".join(lines) + "\n"


def _run(run: Document) -> str:
    return f"{run['run']}  {run['at'][:16]}Z  {run['slo']}  {spaced(run['outcome'])}"
