"""The check of `--resume`: a run is continued only where nothing that it froze has changed; else it says what did."""

from gatekeeper.core.errors import HostLacksError, InputError
from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.system.inputs import load_manifest
from gatekeeper.core.system.run_directory import MANIFEST, RunDirectory

PART_NAMES = {
    "slo": "the SLO file",
    "profile": "the soak profile",
    "canaries": "the canaries",
    "target": "the target",
    "drafts": "the drafts",
    "versions": "the versions",
    "backend": "the backend",
    "sampling": "the sampling",
    "reading": "how prompts are read",
}
"""Parts of a manifest, with their names in messages."""


def verify_unchanged(now: Manifest, stored: RunDirectory) -> str:
    """Return the stored manifest's text; raise InputError or HostLacksError where something it froze has changed."""
    text = stored.read(MANIFEST).decode()
    then = load_manifest(text.encode())
    changed = differences(then, now)
    inputs_changed = [part for part in changed if not part.startswith("host.")]
    if inputs_changed:
        names = dict.fromkeys(PART_NAMES.get(part.partition(".")[0], part) for part in inputs_changed)
        hint = "start a new run: a verdict must not mix two states"
        raise InputError(f"{stored.path}: {', '.join(names)} changed since this run began", hint=hint)
    if changed:
        keys = [part.removeprefix("host.") for part in changed]
        changes = ", ".join(f"{key} was {then.host.get(key)!r}, is {now.host.get(key)!r}" for key in keys)
        message = f"{stored.path}: this host differs from the one on which the run began: {changes}"
        hint = "continue the run where it began, or start a new one: a verdict must not mix two states"
        raise HostLacksError(message, hint=hint)
    return text
