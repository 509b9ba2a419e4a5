"""What is done on every host of a fleet at once: end its runs, delete old ones."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.text import counted
from gatekeeper.fleet.cells import LOOKS_AT_ONCE, read_hosts
from gatekeeper.run.remote import run_list
from gatekeeper.run.remote.remote_run import RemoteHost
from gatekeeper.run.remote.run_registry import OPEN, Entry, RunRegistry

GRACE_S = 60.0
"""Until a run that does not end by itself is killed."""


def cancel_all(runs: Path, hosts: Path, only: Sequence[str] = ()) -> dict[str, Any]:
    """Cancel every open run that the registry in *runs* names; return what became of each."""
    remotes = {remote.name: remote for remote in read_hosts(hosts, only)}
    entries = [entry for entry in RunRegistry(runs).entries() if entry.state == OPEN and entry.host in remotes]

    def cancel(entry: Entry) -> dict[str, Any]:
        row = {"host": entry.host, "run": entry.run_id}
        try:
            run_list.cancel(remotes[entry.host], entry.run_id, GRACE_S)
        except GatekeeperError as error:
            return row | {"says": error.message, "error": True}
        return row | {"says": "cancelled", "error": False}

    with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="cancel") as pool:
        return {"schema": 1, "runs": list(pool.map(cancel, entries))}


def prune_all(hosts: Path, keep: int, only: Sequence[str] = ()) -> dict[str, Any]:
    """Delete your downloaded runs on every host but the newest *keep*; return what each host removed, or its error."""

    def prune(remote: RemoteHost) -> dict[str, Any]:
        try:
            removed = run_list.prune(remote, keep, dry_run=False)["removed"]
        except GatekeeperError as error:
            return {"host": remote.name, "removed": [], "says": error.message, "error": True}
        says = f"{counted(len(removed), 'run')} removed"
        return {"host": remote.name, "removed": removed, "says": says, "error": False}

    with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="prune") as pool:
        return {"schema": 1, "hosts": list(pool.map(prune, read_hosts(hosts, only)))}
