"""`gatekeeper fleet cancel`: end the runs of a fleet that are still going on, on every host at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.fleet.cells import LOOKS_AT_ONCE, read_hosts
from gatekeeper.run.remote import run_list
from gatekeeper.run.remote.run_registry import OPEN, Entry, RunRegistry

GRACE_S = 60.0
"""Until a run that does not end by itself is killed."""


def cancel_all(runs: Path, hosts: Path, only: Sequence[str] = ()) -> dict[str, Any]:
    """Cancel every open run that the registry in *runs* names; return what became of each."""
    remotes = {one.name: one for one in read_hosts(hosts, only)}
    entries = [one for one in RunRegistry(runs).entries() if one.state == OPEN and one.host in remotes]

    def cancel(entry: Entry) -> dict[str, Any]:
        try:
            run_list.cancel(remotes[entry.host], entry.run_id, GRACE_S)
        except GatekeeperError as error:
            return {"host": entry.host, "run": entry.run_id, "says": error.message}
        return {"host": entry.host, "run": entry.run_id, "says": "cancelled"}

    with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="cancel") as pool:
        return {"schema": 1, "runs": list(pool.map(cancel, entries))}
