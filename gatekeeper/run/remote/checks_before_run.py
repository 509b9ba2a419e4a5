"""Checks of a remote host before a run: what prevents it, and what the user should know."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.analysis.plan.complaints.wrong_host import host_doubts
from gatekeeper.backends import stored_models
from gatekeeper.backends.models import artifacts
from gatekeeper.core.clock import SystemClock
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError
from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.parse import moment
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.file_digests import HashCache, user_hash_cache
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.units import show_bytes, show_seconds
from gatekeeper.host.host_lock import Holder
from gatekeeper.run.prepare import prepare
from gatekeeper.run.remote.reconnect import Say
from gatekeeper.run.remote.upload import NamedModel

SKEW_NOTED_S = 2.0
"""More than ssh and a busy machine add to the comparison of two clocks."""
SKEW_MOST_S = 300.0
"""A policy expires by that clock: minutes apart, its end would be unclear. Kerberos has the same limit."""
ENVIRONMENT_BYTES = 2.5e9
"""What an environment takes while pip fills it: mlx, transformers, their wheels and the copies of them."""
RUN_BYTES = 200e6
"""Records of a long soak, and room for the logs of servers."""
INCOMPARABLE = "the two runs cannot be compared"


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing found before the run; it may prevent the run."""

    about: str
    message: str
    hint: str = ""
    stops: bool = True
    occupied: bool = False
    """Another run is the reason; it ends by itself."""


class OccupiedError(HostLacksError):
    """Another run holds the host."""


def report(name: str, remarks: Sequence[Remark], say: Say) -> None:
    """Report what was found on the host *name*; what prevents the run is raised as one HostLacksError."""
    stops = [remark for remark in remarks if remark.stops]
    for remark in remarks:
        if not remark.stops:
            say(remark.about, f"{remark.message}; {remark.hint}" if remark.hint else remark.message)
    if stops:
        hint = stops[0].hint
        lines = [f"{name}: {stops[0].about}: {stops[0].message}"]
        lines += [
            f"{remark.about}: {remark.message}" + (f"; {remark.hint}" if remark.hint != hint else "")
            for remark in stops[1:]
        ]
        kind = OccupiedError if all(remark.occupied for remark in stops) else HostLacksError
        raise kind("\n".join(lines), hint=hint)


def check_clock(hello: Mapping[str, Any]) -> Iterator[Remark]:
    """Compare the clocks, as far as the connection could."""
    skew, uncertainty = float(hello.get("skew_s", 0.0)), float(hello.get("round_trip_s", 0.0)) / 2
    if abs(skew) - uncertainty > SKEW_NOTED_S:
        direction = "ahead of" if skew > 0 else "behind"
        apart, most = show_seconds(round(abs(skew), 1)), show_seconds(SKEW_MOST_S)
        message = f"its clock is {apart} {direction} the local clock (at most {most} allowed)"
        hint = "synchronize both clocks (macOS: sudo sntp -sS time.apple.com): certificates expire by them"
        yield Remark("clock", message, hint, stops=abs(skew) - uncertainty > SKEW_MOST_S)


def check_disk(hello: Mapping[str, Any], *, installed: bool, upload_bytes: float = 0.0) -> Iterator[Remark]:
    """Compare the free space with what the run, the upload and the installation take."""
    need = RUN_BYTES + upload_bytes + (0.0 if installed else ENVIRONMENT_BYTES)
    free = float(hello.get("free_bytes", 0))
    if free < need:
        message = f"{show_bytes(free)} free, this run needs about {show_bytes(need)}"
        yield Remark("disk", message, "free disk space on that host, or set another `home` in hosts.toml")


def check_inventory(
    inventory: Mapping[str, Any],
    slo: Slo,
    models: Sequence[NamedModel],
    earlier: Manifest | None,
    shippable: frozenset[str] = frozenset(),
    *,
    now: datetime,
) -> Iterator[Remark]:
    """Check the remote host's inventory against the SLO, the local models and the *earlier* run on that host."""
    yield from _check_models(inventory["models"], models, earlier, shippable)
    if inventory.get("occupant"):
        holder = Holder(**inventory["occupant"]).describe(now)
        hint = "wait for that run, or end it on that host: two runs would disturb each other"
        yield Remark("host", f"locked by {holder}", hint, occupied=True)
    if (refused := inventory.get("refused")) is not None:
        yield Remark("the run", str(refused["message"]), str(refused["hint"]))
    facts = inventory["host"]
    if "host" in slo.model_fields_set:
        for doubt in host_doubts(slo.host, facts):
            yield Remark("host", doubt.replace("this host", "that host"), stops=False)
    if facts.get("power_source") == "battery":
        yield Remark("power", "on battery: the run is unproven if this changes during it", "plug it in", stops=False)
    if inventory.get("sleeps_after"):
        message = f"goes to sleep after {show_seconds(float(inventory['sleeps_after']))} without input"
        hint = "caffeinate keeps it awake during a run; between runs: sudo pmset -c sleep 0"
        yield Remark("sleep", message, hint, stops=False)
    if earlier is not None and inventory.get("manifest") is not None:
        apart = differences(earlier, Manifest.model_validate(inventory["manifest"]))
        if apart:
            message = f"changed since the run of {earlier.frozen_at} on this host: {', '.join(apart)}"
            yield Remark("earlier run", message, INCOMPARABLE, stops=False)


def _check_models(
    remote: Mapping[str, Mapping[str, Any]],
    models: Sequence[NamedModel],
    earlier: Manifest | None,
    shippable: frozenset[str],
) -> Iterator[Remark]:
    frozen = () if earlier is None else (earlier.target, *earlier.drafts)
    before = {model.name: model.digest for model in frozen if model is not None}
    for local in models:
        there, about = remote.get(local.name, {}), f"model {local.name}"
        digest = str(there.get("digest"))
        if "missing" in there:
            hint = "upload it with --ship-models, or set its remote path under `models` in hosts.toml"
            hint = hint if local.name in shippable else str(there.get("hint", ""))
            yield Remark(about, f"not on the remote host: {there['missing']}", hint)
        elif local.model is not None and digest != local.model.digest:
            message = f"the remote files ({digest[:12]}) are not the local ones ({local.model.digest[:12]})"
            yield Remark(about, message, "download the same revision on both machines, or delete one of the two copies")
        elif local.model is None and digest != before.get(local.name, digest):
            message = f"changed since the last run there, from {before[local.name][:12]} to {digest[:12]}"
            yield Remark(about, message, INCOMPARABLE, stops=False)


def refuse_occupied(name: str, jobs: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a host where one of *jobs* is running: an installation would disturb its measurement."""
    for job in jobs:
        if job["state"] == "running":
            raise occupied_error(name, job)


def occupied_error(name: str, job: Mapping[str, Any]) -> OccupiedError:
    """Return the error that names the run on the host."""
    begun = moment(str(job["started"]))
    age = show_seconds(max(0.0, (SystemClock().wall() - begun).total_seconds()))
    return OccupiedError(
        f"{name} is locked by {job['owner']}, run {job['run_id']}, for {age}",
        hint="wait for that run or end it, two runs would disturb each other: "
        f"gatekeeper remote cancel {job['run_id']} --on {name}",
    )


def inventory(slo_path: Path) -> dict[str, Any]:
    """Return this machine's facts, its models by name, and the manifest a run would freeze; nothing is measured.

    What would stop a run before its first token is under `refused`, with its exit code.
    """
    slo_inputs = read_inputs(slo_path)
    holder = host.lock_holder()
    document: dict[str, Any] = {
        "schema": 1,
        "host": host.facts(),
        "sleeps_after": host.idle_sleep_seconds(),
        "occupant": holder.document() if holder is not None else None,
        "models": _models(slo_inputs),
        "manifest": None,
        "refused": None,
        "warnings": [],
    }
    if any("digest" not in model for model in document["models"].values()):
        return document
    try:
        ready = prepare(slo_inputs, Path(), measuring=False)
    except GatekeeperError as error:
        refused = {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
        return document | {"refused": refused}
    return document | {
        "manifest": ready.manifest.document(),
        "warnings": [f"{complaint.about}: {complaint.message}" for complaint in ready.complaints],
    }


def _models(inputs: Inputs) -> dict[str, dict[str, Any]]:
    subject = inputs.slo.subject
    hashes = HashCache(user_hash_cache())
    documents: dict[str, dict[str, Any]] = {}
    for name in stored_models(subject):
        try:
            model = artifacts.freeze(name, artifacts.find(name, inputs.base, subject.backend), hashes)
            documents[name] = {"digest": model.digest, "bytes": model.bytes}
        except InputError as error:
            documents[name] = {"missing": error.message, "hint": error.hint}
    return documents
