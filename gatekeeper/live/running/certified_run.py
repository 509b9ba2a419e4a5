"""The run that certified a policy: what it allows, and the check of a policy file, also an edited one, against it."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gatekeeper.backends import stored_models
from gatekeeper.backends.models import artifacts
from gatekeeper.core import parse
from gatekeeper.core import policy as policies
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import RESTORE_HINT, InputError
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.policy import Policy, Route
from gatekeeper.core.system import files, inputs, run_directory
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.run_directory import POLICY
from gatekeeper.core.units import show_seconds
from gatekeeper.live.running.model_identity import model_name
from gatekeeper.run.stored.stored_policy import certified_policy, certified_policy_digest

_NAMED_ANSWERS = 20
"""Answers of each soak that are read for the model name the server reported."""
_JUDGED_S = 3600.0
"""Longest time from a run's end, when a policy that is derived again counts as issued, to its policy file."""
_ROUNDING_S = 1.0
"""Stamps are rounded."""


@dataclass(frozen=True, slots=True)
class CertifiedRun:
    """What a run allows, whatever its policy file says now."""

    run: Path
    manifest: Manifest
    inputs: Inputs
    """The SLO and the canaries as they were frozen."""
    manifest_sha256: str
    verdict_sha256: str
    names: frozenset[str]
    """The model names that the certified server reported, without folders."""
    policy: Policy
    """What the run certified."""
    policy_sha256: str | None
    """SHA-256 of the policy file that its certificate names, if one does."""

    def objection(self, policy: Policy) -> tuple[str, str] | None:
        """Return what *policy* allows beyond the certified run, and what to do; None if it allows no more."""
        again = "certify again, and watch the policy of the new run"
        if policy.verdict_sha256 != self.verdict_sha256:
            return f"its verdict_sha256 does not match {self.run}/verdict.json", again
        if policy.manifest_sha256 != self.manifest_sha256:
            return f"its manifest_sha256 does not match {self.run}/manifest.json", again
        if (other := self._other_head(policy)) is not None:
            return other
        if (longer := self._valid_for_too_long(policy)) is not None:
            return longer, f"an edit may only shorten the validity; {again}"
        for route in policy.route:
            if (beyond := self._beyond_route(route, policy.max_concurrency(route.workload))) is not None:
                return f"route '{route.workload}': {beyond}", f"an edit may turn a route off, not on; {again}"
        return None

    def _other_head(self, policy: Policy) -> tuple[str, str] | None:
        """Return what a policy says of the certificate itself that the certified one does not, and what to do."""
        certified = self.policy
        for name in ("slo", "grade"):
            if getattr(policy, name) != getattr(certified, name):
                return f"its {name} is not '{getattr(certified, name)}', as {self.run} certified it", "restore it"
        if (policy.conditions, policy.launch) != (certified.conditions, certified.launch):
            hint = f"restore both as {self.run} certified them: the certificate holds under its own conditions alone"
            return "its [conditions] or [[launch]] were edited", hint
        return None

    def _beyond_route(self, route: Route, streams: int) -> str | None:
        """Return what a route allows beyond the certified one; None where it allows no more."""
        certified = next((candidate for candidate in self.policy.route if candidate.workload == route.workload), None)
        if certified is None:
            return "the run has no such workload"
        if streams > (most := self.policy.max_concurrency(route.workload)):
            return f"max_concurrency is above {most}, the certified one"
        if route.speculation and not certified.speculation:
            return "the run did not promote it"
        return _beyond_requests(route, certified) or (_beyond_setting(route, certified) if route.speculation else None)

    def _valid_for_too_long(self, policy: Policy) -> str | None:
        allowed = self.inputs.slo.promote.valid_for
        if policy.lifetime > allowed + _ROUNDING_S:
            return f"it is valid for {show_seconds(policy.lifetime)}, the SLO allows {show_seconds(allowed)}"
        if (policy.issued - self.policy.issued).total_seconds() > _JUDGED_S:
            return f"it was issued at {stamp(policy.issued)}, the certified one at {stamp(self.policy.issued)}"
        return None

    def base(self, slo: Path | None) -> Path:
        """Return the folder that paths in the SLO are relative to: that of *slo*, or of its copy in this checkout.

        A mistyped *slo* is an InputError; without it the models would not be found and so not be compared.
        """
        return inputs.find_slo_file(self.run, slo)[0].parent

    def model_paths(self, base: Path) -> dict[str, Path]:
        """Return the paths of the certified models on this machine; missing ones are left out."""
        subject = self.inputs.slo.subject
        paths: dict[str, Path] = {}
        for name in stored_models(subject):
            with suppress(InputError):
                paths[name] = artifacts.find(name, base, subject.backend)
        return paths


def _beyond_requests(route: Route, certified: Route) -> str | None:
    """Return which requests a route takes that were not certified; None where none are: an edit may remove some."""
    longest = certified.longest_prompt
    if route.longest_prompt is not None and longest is None:
        return "it names a longest_prompt, and the certified one does not"
    if longest is not None and (route.longest_prompt is None or route.longest_prompt > longest):
        return f"longest_prompt is above {longest}, the certified one"
    if (route.longest_format or 0) > (longest_format := certified.longest_format or 0):
        return f"longest_format is above {longest_format}, the certified one"
    for model in route.models:
        if model not in certified.models:
            return f"the model {model!r} is none of the certified ones"
    for number, request in enumerate(route.request, start=1):
        if request not in certified.request:
            return f"its request {number} was not certified"
    return None


def _beyond_setting(route: Route, certified: Route) -> str | None:
    """Return what a route says of its setting that the run did not show; None where it says no more."""
    if route.steps[0] != certified.steps[0]:
        return f"its setting differs from the certified one, {dict(certified.steps[0])}"
    remaining = iter(certified.steps)
    for lower in route.steps:
        if lower not in remaining:  # each is looked for after the one before it: their order is certified, too
            return f"its ladder step {dict(lower)} is none of the certified ones, in their order"
    if route.measured != certified.measured:
        return "its measured figures differ from the certified ones"
    if (route.warm_up, route.warm_up_after) != (certified.warm_up, certified.warm_up_after):
        return "its warm_up differs from the certified one"
    return None


def load(run: Path) -> CertifiedRun:
    """Read what a run allows; raise InputError for a folder without a finished run."""
    directory = run_directory.RunDirectory(run)
    if not (run / "manifest.json").is_file():
        hint = "the policy is RUN_DIR/policy.toml, not the SLO file; of a copy of it, name the run, too: --run RUN_DIR"
        raise InputError(f"{run} has no manifest.json, so it is not a run directory", hint=hint)
    frozen = directory.read("manifest.json")
    manifest = inputs.load_manifest(frozen)
    run_inputs, broken = inputs.stored_inputs(directory, manifest)
    if broken:
        raise InputError(f"{run}: {broken[0]}", hint=RESTORE_HINT)
    return CertifiedRun(
        run=run,
        manifest=manifest,
        inputs=run_inputs,
        manifest_sha256=sha256(frozen),
        verdict_sha256=sha256(directory.read(run_directory.VERDICT)),
        names=_model_names(run, manifest),
        policy=certified_policy(run),
        policy_sha256=certified_policy_digest(directory),
    )


def _model_names(run: Path, manifest: Manifest) -> frozenset[str]:
    """Return the names the model may have: those in the certified answers, and the SLO's."""
    try:
        names = {name for path in sorted(run.glob("soak-*.jsonl")) for name in _names_in(path)}
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}", hint=RESTORE_HINT) from error
    target = model_name(manifest.target.name) if manifest.target is not None else None
    return frozenset(names | {target} if names and target is not None else names)


def _names_in(path: Path) -> Iterator[str]:
    with os.fdopen(files.open_regular(path, os.O_RDONLY), "rb") as file:
        for line in islice(file, _NAMED_ANSWERS):
            with suppress(ValueError, KeyError, TypeError):
                name = model_name(parse.json_object(line)["answer"]["claims"]["model"])
                if name is not None:
                    yield name


class PolicyFile:
    """The policy file, which may be edited while it is watched: `policy` is the last valid one."""

    def __init__(self, path: Path, certified: CertifiedRun) -> None:
        """Read it; raise InputError for a file that is not a policy or allows more than was certified."""
        self._path, self._certified = path, certified
        self._read()
        self.trouble: str | None = None
        """Why the file as it is now is refused; None if it is valid."""
        self._refused = ""

    def _read(self) -> None:
        text = inputs.read_text(self._path, "policy")
        policy = policies.parse(text, str(self._path))
        if (objection := self._certified.objection(policy)) is not None:
            raise InputError(f"{self._path}: {objection[0]}", hint=objection[1])
        self.policy, self.sha256 = policy, sha256(text)

    @property
    def edited(self) -> str | None:
        """Say that the file is not the one its run certified; None where it is, or where no certificate names one."""
        if self._certified.policy_sha256 in {None, self.sha256}:
            return None
        changed = ", ".join(self.policy.differing_tables(self._certified.policy)) or "comments or layout alone"
        text = f"{self._path} was edited after it was certified ({changed}); it is watched as it is now"
        if self._path.resolve() == (self._certified.run / POLICY).resolve():
            text += f". admit refuses such a run: restore the file, and edit a copy with --run {self._certified.run}"
        return text

    def reread(self) -> str | None:
        """Read an edited policy; return a message about it, None if nothing has changed.

        A file that cannot be read, is not a policy or allows more than was certified is refused: the previous policy
        stays in force.
        """
        try:
            digest = sha256(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            return self._refuse("unreadable", f"{self._path}: {getattr(error, 'strerror', None) or 'not UTF-8'}")
        if digest == self.sha256:
            back, self.trouble, self._refused = self.trouble, None, ""
            return "the policy file is valid again, as before" if back else None
        if digest == self._refused:
            return None
        try:
            self._read()
        except InputError as error:
            return self._refuse(digest, error.message)
        self.trouble, self._refused = None, ""
        return "the edited policy is in force"

    def _refuse(self, content: str, reason: str) -> str | None:
        refused, self._refused = self._refused, content
        self.trouble = f"{reason}; the previous policy stays in force"
        return self.trouble if refused != content else None
