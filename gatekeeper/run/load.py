"""A stored run, read back as a case to judge."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gatekeeper.analysis.plan.soak_schedule import file_after
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, sweep_plan
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.conclude import conclude
from gatekeeper.analysis.verdict.sweep_result import sweep_choices
from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.core.manifest import Manifest, seed_of, sha256
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import Event, Generation, Setting, StoredRecords
from gatekeeper.core.system import inputs, run_directory
from gatekeeper.core.system.inputs import Inputs, load_manifest, stored_inputs
from gatekeeper.core.system.run_directory import RESTORE_HINT
from gatekeeper.core.verdict import Finding, Verdict
from gatekeeper.report.data.page import PageData, page_data
from gatekeeper.run.stages.promote import POLICY


def fixed_in(directory: run_directory.RunDirectory) -> Setting | None:
    """Return the setting that was soaked without a sweep, if that is what the run is."""
    path = directory.path / "plan.json"
    fixed = run_directory.parse_json(path.read_bytes(), "plan.json").get("fixed") if path.is_file() else None
    return tuple(sorted(fixed.items())) if isinstance(fixed, dict) else None


def plan_of(given: Inputs, manifest: Manifest, text: str, fixed: Setting | None) -> SweepPlan:
    """Return the sweep's plan, which the frozen inputs decide alone; *text* is the manifest's."""
    return sweep_plan(
        given.slo,
        given.canaries,
        shares_process=manifest.shares_process,
        restart_knobs=manifest.restart_knobs,
        seed=seed_of(sha256(text)),
        fixed=fixed,
    )


def load_case(
    directory: run_directory.RunDirectory, given: Inputs, manifest: Manifest, text: str, *, live: bool = False
) -> Case:
    """Read everything a verdict rests on from a run directory.

    While the run is still *live*, a soak that is not finished, and what is recorded after it, count as not begun, and
    open files as whole.
    """

    def answers(name: str) -> StoredRecords[Generation]:
        return run_directory.read_records(directory.path / name, run_directory.ANSWERS)

    plan = plan_of(given, manifest, text, fixed_in(directory))
    soaks = {path.stem: answers(path.name) for path in sorted(directory.path.glob("soak-*.jsonl"))}
    if live:
        soaks = {name: found for name, found in soaks.items() if found.trouble is None}
    ties_files = [file_after("ties", name) for name in soaks]
    ties = {file: run_directory.read_records(directory.path / file, run_directory.TIES) for file in ties_files}
    after = {file: answers(file) for name in soaks for file in (file_after("warm", name), file_after("draws", name))}
    samples = run_directory.read_records(directory.path / "host.jsonl", run_directory.SAMPLES)
    events = run_directory.read_records(directory.path / "events.jsonl", run_directory.EVENTS)
    return Case(
        slo=given.slo,
        canaries=given.canaries,
        plan=plan,
        manifest_sha256=sha256(text),
        sweep={trial.name: answers(trial.file) for trial in plan.trials},
        soaks=soaks,
        ties={file: one for file, one in ties.items() if not (live and one.trouble)},
        after_soak={file: one for file, one in after.items() if not (live and one.trouble)},
        host_samples=samples.records,
        host_trouble=None if live else samples.trouble,
        interval=manifest.sample_interval,
        conditions=_conditions_in(events.records),
        weights={one.name: given.profile.weight(one.name, one.tier) for one in given.slo.workload},
        findings=tuple(
            Finding(one["kind"], one["about"], one["detail"], one.get("advice", "")) for one in manifest.findings
        ),
        doubts=(*manifest.doubts, *_doubts_in(events.records)),
    )


def _conditions_in(events: Sequence[Event]) -> dict[str, list[dict[str, Any]]]:
    """Return the host's facts around each soak, in its last unbroken stretch."""
    found: dict[str, tuple[int, list[dict[str, Any]]]] = {}
    for event in events:
        if event.kind == "conditions":
            segment, soak = event.detail["segment"], event.detail["soak"]
            if found.get(soak, (segment,))[0] != segment or soak not in found:
                found[soak] = (segment, [])
            found[soak][1].append(event.detail["facts"])
    return {soak: facts for soak, (_, facts) in found.items()}


def _doubts_in(events: Sequence[Event]) -> list[str]:
    doubts = []
    for event in events:
        if event.kind == "artifact_changed":
            doubts.append(f"'{event.detail.get('model')}' changed on disk during the run")
        elif event.kind == "load_died":
            doubts.append(f"the background load of {event.detail.get('soak')}: {event.detail.get('because')}")
        elif event.kind == "sampler_died":
            doubts.append(f"the host sampler died: {event.detail.get('because')}")
    return doubts


def judge(path: Path, slo_path: Path | None = None) -> Verdict:
    """Derive the verdict of a stored run again from its records alone; another SLO may be laid against them."""
    case, _, _ = _stored(run_directory.RunDirectory(path), slo_path)
    return _concluded(case, path)


def swept(path: Path) -> dict[str, Any]:
    """Say what the sweep of a stored run would choose, per workload, as `sweep` prints it."""
    directory = run_directory.RunDirectory(path)
    text = directory.read("manifest.json").decode()
    manifest = load_manifest(text.encode())
    given, _ = stored_inputs(directory, manifest)
    choices, *_ = sweep_choices(load_case(directory, given, manifest, text, live=True))
    found = {name: choice.document() for name, choice in choices.items()}
    return {"schema": 1, "slo": given.slo.name, "run": str(path), "workloads": found}


def picture(path: Path) -> PageData:
    """Judge a stored run again and compute everything a page shows of it."""
    directory = run_directory.RunDirectory(path)
    case, manifest, events = _stored(directory)
    policy = path / POLICY
    return page_data(
        case,
        _concluded(case, path),
        events.records,
        finished=events.trouble is None,
        manifest=manifest.model_dump(mode="json", by_alias=True),
        policy=policy.read_text(errors="replace") if policy.is_file() else None,
    )


def _stored(
    directory: run_directory.RunDirectory, slo_path: Path | None = None
) -> tuple[Case, Manifest, StoredRecords[Event]]:
    """Read a stored run as a case, with everything that is wrong with it among its doubts."""
    path = directory.path
    with _damage_is_no_proof(path):
        text = directory.text("manifest.json")
        manifest = load_manifest(text.encode())
        given, broken = stored_inputs(directory, manifest)
    if slo_path is not None:
        given = _with_promises_of(given, inputs.read(slo_path), slo_path)
    with _damage_is_no_proof(path):
        case = load_case(directory, given, manifest, text)
    events = run_directory.read_records(path / "events.jsonl", run_directory.EVENTS)
    if events.trouble is not None:
        broken.append(f"events.jsonl: {events.trouble}")
    if not (path / "plan.json").is_file():
        broken.append("plan.json: missing")
    seals = directory.changed_files(lambda name: name.endswith(".jsonl") or name in {"manifest.json", "plan.json"})
    broken += [f"{name} is not what {run_directory.CHECKSUMS} says" for name in seals]
    return replace(case, doubts=(*case.doubts, *dict.fromkeys(broken))), manifest, events


def _concluded(case: Case, path: Path) -> Verdict:
    """Conclude a stored case; records that do not fit inputs which were changed are damage, and no bug of ours."""
    try:
        return conclude(case).verdict
    except (ValueError, LookupError) as error:
        if not case.doubts:
            raise
        raise NoProofError(Reason.UNREADABLE, f"{path}: {'; '.join(case.doubts)}", hint=RESTORE_HINT) from error


@contextmanager
def _damage_is_no_proof(path: Path) -> Iterator[None]:
    """Take what can not be read in a run for evidence that is missing; a folder that is none is a wrong argument."""
    try:
        yield
    except (InputError, ValueError, LookupError) as error:
        if not run_directory.is_run(path):
            raise
        said = error.message.removeprefix(f"{path} ") if isinstance(error, InputError) else f"damaged: {error}"
        newer = isinstance(error, InputError) and error.hint == run_directory.UPDATE_HINT
        raise NoProofError(
            Reason.UNREADABLE, f"{path}: {said}", hint=run_directory.UPDATE_HINT if newer else RESTORE_HINT
        ) from error


def _with_promises_of(given: Inputs, other: Inputs, path: Path) -> Inputs:
    """Lay another SLO's promises against the same measurements; what was measured stays what it was."""
    mine, new = given.slo, other.slo
    same = {one.name for one in mine.workload} == {one.name for one in new.workload}
    if not same or mine.sweep != new.sweep or mine.subject != new.subject:
        raise InputError(
            f"{path}: other workloads, subject or sweep than this run's",
            hint="only promises, confidence and the ladder may differ; else certify again",
        )
    promises = {"objective": new.objective, "confidence": new.confidence, "fallback": new.fallback, "host": new.host}
    return Inputs(mine.model_copy(update=promises), given.canaries, given.profile, given.base, given.texts, given.files)
