"""The papers of a watch: the policy as it is edited, held against the run that certified it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from gatekeeper.backends import own_drafts
from gatekeeper.backends.models import artifacts
from gatekeeper.core import inputs, run_directory
from gatekeeper.core import policy as policies
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import InputError
from gatekeeper.core.inputs import Inputs
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.policy import Policy, Route
from gatekeeper.core.slo import CHOSEN
from gatekeeper.deploy.watch.model_identity import name_of

_LOOKED_AT = 20
"""Answers of each soak that are asked which name the server gave itself."""
_JUDGED_S = 3600.0
"""A policy is issued once the run is judged, minutes after its end."""
_SKEW_S = 1.0
"""Stamps are rounded."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the run carries, whatever the policy says by now."""

    run: Path
    manifest: Manifest
    given: Inputs
    """The SLO and the canaries as they were frozen."""
    manifest_sha256: str
    verdict_sha256: str
    settings: Mapping[str, Mapping[str, Any]]
    """By workload that was promoted: the knobs it was certified with."""
    names: frozenset[str]
    """What the certified server called its model, without its place."""
    ended: datetime
    """When the last thing was recorded: a policy that is dated later grants itself more time than the run did."""

    def refusal(self, policy: Policy) -> tuple[str, str] | None:
        """Say where *policy* asks for more than was certified, and what to do; None where it does not."""
        again = "certify again, and start the watch with the policy of that run"
        if policy.verdict_sha256 != self.verdict_sha256:
            return f"it is of another verdict than {self.run}", again
        if policy.manifest_sha256 != self.manifest_sha256:
            return f"it is of another manifest than {self.run}", again
        if (longer := self._longer_than_granted(policy)) is not None:
            return longer, f"an expiry is only ever brought forward; {again}"
        for route in policy.route:
            if route.workload not in self.given.canaries:
                return f"route '{route.workload}': no workload of the run", "write a route for each workload of the SLO"
            if route.speculation and (beyond := self._beyond(route)) is not None:
                return f"route '{route.workload}': {beyond}", f"a person may turn a route off and not on; {again}"
        return None

    def _longer_than_granted(self, policy: Policy) -> str | None:
        if (policy.expires - policy.issued).total_seconds() > self.given.slo.promote.valid_for + _SKEW_S:
            return "it expires later than the SLO grants"
        if (policy.issued - self.ended).total_seconds() > _JUDGED_S:
            return f"it is dated {stamp(policy.issued)}, and the run ended at {stamp(self.ended)}"
        return None

    def _beyond(self, route: Route) -> str | None:
        certified = self.settings.get(route.workload)
        if certified is None:
            return "it was not promoted to speculate"
        if dict(route.rungs[0]) != dict(certified):
            return f"its setting is not the certified one, {dict(certified)}"
        drafts = self.given.slo.subject.drafts
        for rung in route.rungs[1:-1]:
            below = dict(rung)
            if below["draft"] not in drafts or _longer(below, certified):
                return f"its rung {below} is no rung below {dict(certified)}"
        return None


def _longer(rung: Mapping[str, Any], certified: Mapping[str, Any]) -> bool:
    return any((rung.get(knob) or 0) > (certified.get(knob) or 0) for knob in ("num_draft_tokens", "block_size"))


@dataclass(frozen=True, slots=True)
class Read:
    """A policy and the text it was read from."""

    policy: Policy
    sha256: str


def read(path: Path, certificate: Certificate) -> Read:
    """Read the policy at *path*; raise InputError where it is none, or asks for more than was certified."""
    text = inputs.read_text(path, "policy")
    policy = policies.parse(text, str(path))
    if (refused := certificate.refusal(policy)) is not None:
        raise InputError(f"{path}: {refused[0]}", hint=refused[1])
    return Read(policy, sha256(text))


class Edits:
    """Where the policy lies, to be edited while it is watched."""

    def __init__(self, path: Path, certificate: Certificate, now: Read) -> None:
        self._path, self._certificate = path, certificate
        self.now = now
        self.trouble: str | None = None
        """Why the file as it is now does not count, None where it does."""
        self._refused = ""

    def reread(self) -> str | None:
        """Take up an edited policy; return what there is to say of it, None where nothing has changed.

        One that can not be read, is none, or asks for more than was certified does not count: the one before stands.
        """
        try:
            text = self._path.read_text(encoding="utf-8")
            digest = sha256(text)
        except (OSError, UnicodeDecodeError) as error:
            return self._refuse("unreadable", f"{self._path}: {getattr(error, 'strerror', None) or 'not UTF-8'}")
        if digest == self.now.sha256:
            back, self.trouble, self._refused = self.trouble, None, ""
            return "the policy is again as it was" if back else None
        if digest == self._refused:
            return None
        try:
            self.now = read(self._path, self._certificate)
        except InputError as error:
            return self._refuse(digest, error.message)
        self.trouble, self._refused = None, ""
        return "the edited policy is in force"

    def _refuse(self, what: str, because: str) -> str | None:
        known, self._refused = self._refused, what
        self.trouble = f"{because}; the policy read before stays in force"
        return self.trouble if known != what else None


def certificate(run: Path) -> Certificate:
    """Read what a run certifies; raise InputError where it is none, or not finished."""
    directory = run_directory.RunDirectory(run)
    if not (run / "manifest.json").is_file():
        raise InputError(
            f"{run} has no manifest.json, so it is no run directory",
            hint="a policy is watched with the run that certified it: name that by --run RUN_DIR",
        )
    frozen = directory.read("manifest.json")
    manifest = inputs.load_manifest(frozen)
    given, broken = inputs.stored_inputs(directory, manifest)
    if broken:
        raise InputError(f"{run}: {broken[0]}", hint="restore the run from a copy, or certify again")
    text = directory.read("verdict.json")
    verdict = run_directory.document(text, "verdict.json")
    try:
        host_failed = any(one["outcome"] == "fail" for one in verdict.get("host_checks") or ())
        settings = {
            one["name"]: {knob: one["setting"][knob] for knob in CHOSEN if one["setting"].get(knob) is not None}
            for one in verdict["workloads"]
            if one["outcome"] == "promoted" and not host_failed
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{run}/verdict.json: damaged", hint="derive it again: gatekeeper judge") from error
    return Certificate(run, manifest, given, sha256(frozen), sha256(text), settings, _names(run, manifest), _ended(run))


def _ended(run: Path) -> datetime:
    try:
        events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
        return max(datetime.fromisoformat(one["at"]) for one in events if "at" in one)
    except (OSError, ValueError, TypeError) as error:
        hint = "restore the run from a copy, or certify again"
        raise InputError(f"{run}/events.jsonl does not tell when the run ended", hint=hint) from error


def _names(run: Path, manifest: Manifest) -> frozenset[str]:
    """Return what the model may be called: as the certified answers did, and as the SLO does."""
    told = {name for path in sorted(run.glob("soak-*.jsonl")) for name in _told(path)}
    if not told or manifest.target is None:
        return frozenset(told)
    own = name_of(manifest.target.name)
    return frozenset(told | ({own} if own is not None else set()))


def _told(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for line in islice(file, _LOOKED_AT):
            try:
                name = name_of(json.loads(line)["answer"]["claims"]["model"])
            except (ValueError, KeyError, TypeError):
                continue
            if name is not None:
                yield name


def home(certified: Certificate, slo: Path | None) -> Path:
    """Return the folder that paths in the SLO are relative to: of the file named, or of its twin in this checkout."""
    if slo is not None:
        inputs.read_text(slo, "SLO file")  # a mistyped path would leave the models unfound, and nobody the wiser
    return (slo if slo is not None else inputs.written_at(certified.run, None)[0]).parent


def places(certified: Certificate, base: Path) -> dict[str, Path]:
    """Return where the certified models lie on this machine; those that are not here are left out."""
    subject = certified.given.slo.subject
    if subject.backend == "scripted":
        return {}
    found: dict[str, Path] = {}
    names: Sequence[str] = (subject.target, *(one for one in subject.drafts if one not in own_drafts(subject.backend)))
    for name in names:
        with suppress(InputError):
            found[name] = artifacts.find(name, base, subject.backend)
    return found
