"""Preparation of a run: models are hashed, problems reported, the manifest frozen, and the plan made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.analysis.plan import memory_fit
from gatekeeper.analysis.plan.capability_probe import confirmed_sight, probe_findings
from gatekeeper.analysis.plan.preflight import (
    BackendTraits,
    Complaint,
    complaints,
    latency_complaints,
    missing_capabilities,
)
from gatekeeper.analysis.plan.sweep_plan import SweepPlan
from gatekeeper.backends import open_backend
from gatekeeper.backends.scripted.script import read_script
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.core.errors import HostLacksError, InputError, UnprovableError
from gatekeeper.core.interfaces import Backend
from gatekeeper.core.manifest import Manifest, differences, sha256
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Setting
from gatekeeper.core.system.inputs import Inputs, load_manifest
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.core.verdict import Finding
from gatekeeper.run.certified_baseline import Baseline
from gatekeeper.run.load import fixed_in, plan_of
from gatekeeper.run.requests import Client
from gatekeeper.run.stages.capability_probe import request_both_arms
from gatekeeper.run.stages.freeze import FrozenModels, freeze, freeze_models

_SHOWN = 8
"""Problems of a plan that its refusal names."""
WEIGHTS = ("never", "not-here", "weak")
"""Weights of complaints, the worst first."""
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


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run before its first token: what was read, frozen and planned."""

    inputs: Inputs
    backend: Backend
    manifest: Manifest
    text: str
    """The manifest's file."""
    plan: SweepPlan
    complaints: tuple[Complaint, ...] = ()
    memory: memory_fit.MemoryFit | None = None
    """The estimated memory of the pair; None where there are no models."""

    @property
    def sha256(self) -> str:
        """Return the digest of the manifest's file."""
        return sha256(self.text)


def prepare(
    inputs: Inputs,
    logs: Path,
    *,
    measuring: bool = True,
    fixed: Setting | None = None,
    stored: RunDirectory | None = None,
    certified: Baseline | None = None,
) -> Prepared:
    """Freeze the manifest and make the plan; refuse what cannot be proven.

    Not *measuring*: nothing is refused, models may be missing and no request is sent; what the backend reports is then
    a forecast. A *fixed* setting needs no sweep. A *stored* run is continued: its manifest is used, if everything it
    froze is unchanged. *certified* is the run that objectives compare this one with.
    """
    models, missing = _models(inputs, needed=measuring)
    backend = open_backend(inputs.slo.subject, models=models.folders, base=inputs.base, logs=logs)
    if isinstance(backend, ServerBackend):
        backend.check_running()
    # [sweep.default] may name the draft length of a server that is already running.
    named = inputs.slo.sweep.default.model_dump()
    for knob, value in fixed or ():
        if knob not in {"draft", *backend.knobs} and value != named.get(knob):
            hint = f"its knobs: {', '.join(sorted(backend.knobs))}"
            raise InputError(f"--set {knob}: backend {backend.name} has no knob {knob}", hint=hint)
    here = host.conditions()
    problems, memory = preflight(inputs, models, backend, here)
    system, absent = _versions(backend, needed=measuring)
    problems = (*missing, *absent, *problems)
    if measuring:
        _refuse(problems)
    sight, findings = probe_capabilities(inputs, backend) if measuring and backend.realtime else (backend.sight, [])
    manifest = freeze(inputs, models, backend, sight, here, findings, system=system)
    if certified is not None:
        manifest = manifest.model_copy(update={"certified": certified.entry})
    text = manifest.text()
    if stored is not None:
        text, fixed = _unchanged(manifest, stored), fixed_in(stored)
        manifest = load_manifest(text.encode())
    plan = plan_of(inputs, manifest, text, fixed)
    return Prepared(inputs, backend, manifest, text, plan, problems, memory)


def _models(inputs: Inputs, *, needed: bool) -> tuple[FrozenModels, tuple[Complaint, ...]]:
    """Find and hash the models; where they are not *needed*, one that is missing is a complaint."""
    try:
        return freeze_models(inputs), ()
    except InputError as error:
        if needed:
            raise
        subject = inputs.slo.subject
        folders = {name: Path(name) for name in (subject.target, *subject.drafts)}
        return FrozenModels(folders), (Complaint("not-here", "the models", error.message, error.hint or ""),)


def _versions(backend: Backend, *, needed: bool) -> tuple[Mapping[str, str], tuple[Complaint, ...]]:
    """Return the versions of the system; where they are not *needed*, a program that is missing is a complaint."""
    try:
        return backend.versions(), ()
    except InputError as error:
        if needed:
            raise
        return {}, (Complaint("not-here", "the program", error.message, error.hint or ""),)


def preflight(
    inputs: Inputs, models: FrozenModels, backend: Backend, here: dict[str, Any]
) -> tuple[tuple[Complaint, ...], memory_fit.MemoryFit | None]:
    """Return everything the plan cannot prove, the worst first, and the memory that the pair needs."""
    lacks = host.unavailable_metrics() if backend.realtime else {}
    memory = memory_fit.estimate_fit(
        inputs.slo,
        inputs.canaries,
        models.target,
        models.drafts,
        background=inputs.profile.background.memory,
        memory=here.get("memory_bytes"),
        shares_process=backend.shares_process,
        system=memory_fit.system_share(inputs.slo, here.get("platform")),
        wired_limit=here.get("gpu_wired_limit"),
    )
    found = complaints(inputs.slo, inputs.canaries, _traits(backend), lacks)
    found += [*memory_fit.complaints(memory), *latency_complaints(inputs.slo)]
    return tuple(sorted(found, key=lambda one: WEIGHTS.index(one.weight))), memory


def probe_capabilities(inputs: Inputs, backend: Backend) -> tuple[Sight, list[Finding]]:
    """Send two short requests; return what the backend really reports, and findings; refuse what an objective lacks."""
    slo = inputs.slo
    seen = request_both_arms(slo, inputs.canaries, backend, lambda: Client(backend, lambda *_: None))
    sight = confirmed_sight(seen, backend.sight, uncached=backend.uncached)
    _refuse(missing_capabilities(slo, _traits(backend), sight, backend.draft_hint))
    return sight, probe_findings(seen, backend.sight, backend.draft_hint)


def takes_real_time(inputs: Inputs) -> bool:
    """Tell whether a run of these inputs measures real time, and so needs the host for itself."""
    subject = inputs.slo.subject
    if subject.backend != "scripted" or subject.script is None:
        return True
    return read_script(inputs.base / subject.script).time == "real"


def _traits(backend: Backend) -> BackendTraits:
    greedy_only = isinstance(backend, ServerBackend) and backend.greedy_only
    return BackendTraits(
        backend.name, backend.sight, backend.streams, backend.knobs, backend.caches, backend.adapts, greedy_only
    )


def _refuse(found: Sequence[Complaint]) -> None:
    for weight, error in (("never", UnprovableError), ("not-here", HostLacksError)):
        mine = [one for one in found if one.weight == weight]
        if mine:
            if len(mine) == 1:
                raise error(f"{mine[0].about}: {mine[0].message}", hint=mine[0].hint)
            lines = [f"{one.about}: {one.message}; {one.hint}" for one in mine[:_SHOWN]]
            raise error("\n".join(lines), hint="gatekeeper plan shows all that is wrong with a plan, and runs nothing")


def _unchanged(now: Manifest, stored: RunDirectory) -> str:
    """Return the stored manifest's text; raise InputError or HostLacksError where something it froze has changed."""
    text = stored.read("manifest.json").decode()
    then = load_manifest(text.encode())
    changed = differences(then, now)
    inputs_changed = [part for part in changed if not part.startswith("host.")]
    if inputs_changed:
        named = dict.fromkeys(PART_NAMES.get(part.partition(".")[0], part) for part in inputs_changed)
        raise InputError(
            f"{stored.path}: {', '.join(named)} changed since this run began",
            hint="start a new run: a verdict must not mix two states",
        )
    if changed:
        keys = [part.removeprefix("host.") for part in changed]
        changes = ", ".join(f"{key} was {then.host.get(key)!r}, is {now.host.get(key)!r}" for key in keys)
        raise HostLacksError(
            f"{stored.path}: this host differs from the one on which the run began: {changes}",
            hint="continue the run where it began, or start a new one: a verdict must not mix two states",
        )
    return text
