"""The roster: the runs that lie on another machine, and what can be done to one that is named or meant."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gatekeeper import host as this_host
from gatekeeper.core.errors import HostLacksError, InputError, did_you_mean
from gatekeeper.core.text import counted
from gatekeeper.run.remote import upload
from gatekeeper.run.remote.download import Homecoming
from gatekeeper.run.remote.remote_run import FETCHED, RUNS, Courier, Far
from gatekeeper.run.remote.run_registry import Entry, Ledger
from gatekeeper.run.remote.ssh import Link


def listed(far: Far) -> dict[str, Any]:
    """Return every run that lies there, the newest last."""
    with far.connect() as link:
        runs = [
            {
                "run": job["run_id"],
                "state": job["state"],
                "exit_code": (job.get("exit") or {}).get("code"),
                "owner": job["owner"],
                "started": job["started"],
                "command": list(_label(job).get("command") or job["argv"][:1]),
                "slo": _label(job).get("slo"),
                "cancelled": job.get("cancelled"),
                "fetched": _fetched(link, job),
            }
            for job in _jobs(link)
        ]
    return {"schema": 1, "host": far.name, "runs": runs}


def render(document: Mapping[str, Any]) -> str:
    """Return the roster as lines."""
    if not document["runs"]:
        return f"{document['host']}: no runs\n"
    rows = [("run", "state", "since", "owner", "command")]
    rows += [
        (one["run"], _state(one), one["started"], one["owner"], " ".join(one["command"])) for one in document["runs"]
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


def bring(courier: Courier, run_id: str | None, out: Path | None, state: str) -> tuple[str, Homecoming]:
    """Bring a run home; one that is under way is followed first, unless it was to have ended. Also return its verb."""
    ledger = Ledger(out.parent if out is not None else RUNS)
    job = courier.tether.hold(lambda link: _meant(link, run_id, state, courier.far))
    name = str(job["run_id"])
    if state == "ended" and job["state"] == "running":
        raise HostLacksError(
            f"{name} is still under way on {courier.far.name}",
            hint=f"follow it: gatekeeper remote attach {name} --on {courier.far.name}",
        )
    entry = ledger.find(name) or _entry(job, courier.far.name, name)
    if out is not None and Path(entry.out) != out:
        entry = _entry(job, courier.far.name, name, out)
    with ledger.holding(entry):
        return entry.command[0], courier.bring(entry, ledger)


def cancel(far: Far, run_id: str | None, grace_s: float) -> dict[str, Any]:
    """End a run there; return how it went. Somebody else's has to be named."""
    with far.connect() as link:
        job = _meant(link, run_id, "running", far)
        if run_id is None and job["owner"] != this_host.this_owner():
            raise InputError(
                f"the run under way on {far.name} is {job['owner']}'s: {job['run_id']}",
                hint=f"to end it all the same: gatekeeper remote cancel {job['run_id']} --on {far.name}",
            )
        last: dict[str, Any] = {}
        for item in link.stream("cancel", run_id=job["run_id"], grace_s=grace_s, who=this_host.this_owner()):
            last = item if "how" in item else last
    return {"schema": 1, "host": far.name, "run": job["run_id"], "how": last.get("how"), "state": last["job"]["state"]}


def cancelled(document: Mapping[str, Any]) -> str:
    """Say how a cancellation went."""
    how = {
        "graceful": "ended by itself, its servers with it",
        "killed": "did not end in time and was killed",
        "ended": "had ended before",
    }
    return f"{document['run']} {how.get(document['how'], document['how'])}\n"


def _meant(link: Link, run_id: str | None, state: str, far: Far) -> Mapping[str, Any]:
    """Return the run that is named; without a name the one under way, or the newest that ended and was not fetched."""
    jobs = _jobs(link)
    if run_id is not None:
        for job in jobs:
            if job["run_id"] == run_id:
                return job
        known = [str(job["run_id"]) for job in jobs]
        hint = did_you_mean(run_id, known) if known else f"gatekeeper remote list --on {far.name}"
        raise InputError(f"{far.name} has no run {run_id}", hint=hint)
    if state == "running":
        meant = [job for job in jobs if job["state"] == "running"]
    else:
        meant = [job for job in jobs if job["state"] != "running" and not _fetched(link, job)]
    if not meant:
        what = "no run is under way" if state == "running" else "no run waits to be fetched"
        raise InputError(f"{far.name}: {what}", hint=f"gatekeeper remote list --on {far.name} shows what lies there")
    return meant[-1]


def _jobs(link: Link) -> Sequence[Mapping[str, Any]]:
    return sorted(link.ask("jobs")["jobs"], key=lambda job: str(job["started"]))


def _label(job: Mapping[str, Any]) -> Mapping[str, Any]:
    label: Mapping[str, Any] = job.get("label") or {}
    return label


def _fetched(link: Link, job: Mapping[str, Any]) -> bool:
    return bool(link.ask("held", path=f"{upload.folder(str(job['run_id']))}/{FETCHED}").get("sha256"))


def _entry(job: Mapping[str, Any], host: str, run_id: str, out: Path | None = None) -> Entry:
    label = _label(job)
    return Entry(
        run_id=run_id,
        host=host,
        command=tuple(label.get("command") or job["argv"][:1]),
        slo="",
        slo_name=str(label.get("slo") or ""),
        parcel_sha256=str(label.get("parcel") or ""),
        out=str(out or RUNS / run_id),
        started=str(job["started"]),
        installed=tuple(label.get("installed") or ()),
    )


def _state(run: Mapping[str, Any]) -> str:
    state = str(run["state"])
    if state == "finished":
        state = (
            "cancelled"
            if run["cancelled"]
            else f"exit {run['exit_code']}"
            if run["exit_code"] is not None
            else "killed"
        )
    return state if run["fetched"] or state == "running" else f"{state}, not fetched"


def clear(far: Far, keep: int, *, dry_run: bool) -> dict[str, Any]:
    """Remove there all but the newest *keep* runs that were ours and came home.

    What is somebody else's, under way, or was not brought home yet stays.
    """
    owner = this_host.this_owner()
    home = [
        str(one["run"])
        for one in listed(far)["runs"]
        if one["owner"] == owner and one["fetched"] and one["state"] != "running"
    ]
    going = home[:-keep]
    if going and not dry_run:
        with far.connect() as link:
            for run_id in going:
                link.ask("remove", run_id=run_id)
    return {"schema": 1, "host": far.name, "dry_run": dry_run, "removed": going, "kept": home[-keep:]}


def render_pruned(document: Mapping[str, Any]) -> str:
    """Return a line for each run that went, and the sum."""
    verb = "would remove" if document["dry_run"] else "removed"
    lines = [f"{verb}  {run}" for run in document["removed"]]
    gone, kept = (counted(len(document[key]), "run") for key in ("removed", "kept"))
    lines.append(f"{document['host']}: {verb} {gone} that came home from there; {kept} left of those")
    return "\n".join(lines) + "\n"
