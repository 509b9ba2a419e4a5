"""The run that certified a policy: what it allows, and the check of a policy file, also an edited one, against it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from gatekeeper.backends import stored_models
from gatekeeper.backends.models import artifacts
from gatekeeper.core import parse
from gatekeeper.core import policy as policies
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.policy import Policy, Route
from gatekeeper.core.slo import CHOSEN
from gatekeeper.core.system import files, inputs, run_directory
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.record_files import RESTORE_HINT
from gatekeeper.core.system.run_directory import POLICY
from gatekeeper.core.units import show_seconds
from gatekeeper.live.running.model_identity import model_name
from gatekeeper.run.stored.stored_policy import certified_policy, certified_policy_digest

_NAMED_ANSWERS = 20
"""Answers of each soak that are read for the model name the server reported."""
_JUDGED_S = 3600.0
"""Longest time from a run's end to its policy: judging takes minutes."""
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
    settings: Mapping[str, Mapping[str, Any]]
    """By workload that was promoted: the knobs it was certified with."""
    names: frozenset[str]
    """The model names that the certified server reported, without folders."""
    ended: datetime
    """Time of the last event: a policy issued much later would be valid for longer than the run allows."""
    policy: Policy
    """What the run certified: an edited policy holds under the same conditions."""
    policy_sha256: str | None = None
    """SHA-256 of the policy file that its certificate names, if one does."""

    def objection(self, policy: Policy) -> tuple[str, str] | None:
        """Return what *policy* allows beyond the certified run, and what to do; None if it allows no more."""
        again = "certify again, and watch the policy of the new run"
        if policy.verdict_sha256 != self.verdict_sha256:
            return f"its verdict_sha256 does not match {self.run}/verdict.json", again
        if policy.manifest_sha256 != self.manifest_sha256:
            return f"its manifest_sha256 does not match {self.run}/manifest.json", again
        if (longer := self._valid_for_too_long(policy)) is not None:
            return longer, f"an edit may only shorten the validity; {again}"
        return self._other_conditions(policy) or self._beyond_routes(policy, again)

    def _other_conditions(self, policy: Policy) -> tuple[str, str] | None:
        certified = self.policy
        for name in ("slo", "grade"):
            if getattr(policy, name) != getattr(certified, name):
                return f"its {name} is not '{getattr(certified, name)}', as {self.run} certified it", "restore it"
        if (policy.conditions, policy.launch) == (certified.conditions, certified.launch):
            return None
        hint = f"restore both as {self.run} certified them: the certificate holds under its own conditions alone"
        return "its [conditions] or [[launch]] were edited", hint

    def _beyond_routes(self, policy: Policy, again: str) -> tuple[str, str] | None:
        for route in policy.route:
            if route.workload not in self.inputs.canaries:
                return f"route '{route.workload}': the run has no such workload", "use the workloads of the SLO"
            if (higher := self._above(policy, route)) is not None:
                return f"route '{route.workload}': {higher}", again
            beyond = (self._beyond_certified(route) or self._beyond_measured(route)) if route.speculation else None
            if beyond is not None:
                return f"route '{route.workload}': {beyond}", f"an edit may turn a route off, not on; {again}"
        return None

    def _above(self, policy: Policy, route: Route) -> str | None:
        """Return which limit of a route is above the certified one."""
        if policy.max_concurrency(route.workload) > (most := self.policy.max_concurrency(route.workload)):
            return f"max_concurrency is above {most}, the certified one"
        certified = next((candidate for candidate in self.policy.route if candidate.workload == route.workload), None)
        longest = None if certified is None else certified.longest_prompt
        if route.longest_prompt is not None and longest is None:
            return "it names a longest_prompt, and the certified one does not"
        if longest is not None and (route.longest_prompt is None or route.longest_prompt > longest):
            return f"longest_prompt is above {longest}, the certified one"
        longest_format = 0 if certified is None else certified.longest_format or 0
        if (route.longest_format or 0) > longest_format:
            return f"longest_format is above {longest_format}, the certified one"
        return _beyond_requests(route, certified)

    def _valid_for_too_long(self, policy: Policy) -> str | None:
        allowed = self.inputs.slo.promote.valid_for
        if policy.lifetime > allowed + _ROUNDING_S:
            return f"it is valid for {show_seconds(policy.lifetime)}, the SLO allows {show_seconds(allowed)}"
        if (policy.issued - self.ended).total_seconds() > _JUDGED_S:
            return f"it was issued at {stamp(policy.issued)}, but the run ended at {stamp(self.ended)}"
        return None

    def _beyond_certified(self, route: Route) -> str | None:
        certified = self.settings.get(route.workload)
        if certified is None:
            return "the run did not promote it"
        if dict(route.steps[0]) != dict(certified):
            return f"its setting differs from the certified one, {dict(certified)}"
        for lower in map(dict, route.steps[1:-1]):
            longer = any((lower.get(knob) or 0) > (certified.get(knob) or 0) for knob in _LENGTHS)
            if lower["draft"] not in self.inputs.slo.subject.drafts or longer:
                return f"its ladder step {lower} is not below the certified setting {dict(certified)}"
        return None

    def _beyond_measured(self, route: Route) -> str | None:
        """Return what a route says of itself that the soak and the sweep did not show; None where it says no more."""
        certified = next((candidate for candidate in self.policy.route if candidate.workload == route.workload), None)
        if certified is None:
            return None
        remaining = iter(certified.steps)
        for lower in route.steps:
            if lower not in remaining:  # each is looked for after the one before it: their order is certified, too
                return f"its ladder step {dict(lower)} is none of the certified ones, in their order"
        if route.measured != certified.measured:
            return "its measured figures differ from the certified ones"
        if (route.warm_up, route.warm_up_after) != (certified.warm_up, certified.warm_up_after):
            return "its warm_up differs from the certified one"
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


def _beyond_requests(route: Route, certified: Route | None) -> str | None:
    """Return which request a route allows that was not certified; None where there is none: an edit may remove some."""
    certified_models = () if certified is None else certified.models
    for name in route.models:
        if name not in certified_models:
            return f"the model {name!r} is none of the certified ones"
    certified_requests = () if certified is None else certified.request
    for number, request in enumerate(route.request, start=1):
        if request not in certified_requests:
            return f"its request {number} was not certified"
    return None


_LENGTHS = ("num_draft_tokens", "block_size")


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
    text = directory.read("verdict.json")
    verdict = run_directory.parse_json(text, "verdict.json")
    try:
        host_failed = any(workload["outcome"] == "fail" for workload in verdict.get("host_checks") or ())
        settings = {
            workload["name"]: {
                knob: workload["setting"][knob] for knob in CHOSEN if workload["setting"].get(knob) is not None
            }
            for workload in verdict["workloads"]
            if workload["outcome"] == "promoted" and not host_failed
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{run}/verdict.json: damaged", hint="derive it again: gatekeeper judge") from error
    names = _model_names(run, manifest)
    digests = sha256(frozen), sha256(text)
    ended, policy = _ended(run), certified_policy(run)
    digest = certified_policy_digest(directory)
    return CertifiedRun(run, manifest, run_inputs, *digests, settings, names, ended, policy, digest)


def _ended(run: Path) -> datetime:
    try:
        events = map(parse.json_object, files.read_regular(run / "events.jsonl").splitlines())
        return max(parse.moment(event["at"]) for event in events if "at" in event)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{run}/events.jsonl does not show when the run ended", hint=RESTORE_HINT) from error


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
        tables = self.policy.differing_tables(self._certified.policy)
        changed = ", ".join(tables) or "comments or layout alone"
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
