"""The survey of a far host before a run: what stops it, what is worth saying. Facts in, findings out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from gatekeeper import host
from gatekeeper.backends import own_drafts
from gatekeeper.backends.models import artifacts
from gatekeeper.core import files, inputs
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError
from gatekeeper.core.inputs import Inputs
from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import show_bytes, show_seconds
from gatekeeper.host.host_lock import Holder
from gatekeeper.run.prepare import prepare
from gatekeeper.run.remote.reconnect import Say
from gatekeeper.run.remote.upload import Wanted
from gatekeeper.run.stages.freeze import host_doubts

SKEW_NOTED_S = 2.0
"""More than ssh and a busy machine add to the comparison of two clocks."""
SKEW_MOST_S = 300.0
"""A policy expires by that clock: minutes apart, nobody could say when. Kerberos draws the line here, too."""
ENVIRONMENT_BYTES = 2.5e9
"""What an environment takes while pip fills it: mlx, transformers, their wheels and the copies of them."""
RUN_BYTES = 200e6
"""Records of a long soak, and room for the logs of servers."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing found before the run."""

    weight: Literal["stops", "note"]
    about: str
    message: str
    hint: str = ""


def heed(name: str, remarks: Sequence[Remark], say: Say) -> None:
    """Say what was found on the machine *name*; what stops the run is a HostLacksError, before anything was started."""
    stops = [one for one in remarks if one.weight == "stops"]
    for one in remarks:
        if one.weight == "note":
            say(one.about, f"{one.message}; {one.hint}" if one.hint else one.message)
    if stops:
        first = f"{name}: {stops[0].about}: {stops[0].message}"
        lines = [
            f"{one.about}: {one.message}" + (f"; {one.hint}" if one.hint != stops[0].hint else "") for one in stops[1:]
        ]
        raise HostLacksError("\n".join((first, *lines)), hint=stops[0].hint)


def of_link(hello: Mapping[str, Any], *, installed: bool, ships_bytes: float = 0.0) -> list[Remark]:
    """Judge what the connection itself tells: the clock and the disk."""
    found = []
    skew, off = float(hello.get("skew_s", 0.0)), float(hello.get("round_trip_s", 0.0)) / 2
    if abs(skew) - off > SKEW_NOTED_S:
        apart = (
            f"its clock is {show_seconds(round(abs(skew), 1))} {'ahead of' if skew > 0 else 'behind'} this machine's"
        )
        stops = abs(skew) - off > SKEW_MOST_S
        hint = "set it by the network on both machines (macOS: sudo sntp -sS time.apple.com): certificates expire by it"
        found.append(Remark("stops" if stops else "note", "clock", apart, hint))
    need = RUN_BYTES + ships_bytes + (0.0 if installed else ENVIRONMENT_BYTES)
    free = float(hello.get("free_bytes", 0))
    if free < need:
        found.append(
            Remark(
                "stops",
                "disk",
                f"{show_bytes(free)} are free there, this run needs about {show_bytes(need)}",
                "make room there, or name another `home` in hosts.toml",
            )
        )
    return found


def of_inventory(
    inventory: Mapping[str, Any],
    slo: Slo,
    wanted: Sequence[Wanted],
    earlier: Manifest | None,
    ships: frozenset[str] = frozenset(),
    *,
    now: datetime,
) -> list[Remark]:
    """Judge what the gatekeeper there tells: models, the host against the SLO and against the *earlier* run there."""
    found = [*_models(inventory["models"], wanted, earlier, ships)]
    if inventory.get("occupant"):
        held = Holder(**inventory["occupant"]).describe(now)
        hint = "two runs would measure each other: wait for it, or end it over there"
        found.append(Remark("stops", "host", f"it is occupied by {held}", hint))
    refused = inventory.get("refused")
    if refused is not None:
        found.append(Remark("stops", "the run", str(refused["message"]), str(refused["hint"])))
    facts = inventory["host"]
    if "host" in slo.model_fields_set:
        found += [
            Remark("note", "host", doubt.replace("this host", "that host")) for doubt in host_doubts(slo.host, facts)
        ]
    if facts.get("power_source") == "battery":
        found.append(Remark("note", "power", "it runs on battery: the run is unproven if that changes", "plug it in"))
    if inventory.get("sleeps_after"):
        after = show_seconds(float(inventory["sleeps_after"]))
        hint = "caffeinate keeps it awake during the run; for the time between: sudo pmset -c sleep 0"
        found.append(Remark("note", "sleep", f"it goes to sleep after {after} of rest", hint))
    if earlier is not None and inventory.get("manifest") is not None:
        apart = differences(earlier, Manifest.model_validate(inventory["manifest"]))
        if apart:
            told = f"not as in the run of {earlier.frozen_at} there: {', '.join(apart)}"
            found.append(Remark("note", "earlier run", told, "the two runs can not be compared"))
    return found


def _models(
    there: Mapping[str, Mapping[str, Any]], wanted: Sequence[Wanted], earlier: Manifest | None, ships: frozenset[str]
) -> Iterator[Remark]:
    before = {one.name: one.digest for one in (earlier.target, *earlier.drafts) if one} if earlier is not None else {}
    for one in wanted:
        found = there.get(one.name, {})
        if "missing" in found:
            hint = str(found["hint"])
            if one.here is not None and one.name in ships:
                hint = "bring it along with --ship-models, or say in hosts.toml where it lies there: models"
            yield Remark("stops", f"model {one.name}", f"it is not there: {found['missing']}", hint)
        elif one.here is not None and found.get("digest") != one.here.digest:
            yield Remark(
                "stops",
                f"model {one.name}",
                f"it is another one there ({_short(found.get('digest'))}) than here ({_short(one.here.digest)})",
                "fetch the same revision on both machines, or let one of the two go",
            )
        elif one.here is None and one.name in before and found.get("digest") != before[one.name]:
            told = f"it was {_short(before[one.name])} in the last run there, and is {_short(found.get('digest'))}"
            yield Remark("note", f"model {one.name}", told, "the two runs can not be compared")


def _short(digest: object) -> str:
    return str(digest)[:12]


def take(slo_path: Path) -> dict[str, Any]:
    """Return this machine's facts, its models by name, and the manifest a run would freeze; nothing is measured.

    What ends a run before its first token stands under `refused`, with the exit code it would have.
    """
    given = inputs.read(slo_path)
    holder = host.lock_holder()
    document: dict[str, Any] = {
        "schema": 1,
        "host": host.conditions(),
        "sleeps_after": host.idle_sleep_seconds(),
        "occupant": holder.document() if holder is not None else None,
        "models": _models_of(given),
        "manifest": None,
        "refused": None,
        "warnings": [],
    }
    if any("digest" not in one for one in document["models"].values()):
        return document
    try:
        ready = prepare(given, Path("logs"), measuring=False)
    except GatekeeperError as error:
        return document | {"refused": _told(error)}
    return document | {
        "manifest": ready.manifest.model_dump(mode="json", by_alias=True),
        "warnings": [f"{one.about}: {one.message}" for one in ready.complaints],
    }


def _models_of(given: Inputs) -> dict[str, dict[str, Any]]:
    subject = given.slo.subject
    if subject.backend == "scripted":
        return {}
    hashes = files.HashCache(files.user_hash_cache())
    drafts = (name for name in subject.drafts if name not in own_drafts(subject.backend))
    found: dict[str, dict[str, Any]] = {}
    for name in (subject.target, *drafts):
        try:
            model = artifacts.freeze(name, artifacts.find(name, given.base, subject.backend), hashes)
            found[name] = {"digest": model.digest, "bytes": model.bytes}
        except InputError as error:
            found[name] = {"missing": error.message, "hint": error.hint}
    return found


def _told(error: GatekeeperError) -> dict[str, Any]:
    return {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
