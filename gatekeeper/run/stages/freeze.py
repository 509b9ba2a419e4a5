"""The freeze: everything a verdict depends on is recorded before the first token."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gatekeeper import __version__, host
from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.plan.complaints.wrong_host import host_doubts
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, plan_document
from gatekeeper.backends import stored_models
from gatekeeper.backends.models import artifacts
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import InputError
from gatekeeper.core.interfaces import Backend
from gatekeeper.core.judgement import Finding
from gatekeeper.core.manifest import ArrivalTimes, Manifest, Model
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.rules import RULES
from gatekeeper.core.system.files import HashCache, user_hash_cache
from gatekeeper.core.system.inputs import CERTIFIED_NAME, Inputs
from gatekeeper.core.system.run_directory import MANIFEST, PLAN
from gatekeeper.core.text import json_text


@dataclass(frozen=True, slots=True)
class FrozenModels:
    """The models of an SLO on this machine; empty for the scripted backend, which has none."""

    folders: dict[str, Path]
    target: Model | None = None
    drafts: tuple[Model, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Problems of the pairs."""


def find_models(inputs: Inputs) -> Iterator[tuple[str, Path | InputError]]:
    """Yield each model of the SLO by its name: where it is on this machine, or the error that says how to get it."""
    for name in stored_models(inputs.slo.subject):
        try:
            yield name, artifacts.find(name, inputs.base, inputs.slo.subject.backend)
        except InputError as error:
            yield name, error


def freeze_models(inputs: Inputs, *, afresh: bool = False) -> FrozenModels:
    """Find and hash the target and the drafts; *afresh* reads every byte and uses no cached digest."""
    subject = inputs.slo.subject
    if not (names := stored_models(subject)):
        return FrozenModels({})
    hashes = HashCache(None if afresh else user_hash_cache())
    folders = artifacts.check_found(dict(find_models(inputs)))
    target, *drafts = (artifacts.freeze(name, folders[name], hashes) for name in names)
    findings = tuple(finding for draft in drafts for finding in artifacts.check_pair(target, draft))
    return FrozenModels(folders, target, tuple(drafts), findings)


def changed_models(inputs: Inputs, manifest: Manifest) -> list[str]:
    """Hash the models again; return the names of those that changed since they were frozen."""
    now = freeze_models(inputs, afresh=True)
    pairs = zip((manifest.target, *manifest.drafts), (now.target, *now.drafts), strict=True)
    return [before.name for before, after in pairs if before and after and before.digest != after.digest]


def freeze(
    inputs: Inputs,
    models: FrozenModels,
    backend: Backend,
    sight: Sight,
    host_facts: Mapping[str, Any],
    findings: Sequence[Finding] = (),
    *,
    system: Mapping[str, str],
    arrival_times: ArrivalTimes | None,
) -> Manifest:
    """Return the manifest; *host_facts* are those of this host, *findings* those of the first requests.

    *system* are the versions of the system under test, *arrival_times* is who took the times of those requests.
    """
    slo, files = inputs.slo, inputs.files
    versions = {"gatekeeper": __version__, "python": platform.python_version(), "numpy": np.__version__, **system}
    return Manifest(
        slo=files["slo"],
        backend=backend.name,
        shares_process=backend.shares_process,
        streams=backend.streams,
        restart_knobs=tuple(backend.restart_knobs),
        sight=tuple(sorted(str(flag.name) for flag in sight)),
        target=models.target,
        drafts=models.drafts,
        sampling=slo.sampling.model_dump(mode="json"),
        reading=slo.subject.model_dump(include={"prefill_chunk", "kv_bits"}, exclude_none=True),
        canaries={workload.name: files[f"workload {workload.name}"] for workload in slo.workload},
        profile=files["profile"],
        versions=dict(sorted(versions.items())),
        host=dict(host_facts),
        device=host.device(host_facts) if backend.realtime else None,
        sample_interval=host.SAMPLE_INTERVAL_S,
        arrival_times=arrival_times,
        rules=RULES,
        draft_hint=backend.draft_hint,
        findings=(*models.findings, *findings),
        doubts=tuple(host_doubts(slo.host, host_facts)) if "host" in slo.model_fields_set else (),
        frozen_at=stamp(backend.clock.wall()),
        seed=getattr(backend, "seed", None),  # of a simulated system
    )


def frozen_files(
    inputs: Inputs, plan: SweepPlan, certified: str | None, manifest: str
) -> Iterator[tuple[str, str | bytes]]:
    """Yield the files that a run has before it measures; the manifest last, as with it there is a run to resume."""
    yield from inputs.texts.items()
    if certified is not None:
        yield CERTIFIED_NAME, certified
    later_files = [f"{follow_up.name}-1*.jsonl" for follow_up in FOLLOW_UPS]
    yield PLAN, json_text(plan_document(inputs.slo, plan, later_files))
    yield MANIFEST, manifest
