"""Preparation of a run: models are hashed, problems reported, the manifest frozen, and the plan made."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatekeeper import host
from gatekeeper.analysis.plan.complaints import memory_fit
from gatekeeper.analysis.plan.complaints.complaint import Complaint, merge_complaints
from gatekeeper.analysis.plan.complaints.probed_capabilities import MAY_SHOW, confirmed_sight, probe_findings
from gatekeeper.analysis.plan.complaints.unprovable_objectives import (
    BackendTraits,
    complaints,
    latency_complaints,
    missing_capabilities,
)
from gatekeeper.analysis.plan.complaints.wrong_host import virtual_mac
from gatekeeper.analysis.plan.sweep_plan import SweepPlan
from gatekeeper.backends import open_backend
from gatekeeper.backends.models.artifacts import MissingModelError
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.core.backend_registry import SCRIPTED
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError, UnprovableError
from gatekeeper.core.interfaces import Backend
from gatekeeper.core.judgement import Finding
from gatekeeper.core.manifest import ArrivalTimes, Manifest, differences
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.inputs import Inputs, load_manifest
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.system.run_directory import LOGS, MANIFEST, RunDirectory
from gatekeeper.run.requests import Client
from gatekeeper.run.stages.capability_probe import request_both_arms
from gatekeeper.run.stages.freeze import FrozenModels, find_models, freeze, freeze_models
from gatekeeper.run.stored.load import fixed_setting_of, plan_of

if TYPE_CHECKING:
    from gatekeeper.run.stored.certified_baseline import Baseline

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
    plan: SweepPlan
    certified: "Baseline | None" = None
    """The certified run to compare with; None where no objective does."""
    complaints: tuple[Complaint, ...] = ()
    memory: memory_fit.MemoryFit | None = None
    """The estimated memory of the pair; None where there are no models."""


def prepare(
    inputs: Inputs,
    path: Path,
    *,
    measuring: bool = True,
    probing: bool = True,
    fixed: Setting | None = None,
    stored: RunDirectory | None = None,
    compared: bool = False,
    baseline: str | None = None,
) -> Prepared:
    """Freeze the manifest of the run at *path* and make its plan; refuse what cannot be proven. Nothing is written.

    Not *measuring*: nothing is refused, models may be missing and no request is sent; what the backend reports is then
    a forecast. Not *probing*: nothing that the SLO names is started or fetched, not even for its version, so that its
    versions are unknown. A *fixed* setting needs no sweep. A *stored* run is continued: its manifest is used, if
    everything it froze is unchanged. A *compared* run is held against the certified run that *baseline* names, else the
    newest one beside it, where its objectives say so.
    """
    certified = None
    if compared:
        # Here, because it brings the judging of stored runs, which `plan` does without.
        from gatekeeper.run.stored.certified_baseline import find_baseline  # noqa: PLC0415

        certified = find_baseline(inputs.slo, baseline, path.parent)
    models, complaints_of_models = _models(inputs, needed=measuring)
    backend = open_backend(
        inputs.slo.subject, models=models.folders, base=inputs.base, logs=path / LOGS, greets=probing
    )
    if isinstance(backend, ServerBackend) and probing:
        backend.check_running()
    _refuse_unknown_knobs(inputs.slo, backend, fixed or ())
    _refuse_dropped_options(inputs.canaries, backend)
    host_facts = host.facts()
    problems, memory = preflight(inputs, models, backend, host_facts)
    system, complaints_of_program = _versions(backend, needed=measuring) if probing else ({}, ())
    problems = (*complaints_of_models, *complaints_of_program, *problems)
    if measuring:
        _refuse(problems)
    sight, findings, arrival_times = (
        probe_capabilities(inputs, backend) if measuring and backend.realtime else (backend.sight, [], None)
    )
    manifest = freeze(
        inputs, models, backend, sight, host_facts, findings, system=system, arrival_times=arrival_times
    )  # fmt: skip
    if certified is not None:
        manifest = manifest.model_copy(update={"certified": certified.entry})
    text = manifest.text()
    if stored is not None:
        text, fixed = verify_unchanged(manifest, stored), fixed_setting_of(stored)
        manifest = load_manifest(text.encode())
    plan = plan_of(inputs, manifest, text, fixed)
    return Prepared(inputs, backend, manifest, text, plan, certified=certified, complaints=problems, memory=memory)


def _refuse_unknown_knobs(slo: Slo, backend: Backend, fixed: Setting) -> None:
    """Raise InputError for a knob of a *fixed* setting that the backend does not have.

    `[sweep.default]` may still name the draft length of a server that is already running.
    """
    default = slo.sweep.default.model_dump()
    for knob, value in fixed:
        if knob not in {"draft", *backend.knobs} and value != default.get(knob):
            hint = f"its knobs: {', '.join(sorted(backend.knobs))}"
            raise InputError(f"--set {knob}: backend {backend.name} has no knob {knob}", hint=hint)


def _refuse_dropped_options(canaries: Mapping[str, Sequence[Canary]], backend: Backend) -> None:
    """Raise InputError for an option of a canary that the backend has no field for: other requests would be sent."""
    for name, prompts in canaries.items():
        for canary in prompts:
            if dropped := canary.options.keys() - backend.options:
                option = min(dropped)
                message = (
                    f"workload {name}: canary {canary.id} sets {option}, which backend {backend.name} does not send"
                )
                raise InputError(
                    message, hint=f"use a server that takes it, or remove {option} from the canaries and [sampling]"
                )


def _models(inputs: Inputs, *, needed: bool) -> tuple[FrozenModels, tuple[Complaint, ...]]:
    """Find and hash the models; where they are not *needed*, one that is missing is a complaint."""
    try:
        return freeze_models(inputs), ()
    except InputError as error:
        if needed:
            raise
        subject = inputs.slo.subject
        folders = {name: Path(name) for name in (subject.target, *subject.drafts)}
        errors = [place for _, place in find_models(inputs) if isinstance(place, InputError)]
        if all(isinstance(each, MissingModelError) for each in errors):
            errors = [error]  # of all models at once, with one command
        missing = tuple(Complaint("not-here", "the models", each.message, each.hint or "") for each in errors)
        return FrozenModels(folders), missing


def _versions(backend: Backend, *, needed: bool) -> tuple[Mapping[str, str], tuple[Complaint, ...]]:
    """Return the versions of the system; where they are not *needed*, a program that is missing is a complaint."""
    try:
        return backend.versions(), ()
    except InputError as error:
        if needed:
            raise
        return {}, (Complaint("not-here", "the program", error.message, error.hint or ""),)


def preflight(
    inputs: Inputs, models: FrozenModels, backend: Backend, host_facts: dict[str, Any]
) -> tuple[tuple[Complaint, ...], memory_fit.MemoryFit | None]:
    """Return everything the plan cannot prove, the worst first, and the memory that the pair needs."""
    readings, lacks = host.survey() if backend.realtime else ({}, {})
    memory = memory_fit.estimate_fit(
        inputs.slo, inputs.canaries, models.target, models.drafts, background=inputs.profile.background.memory,
        memory=host_facts.get("memory_bytes"), shares_process=backend.shares_process,
        system=memory_fit.system_share(inputs.slo, host_facts.get("platform")),
        wired_limit=host.wired_limit(host_facts),
    )  # fmt: skip
    problems = complaints(inputs.slo, inputs.canaries, _traits(backend), lacks)
    maps_weights = isinstance(backend, ServerBackend) and backend.maps_weights
    free = readings["memory_headroom"].value if readings and inputs.slo.subject.url is None else None
    if isinstance(free, float):  # a server that runs holds its weights already
        load = inputs.profile.background.memory
        by_names = memory_fit.needed_by_names(inputs.slo, load)
        needed = memory.needed_now if memory is not None else by_names
        # A mapped file counts as memory that can be had: no floor is known to be lost by it.
        floor = 0.0 if maps_weights else memory_fit.floor_of(inputs.slo)
        held = memory.held if memory is not None else load
        problems += memory_fit.short_now(
            needed, free, host.memory_holders, floor=floor, held=held,
            easier=lambda: _command_of_used(inputs, free - held + load),
        )  # fmt: skip
    if host_facts.get("platform") == "macos" and maps_weights:
        problems += memory_fit.mapped_weights(inputs.slo, models.target)
    problems += [*memory_fit.complaints(memory), *latency_complaints(inputs.slo)]
    problems += virtual_mac(host_facts) if backend.realtime else []
    return tuple(sorted(problems, key=lambda complaint: WEIGHTS.index(complaint.weight))), memory


def _command_of_used(inputs: Inputs, room: float) -> str:
    """Return the command for NAME-used.toml beside the SLO, with the floors of a machine in use; empty without it.

    It is named where the *room* beside the models has place for its floor and its own load.
    """
    path = inputs.base / f"{inputs.slo.name}-used.toml"
    try:
        used = read_inputs(path)
    except InputError:
        return ""
    fits = memory_fit.floor_of(used.slo) + used.profile.background.memory <= room
    return shlex.join(["gatekeeper", "certify", str(path)]) if fits else ""


def probe_capabilities(inputs: Inputs, backend: Backend) -> tuple[Sight, list[Finding], ArrivalTimes | None]:
    """Send two short requests; return what the backend really reports, findings, and who takes the times of arrivals.

    What an objective lacks is refused.
    """
    slo = inputs.slo
    answers = request_both_arms(slo, inputs.canaries, backend, lambda: Client(slo, backend, lambda *_: None))
    sight = confirmed_sight(answers, backend.sight, uncached=backend.uncached)
    lacks = missing_capabilities(slo, _traits(backend), sight, backend.draft_hint, counts_pieces=answers.counts_pieces)
    _refuse(lacks)
    any_server = isinstance(backend, ServerBackend) and backend.any_server
    expected = backend.sight & ~Sight.CLAIMED_ROUNDS if any_server else backend.sight
    return sight, probe_findings(answers, expected, backend.draft_hint), answers.arrival_times


def refuse_unprovable(inputs: Inputs) -> None:
    """Raise UnprovableError for what no host can prove of *inputs*: read from the SLO and its canaries alone."""
    subject = inputs.slo.subject
    names = (subject.target, *subject.drafts)
    try:
        backend = open_backend(
            subject, models={name: Path(name) for name in names}, base=inputs.base, logs=Path(LOGS), greets=False
        )
    except GatekeeperError:  # what it needs may be there where it runs
        return
    problems = complaints(inputs.slo, inputs.canaries, _traits(backend), {})
    _refuse([complaint for complaint in problems if complaint.weight == "never"])


def hold_host(inputs: Inputs, path: Path, command: str | None = None) -> AbstractContextManager[str | None]:
    """Lock the host for the run at *path*, if it measures real time; the context yields a remark on it, or None.

    A *command* whose folder has no name that a user knows is named instead.
    """
    name = path.absolute().name if command is None else f"gatekeeper {command}"
    return host.hold_host(name) if measures_real_time(inputs) else nullcontext()


def measures_real_time(inputs: Inputs) -> bool:
    """Tell whether a run of these inputs measures real time, and so needs the host for itself."""
    subject = inputs.slo.subject
    if subject.backend != SCRIPTED or subject.script is None:
        return True
    from gatekeeper.backends.scripted.script import read_script  # noqa: PLC0415 (its models take time to build)

    return read_script(inputs.base / subject.script).time == "real"


def _traits(backend: Backend) -> BackendTraits:
    server = backend if isinstance(backend, ServerBackend) else None
    return BackendTraits(
        backend.name,
        backend.sight,
        backend.streams,
        backend.knobs,
        caches=backend.caches,
        greedy_only=server is not None and server.greedy_only,
        takes_knobs=server is not None and server.any_server,
        may_show=MAY_SHOW if server is not None else Sight.NOTHING,
    )


def _refuse(problems: Sequence[Complaint]) -> None:
    for weight, error in (("never", UnprovableError), ("not-here", HostLacksError)):
        grave = merge_complaints(complaint for complaint in problems if complaint.weight == weight)
        if len(grave) == 1:
            raise error(f"{grave[0].about}: {grave[0].message}", hint=grave[0].hint)
        if grave:
            lines = [f"{complaint.about}: {complaint.message}; {complaint.hint}" for complaint in grave[:_SHOWN]]
            raise error(
                "\n".join(lines), hint="gatekeeper plan shows all that is wrong with a plan, and measures nothing"
            )


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
