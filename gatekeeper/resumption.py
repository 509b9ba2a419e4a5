"""The resumption of a stored run: taken up only where everything that was frozen is as it was, the host included."""

from gatekeeper import store
from gatekeeper.casefile import fixed_in, lay_plan, load_manifest
from gatekeeper.prepare import Prepared
from gatekeeper.terms.errors import HostLacksError, InputError
from gatekeeper.terms.manifest import differences, sha256

SPOKEN = {
    "slo": "the SLO file",
    "profile": "the soak profile",
    "canaries": "the canaries",
    "target": "the target",
    "drafts": "the drafts",
    "versions": "the versions",
    "backend": "the backend",
    "sampling": "the sampling",
}
"""What people call the parts of a manifest."""


def as_frozen(ready: Prepared, directory: store.RunDirectory) -> Prepared:
    """Take up the manifest of the stored run, once everything it froze is found unchanged."""
    text = directory.read("manifest.json").decode()
    manifest = load_manifest(text.encode())
    now, then = ready.manifest, manifest
    changed = differences(then, now)
    inputs_changed = [part for part in changed if not part.startswith("host.")]
    if inputs_changed:
        named = dict.fromkeys(SPOKEN.get(part.partition(".")[0], part) for part in inputs_changed)
        raise InputError(
            f"{directory.path}: {', '.join(named)} changed since this run began",
            hint="start a new run: one verdict can not rest on two states",
        )
    if changed:
        keys = [part.removeprefix("host.") for part in changed]
        said = ", ".join(f"{key} was {then.host.get(key)!r}, is {now.host.get(key)!r}" for key in keys)
        raise HostLacksError(
            f"{directory.path}: this host is not as it was when the run began: {said}",
            hint="go on with it where it began, or start a new run: one verdict can not rest on two states",
        )
    plan = lay_plan(ready.inputs, manifest, sha256(text), fixed_in(directory))
    return Prepared(ready.inputs, ready.backend, ready.models, manifest, text, plan, ready.complaints)
