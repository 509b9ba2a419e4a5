"""The clearance of another machine: runs that came home from it are forgotten there."""

from collections.abc import Mapping
from typing import Any

from gatekeeper import host as this_host
from gatekeeper.remote import roster
from gatekeeper.remote.order import Far
from gatekeeper.reports.wording import counted


def clear(far: Far, keep: int, *, dry_run: bool) -> dict[str, Any]:
    """Remove there all but the newest *keep* runs that were ours and came home.

    What is somebody else's, under way, or was not brought home yet stays.
    """
    owner = this_host.this_owner()
    home = [
        str(one["run"])
        for one in roster.listed(far)["runs"]
        if one["owner"] == owner and one["fetched"] and one["state"] != "running"
    ]
    going = home[:-keep]
    if going and not dry_run:
        with far.connect() as link:
            for run_id in going:
                link.ask("remove", run_id=run_id)
    return {"schema": 1, "host": far.name, "dry_run": dry_run, "removed": going, "kept": home[-keep:]}


def render(document: Mapping[str, Any]) -> str:
    """Return a line for each run that went, and the sum."""
    verb = "would remove" if document["dry_run"] else "removed"
    lines = [f"{verb}  {run}" for run in document["removed"]]
    gone, kept = (counted(len(document[key]), "run") for key in ("removed", "kept"))
    lines.append(f"{document['host']}: {verb} {gone} that came home from there; {kept} left of those")
    return "\n".join(lines) + "\n"
