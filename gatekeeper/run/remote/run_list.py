"""The runs on a remote host: what each of them is, the list of all, and cancelling one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from gatekeeper import host as this_host
from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import HostLacksError, InputError, did_you_mean
from gatekeeper.core.parse import ParseError, integer, json_object, moment
from gatekeeper.core.text import QUOTED, align_columns, printable
from gatekeeper.core.units import show_seconds
from gatekeeper.run.remote import host_scripts
from gatekeeper.run.remote.ssh import RemoteHost
from gatekeeper.run.remote.ssh_errors import make_malformed_error

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""A name that is no path, no option and means nothing to a shell."""
MARGIN_S = 60.0
"""Beyond the time that a cancelled run may take to end."""


class JobRecord(BaseModel):
    """What the local side writes of a run into its job.json."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    owner: str = Field(min_length=1, max_length=300)
    started: str = Field(max_length=40)
    slo: str = Field(max_length=300)
    inputs_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    options: tuple[str, ...] = Field(strict=False)

    @field_validator("started")
    @classmethod
    def _check_started(cls, started: str) -> str:
        moment(started)  # a ParseError is a ValueError
        return started

    @field_validator("owner", "slo")
    @classmethod
    def _print_plainly(cls, text: str) -> str:
        return printable(text.replace("\n", " "))


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """One run on a remote host."""

    run_id: str
    state: Literal["running", "ended", "died"]
    """Died: it ended without an exit code, killed or by a restart of the host."""
    code: int | None
    """Its exit code, where it ended with one."""
    cancelled_by: str
    """Empty: it was not cancelled."""
    fetched: bool
    finished: bool
    """Its checksums are written: they come last of all."""
    record: JobRecord

    @property
    def age(self) -> str:
        """Return how long ago it was started."""
        return show_seconds(max(0.0, (SystemClock().wall() - moment(self.record.started)).total_seconds()))

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "run": self.run_id,
            "state": self.state,
            "exit_code": self.code,
            "owner": self.record.owner,
            "started": self.record.started,
            "slo": self.record.slo,
            "cancelled_by": self.cancelled_by or None,
            "fetched": self.fetched,
        }


def parse_job(host: str, line: str) -> RemoteJob:
    """Return the run that a line of a remote host describes; any other line is an SshError."""
    match line.split("\t"):
        case [run_id, ("running" | "ended" | "died") as state, code, cancelled_by, fetched, finished, record]:
            pass
        case _:
            raise make_malformed_error(host, "a line that describes no run")
    if not RUN_ID.fullmatch(run_id):
        raise make_malformed_error(host, f"a run whose name is a path: {run_id[:QUOTED]!r}")
    try:
        return RemoteJob(
            run_id, state, integer(code) if code else None, printable(cancelled_by)[:QUOTED], bool(fetched),
            bool(finished), JobRecord.model_validate(json_object(record)),
        )  # fmt: skip
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise make_malformed_error(host, f"job.json: {where}: {first['msg']}") from error
    except ParseError as error:
        raise make_malformed_error(host, str(error)) from error


def read_jobs(host: RemoteHost) -> list[RemoteJob]:
    """Return every run on the remote host, the newest last."""
    lines = host.run(host_scripts.LIST_JOBS, limit_s=120).splitlines()
    jobs = [parse_job(host.name, line) for line in lines if line]
    return sorted(jobs, key=lambda job: job.record.started)


def list_runs(host: RemoteHost) -> dict[str, Any]:
    """Return the runs on a remote host as a document."""
    return {"schema": 1, "host": host.name, "runs": [job.document() for job in read_jobs(host)]}


def render_list(document: Mapping[str, Any]) -> str:
    """Return the list as lines."""
    runs = document["runs"]
    if not runs:
        return f"{document['host']}: no runs\n"
    rows = [("run", "state", "since", "owner", "SLO")]
    rows += [(run["run"], _state(run), run["started"], run["owner"], run["slo"]) for run in runs]
    return "".join(f"{line}\n" for line in align_columns(rows))


def _state(run: Mapping[str, Any]) -> str:
    state = str(run["state"])
    if state == "ended":
        state = f"exit {run['exit_code']}"
    if run["cancelled_by"] and state != "running":
        state = "cancelled"
    return state if run["fetched"] or state == "running" else f"{state}, not fetched"


def find_job(host: RemoteHost, run_id: str | None, jobs: list[RemoteJob]) -> RemoteJob:
    """Return the named run; without a name the running one, else the newest that was not fetched."""
    if run_id is not None:
        for job in jobs:
            if job.run_id == run_id:
                return job
        run_ids = [job.run_id for job in jobs]
        hint = did_you_mean(run_id, run_ids) if run_ids else f"gatekeeper remote list --on {host.name}"
        raise InputError(f"{host.name} has no run {run_id}", hint=hint)
    for wanted in ([job for job in jobs if job.state == "running"], [job for job in jobs if not job.fetched]):
        if wanted:
            return wanted[-1]
    hint = f"gatekeeper remote list --on {host.name} shows its runs"
    raise InputError(f"{host.name}: no run is running, and all that ended are fetched", hint=hint)


class OccupiedError(HostLacksError):
    """Another run holds the host; it ends by itself."""


def occupied_error(host: RemoteHost, job: RemoteJob) -> OccupiedError:
    """Return the error that names the run on the host."""
    return OccupiedError(
        f"{host.name} is locked by {job.record.owner}, run {job.run_id}, for {job.age} (since {job.record.started})",
        hint="wait for that run or end it, two runs would disturb each other: "
        f"gatekeeper remote cancel {job.run_id} --on {host.name}",
    )


def cancel(host: RemoteHost, run_id: str | None, grace_s: float) -> dict[str, Any]:
    """End a run and return how it ended. A run of another owner has to be named."""
    owner = this_host.this_owner()
    jobs = read_jobs(host)
    running = [job for job in jobs if job.state == "running"]
    if run_id is None and not running:
        raise InputError(f"{host.name}: no run is running", hint=f"see: gatekeeper remote list --on {host.name}")
    job = find_job(host, run_id, jobs)
    if run_id is None and job.record.owner != owner:
        hint = f"to end it anyway: gatekeeper remote cancel {job.run_id} --on {host.name}"
        raise InputError(f"the run on {host.name} belongs to {job.record.owner}: {job.run_id}", hint=hint)
    variables = {"run": job.run_id, "who": owner, "grace": str(round(grace_s))}
    how = host.run(host_scripts.CANCEL_RUN, variables, limit_s=grace_s + MARGIN_S).strip()
    if how not in CANCELLED:
        raise make_malformed_error(host.name, "an unknown end of a cancelled run")
    return {"schema": 1, "host": host.name, "run": job.run_id, "how": how}


CANCELLED = {
    "graceful": "ended cleanly, with its servers",
    "killed": "did not end within --grace and was killed",
    "ended": "had already ended",
}
"""How a cancelled run ended."""


def render_cancelled(document: Mapping[str, Any]) -> str:
    """Return how a cancellation went."""
    return f"{document['run']} {CANCELLED[document['how']]}\n"
