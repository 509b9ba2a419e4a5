"""What comes before the first token: artifacts found and hashed, the manifest frozen, the plan laid and examined."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gatekeeper import __version__, host
from gatekeeper.analysis.plan import duration, memory_fit, preflight
from gatekeeper.analysis.plan.capabilities import confirmed_sight
from gatekeeper.analysis.plan.capabilities import probe_findings as findings_of
from gatekeeper.analysis.plan.preflight import BackendTraits, Complaint, complaints, missing_capabilities
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, frozen_plan
from gatekeeper.backends import open_backend, own_drafts
from gatekeeper.backends.models import artifacts
from gatekeeper.backends.scripted.script import read_script
from gatekeeper.core import files, inputs, run_directory
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import ExitCode, HostLacksError, InputError, UnprovableError
from gatekeeper.core.inputs import Inputs, load_manifest
from gatekeeper.core.interfaces import Backend
from gatekeeper.core.manifest import Manifest, Model, differences, sha256
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Setting
from gatekeeper.core.verdict import Finding
from gatekeeper.run.load import fixed_in
from gatekeeper.run.requests import Desk
from gatekeeper.run.stages.capabilities import glance
from gatekeeper.run.stages.freeze import freeze

WEIGHTS = ("never", "not-here", "weak")
"""Complaints, the hopeless ones first."""
BANDWIDTH = 100e9
"""Bytes a second that weights are assumed to stream at, for the forecast alone: a base M4 has 120 GB/s."""


@dataclass(slots=True)
class Prepared:
    """A run before its first token: what was read, frozen and planned."""

    inputs: Inputs
    backend: Backend
    models: dict[str, Path]
    manifest: Manifest
    text: str
    plan: SweepPlan
    complaints: list[Complaint] = field(default_factory=list)
    memory: memory_fit.MemoryFit | None = None
    """What the pair needs, by estimate; None where there are no models."""

    @property
    def sha256(self) -> str:
        """Return the digest of the manifest's file."""
        return sha256(self.text)


def prepare(given: Inputs, logs: Path, *, refuse: bool = True, fixed: Setting | None = None) -> Prepared:
    """Find, check and hash the artifacts, freeze the manifest and lay the plan; refuse what can not be proven.

    Without *refuse* nothing is asked of the subject either, and what it shows is a forecast.
    """
    slo = given.slo
    models, target, drafts, findings = frozen_artifacts(given)
    backend = open_backend(slo.subject, models=models, base=given.base, logs=logs)
    conditions = host.conditions()
    kind = BackendTraits(backend.name, backend.sight, backend.streams, backend.knobs, backend.caches)
    found = complaints(slo, given.canaries, kind, host.lacks() if backend.realtime else {})
    background, here = given.profile.background.memory, conditions.get("memory_bytes")
    memory = memory_fit.estimate_fit(
        slo,
        given.canaries,
        target,
        drafts,
        background=background,
        memory=here,
        shares_process=backend.shares_process,
    )
    found = sorted(
        [*found, *memory_fit.complaints(memory), *preflight.latency_complaints(slo)],
        key=lambda one: WEIGHTS.index(one.weight),
    )
    sight = backend.sight
    if refuse:
        _refuse(found)
        if backend.realtime:
            sight, remarks = _glance(given, backend)
            findings += remarks
            _refuse(missing_capabilities(slo, kind, sight, backend.silent))
    versions = {
        "gatekeeper": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **backend.versions(),
    }
    manifest = freeze(
        slo,
        inputs=given.files,
        target=target,
        drafts=drafts,
        backend=backend,
        sight=sight,
        versions=versions,
        host=conditions,
        findings=findings,
        frozen_at=stamp(backend.clock.wall()),
    )
    text = manifest.text()
    plan = frozen_plan(given.slo, given.canaries, manifest, sha256(text), fixed)
    return Prepared(given, backend, models, manifest, text, plan, found, memory)


def takes_real_time(given: Inputs) -> bool:
    """Tell whether a run of these inputs measures a real clock, and so wants the host for itself."""
    subject = given.slo.subject
    if subject.backend != "scripted" or subject.script is None:
        return True
    return read_script(given.base / subject.script).time == "real"


def _glance(given: Inputs, backend: Backend) -> tuple[Sight, list[Finding]]:
    """Ask the subject twice; return what it shows, and what is odd already."""
    seen = glance(given.slo, given.canaries, backend, lambda: Desk(backend, lambda *_: None))
    return confirmed_sight(seen, backend.sight, uncached=backend.uncached), findings_of(
        seen, backend.sight, backend.silent
    )


def frozen_artifacts(
    given: Inputs, *, afresh: bool = False
) -> tuple[dict[str, Path], Model | None, list[Model], list[Finding]]:
    """Return the model folders, the target and the drafts as they lie on disk, and what is odd about the pairs.

    *afresh* reads every byte again: no digest is believed that was remembered by a file's size and times.
    """
    subject = given.slo.subject
    if subject.backend == "scripted":
        return {}, None, [], []
    hashes = files.HashCache(None if afresh else files.user_hash_cache())
    names = [name for name in subject.drafts if name not in own_drafts(subject.backend)]
    models = {name: artifacts.find(name, given.base, subject.backend) for name in (subject.target, *names)}
    target = artifacts.freeze(subject.target, models[subject.target], hashes)
    drafts = [artifacts.freeze(name, models[name], hashes) for name in names]
    findings = [finding for draft in drafts for finding in artifacts.check_pair(target, draft)]
    return models, target, drafts, findings


def _refuse(found: Sequence[Complaint]) -> None:
    for weight, error in (("never", UnprovableError), ("not-here", HostLacksError)):
        mine = [one for one in found if one.weight == weight]
        if mine:
            lines = [f"{one.about}: {one.message}; {one.hint}" for one in mine[1:8]]
            first = f"{mine[0].about}: {mine[0].message}"
            raise error("\n".join((first, *lines)), hint=mine[0].hint)


def foresee(slo_path: Path) -> tuple[dict[str, Any], int]:
    """Return the plan of an SLO file as a document, and the exit code that `certify` would refuse it with, or 0."""
    given = inputs.read(slo_path)
    ready = prepare(given, Path("logs"), refuse=False)
    slo, plan = given.slo, ready.plan
    trials = [
        {
            "name": trial.name,
            "file": trial.file,
            "arm": trial.arm,
            "setting": dict(trial.setting),
            "answers": sum(step.trial is trial for block in plan.blocks for step in block.steps),
        }
        for trial in plan.trials
    ]
    speed, stages = _assumed_speed(ready.manifest), forecast(ready)
    weights = {one.weight for one in ready.complaints}
    document = {
        "schema": 1,
        "slo": slo.name,
        "design": slo.sweep.design,
        "stop": slo.sweep.stop,
        "trials": trials,
        "answers": sum(len(block.steps) for block in plan.blocks),
        "expected_seconds": {one.name: round(one.seconds) for one in stages},
        "expected_answers": {one.name: one.answers for one in stages if one.answers},
        "expected_total_seconds": round(sum(one.seconds for one in stages)),
        "assumption": (
            f"every answer as long as it may be, written at {speed:.0f} tok/s, prompts read {duration.PREFILL:.0f} "
            "times as fast; starts are not counted; the soak lasts at least so long; all but the sweep comes again for "
            "each rung of the ladder"
        ),
        "memory": ready.memory.document() if ready.memory is not None else None,
        "doubts": list(ready.manifest.doubts),
        "complaints": [
            {"weight": one.weight, "about": one.about, "message": one.message, "hint": one.hint}
            for one in ready.complaints
        ],
    }
    if "never" in weights:
        return document, ExitCode.BAD_INPUT
    return document, ExitCode.UNPROVEN if "not-here" in weights or ready.manifest.doubts else ExitCode.OK


def forecast(ready: Prepared) -> tuple[duration.StageForecast, ...]:
    """Return the stages of the run and how long each takes, if plain decoding is as fast as is assumed."""
    backend, target = ready.backend, ready.manifest.target
    assumed = duration.Assumptions(
        _assumed_speed(ready.manifest),
        target.vocabulary if target is not None else None,
        backend.shares_process,
        Sight.LOGITS in backend.sight,
    )
    return duration.forecast_stages(ready.inputs.slo, ready.plan, ready.inputs.canaries, assumed)


def outlook(ready: Prepared, alone: str | None = None) -> dict[str, Any]:
    """Return what somebody who looks on needs to know of the run ahead, or of the one stage that is run *alone*."""
    return {
        "slo": ready.inputs.slo.name,
        "expected": {one.name: one.seconds for one in forecast(ready) if alone in {None, one.name}},
        "workloads": [one.name for one in ready.inputs.slo.workload],
        "realtime": ready.backend.realtime,
    }


def _assumed_speed(manifest: Manifest) -> float:
    """Assume plain decoding at the speed memory can stream the weights, within reason."""
    size = manifest.target.bytes if manifest.target is not None else 0
    return max(1.0, min(500.0, BANDWIDTH / size)) if size else 500.0


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


def as_frozen(ready: Prepared, directory: run_directory.RunDirectory) -> Prepared:
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
    plan = frozen_plan(ready.inputs.slo, ready.inputs.canaries, manifest, sha256(text), fixed_in(directory))
    return Prepared(ready.inputs, ready.backend, ready.models, manifest, text, plan, ready.complaints)
