"""The runs on a remote host: list, attach, fetch, cancel and prune."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gatekeeper import host as this_host
from gatekeeper.core.errors import HostLacksError, InputError, did_you_mean
from gatekeeper.core.system.run_directory import RUNS
from gatekeeper.core.text import aligned, counted
from gatekeeper.run.remote.agent.jobs import KILL_WAIT_S
from gatekeeper.run.remote.download import RemoteResult
from gatekeeper.run.remote.remote_run import RemoteHost, RemoteRunner, is_fetched
from gatekeeper.run.remote.run_registry import Entry, RunRegistry
from gatekeeper.run.remote.ssh import Connection

MARGIN_S = 60.0
"""Beyond the time that a cancelled run may take to end."""


def list_runs(remote: RemoteHost) -> dict[str, Any]:
    """Return every run on the remote host, the newest last."""
    with remote.connect() as connection:
        runs = [
            {
                "run": job["run_id"],
                "state": job["state"],
                "exit_code": (job.get("exit") or {}).get("code"),
                "owner": job["owner"],
                "started": job["started"],
                "command": list(Entry.of_job(job, remote.name).command),
                "slo": (job.get("label") or {}).get("slo"),
                "cancelled": job.get("cancelled"),
                "fetched": is_fetched(connection, job),
                "fetched_by": job.get("fetched_by") or None,
            }
            for job in _jobs(connection)
        ]
    return {"schema": 1, "host": remote.name, "runs": runs}


def render_list(document: Mapping[str, Any]) -> str:
    """Return the list as lines."""
    runs = document["runs"]
    if not runs:
        return f"{document['host']}: no runs\n"
    rows = [("run", "state", "since", "owner", "command")]
    rows += [(run["run"], _state(run), run["started"], run["owner"], " ".join(run["command"])) for run in runs]
    return "".join(f"{line}\n" for line in aligned(rows))


def _state(run: Mapping[str, Any]) -> str:
    state = str(run["state"])
    if state == "finished":
        state = f"exit {run['exit_code']}" if run["exit_code"] is not None else "killed"
        state = "cancelled" if run["cancelled"] else state
    return state if run["fetched"] or state == "running" else f"{state}, not fetched"


def fetch(runner: RemoteRunner, run_id: str | None, out: Path | None, *, running: bool) -> tuple[Entry, RemoteResult]:
    """Download a run, the *running* one after it has ended; return its entry and its result."""
    remote = runner.remote
    registry = RunRegistry(out.parent if out is not None else RUNS)
    job = runner.session.do(lambda connection: _find(connection, run_id, remote, running=running))
    name = str(job["run_id"])
    if not running and job["state"] == "running":
        hint = f"follow it: gatekeeper remote attach {name} --on {remote.name}"
        raise HostLacksError(f"{name} is still running on {remote.name}", hint=hint)
    entry = registry.find(name)
    if entry is not None and entry.host != remote.name:
        hint = f"use --on {entry.host}, or name an --output in another folder"
        raise InputError(f"{remote.name} lists {name}, which is a run on {entry.host} in {registry.folder}", hint=hint)
    if entry is None or (out is not None and Path(entry.out) != out):
        entry = Entry.of_job(job, remote.name, out)
    with registry.locked(entry):
        return entry, runner.finish(entry, registry)


def cancel(remote: RemoteHost, run_id: str | None, grace_s: float) -> dict[str, Any]:
    """End a run and return how it ended. A run of another owner has to be named."""
    owner = this_host.this_owner()
    with remote.connect() as connection:
        job = _find(connection, run_id, remote, running=True)
        if run_id is None and job["owner"] != owner:
            hint = f"to end it anyway: gatekeeper remote cancel {job['run_id']} --on {remote.name}"
            raise InputError(f"the run on {remote.name} belongs to {job['owner']}: {job['run_id']}", hint=hint)
        limit_s = grace_s + KILL_WAIT_S + MARGIN_S
        for item in connection.stream("cancel", limit_s, run_id=job["run_id"], grace_s=grace_s, who=owner):
            ended = item
    state = ended["job"]["state"]
    return {"schema": 1, "host": remote.name, "run": job["run_id"], "how": ended["how"], "state": state}


def render_cancelled(document: Mapping[str, Any]) -> str:
    """Return how a cancellation went."""
    how = {
        "graceful": "ended cleanly, with its servers",
        "killed": "did not end within --grace and was killed",
        "ended": "had already ended",
    }
    return f"{document['run']} {how[document['how']]}\n"


def prune(remote: RemoteHost, keep: int, *, dry_run: bool) -> dict[str, Any]:
    """Remove all but the newest *keep* of the runs that this owner started and downloaded; every other run stays.

    A run that only someone else downloaded stays, too: here it may exist nowhere else.
    """
    owner = this_host.this_owner()
    ended = [run for run in list_runs(remote)["runs"] if run["fetched"] and run["state"] != "running"]
    fetched = [str(run["run"]) for run in ended if owner == run["owner"] == run["fetched_by"]]
    removed = fetched[:-keep]
    if removed and not dry_run:
        with remote.connect() as connection:
            for run_id in removed:
                connection.request("remove", run_id=run_id)
    return {"schema": 1, "host": remote.name, "dry_run": dry_run, "removed": removed, "kept": fetched[-keep:]}


def render_pruned(document: Mapping[str, Any]) -> str:
    """Return a line for each removed run, and the sum."""
    verb = "would remove" if document["dry_run"] else "removed"
    lines = [f"{verb}  {run}" for run in document["removed"]]
    removed, remaining = (counted(len(document[key]), "run") for key in ("removed", "kept"))
    lines.append(f"{document['host']}: {verb} {removed} that were downloaded before; {remaining} of those left")
    return "\n".join(lines) + "\n"


def _jobs(connection: Connection) -> Sequence[Mapping[str, Any]]:
    return sorted(connection.request("jobs")["jobs"], key=lambda job: str(job["started"]))


def _find(connection: Connection, run_id: str | None, remote: RemoteHost, *, running: bool) -> Mapping[str, Any]:
    """Return the named run; without a name the running one, or the newest that ended and was not fetched."""
    jobs = _jobs(connection)
    if run_id is not None:
        job = next((job for job in jobs if job["run_id"] == run_id), None)
        if job is None:
            run_ids = [str(job["run_id"]) for job in jobs]
            hint = did_you_mean(run_id, run_ids) if run_ids else f"gatekeeper remote list --on {remote.name}"
            raise InputError(f"{remote.name} has no run {run_id}", hint=hint)
        return job
    candidates = [job for job in jobs if (job["state"] == "running") == running]
    if not running:
        candidates = [job for job in candidates if not is_fetched(connection, job)]
    if not candidates:
        message = "no run is running" if running else "no finished run is left to fetch"
        hint = f"gatekeeper remote list --on {remote.name} shows its runs"
        raise InputError(f"{remote.name}: {message}", hint=hint)
    return candidates[-1]
