"""The inventory: what a machine has for an SLO, told by the gatekeeper there to the one that asks over ssh."""

from pathlib import Path
from typing import Any

from gatekeeper import artifacts, digests, host, inputs
from gatekeeper.backends import own_drafts
from gatekeeper.inputs import Inputs
from gatekeeper.prepare import prepare
from gatekeeper.terms.errors import GatekeeperError, InputError


def take(slo_path: Path) -> dict[str, Any]:
    """Return this machine's facts, its models by name, and the manifest a run would freeze; nothing is measured.

    What ends a run before its first token stands under `refused`, with the exit code it would have.
    """
    given = inputs.read(slo_path)
    occupant = host.occupant()
    document: dict[str, Any] = {
        "schema": 1,
        "host": host.conditions(),
        "sleeps_after": host.sleeps_after(),
        "occupant": occupant.document() if occupant is not None else None,
        "models": _models(given),
        "manifest": None,
        "refused": None,
        "warnings": [],
    }
    if any("digest" not in one for one in document["models"].values()):
        return document
    try:
        ready = prepare(given, Path("logs"), refuse=False)
    except GatekeeperError as error:
        return document | {"refused": _told(error)}
    return document | {
        "manifest": ready.manifest.model_dump(mode="json", by_alias=True),
        "warnings": [f"{one.about}: {one.message}" for one in ready.complaints],
    }


def _models(given: Inputs) -> dict[str, dict[str, Any]]:
    subject = given.slo.subject
    if subject.backend == "scripted":
        return {}
    hashes = digests.HashCache(digests.user_cache())
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
