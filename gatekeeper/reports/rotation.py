"""What a rotation did, as lines to read."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.reports.wording import counted
from gatekeeper.terms.units import show


def render(document: Mapping[str, Any]) -> str:
    """Return a line for each run, those that went first, and the sum at the end."""
    dry = document["dry_run"]
    lines = [f"{'would remove' if dry else 'removed'}  {_of(one)}" for one in document["removed"]]
    lines += [f"kept  {_of(one)}: {'; '.join(one['because'])}" for one in document["kept"]]
    lines += [f"left alone  {one['run']}: {one['because']}" for one in document["left"]]
    lines += [f"can not be removed  {one['run']}: {one['because']}" for one in document["failed"]]
    gone = f"{counted(len(document['removed']), 'run')}, {show(document['bytes'], 'B')}"
    rest = counted(len(document["kept"]) + len(document["left"]) + len(document["failed"]), "run")
    lines.append(f"{document['runs']}: {'would remove' if dry else 'removed'} {gone}; {rest} kept")
    return "\n".join(lines) + "\n"


def _of(one: Mapping[str, Any]) -> str:
    return f"{one['run']}  {one['at'][:16]}Z  {one['slo']}  {one['outcome'].replace('_', ' ')}"
