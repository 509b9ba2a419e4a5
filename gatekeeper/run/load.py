"""Read a stored run: as a case to judge, as a verdict, as page data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from gatekeeper.analysis.passes import PASSES
from gatekeeper.analysis.passes.definition import Pass
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.region_points import REGION, REGION_TIES
from gatekeeper.analysis.plan.soak_schedule import PART
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, sweep_plan
from gatekeeper.analysis.sweep.routing import ROUTING
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.conclude import conclude
from gatekeeper.analysis.verdict.extension import extension
from gatekeeper.analysis.verdict.policy import policy
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.analysis.verdict.sweep_result import sweep_conclusion
from gatekeeper.core import parse
from gatekeeper.core import policy as policies
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError
from gatekeeper.core.manifest import Manifest, seed_of, sha256
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.policy import Policy
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import Event, Generation, Kind, Setting, StoredRecords, Tie
from gatekeeper.core.system import inputs, record_files, run_directory
from gatekeeper.core.system.inputs import Inputs, load_manifest, stored_inputs
from gatekeeper.core.system.record_files import RESTORE_HINT
from gatekeeper.core.verdict import Finding
from gatekeeper.report.data.decision import Decision, decide
from gatekeeper.report.data.page import PageData, page_data
from gatekeeper.report.data.progress import Progress
from gatekeeper.report.policy_toml import render
from gatekeeper.run.certified_figures import certified_in
from gatekeeper.run.stages.promote import POLICY


def fixed_in(directory: run_directory.RunDirectory) -> Setting | None:
    """Return the setting of a run that soaked one setting without a sweep; None for any other run."""
    here = (directory.path / "plan.json").exists()
    fixed = run_directory.parse_json(directory.read("plan.json"), "plan.json").get("fixed") if here else None
    return tuple(sorted(fixed.items())) if isinstance(fixed, dict) else None


def plan_of(given: Inputs, manifest: Manifest, text: str, fixed: Setting | None) -> SweepPlan:
    """Return the sweep's plan, which depends on the frozen inputs alone; *text* is the manifest's."""
    return sweep_plan(
        given.slo,
        given.canaries,
        shares_process=manifest.shares_process,
        restart_knobs=manifest.restart_knobs,
        seed=seed_of(sha256(text)),
        fixed=fixed,
        terms=terms_of(manifest),
    )


def terms_of(manifest: Manifest) -> Terms:
    """Return what a run is judged by besides its SLO file; what a backend of another version shows is left out."""
    shown = Sight.NOTHING
    for name in manifest.sight:
        shown |= Sight.__members__.get(name, Sight.NOTHING)
    return Terms(manifest.rules, shown)


def load_case(
    directory: run_directory.RunDirectory, given: Inputs, manifest: Manifest, text: str, *, live: bool = False
) -> Case:
    """Read everything a verdict depends on from a run directory.

    While the run is *live*, an unfinished soak and the passes after it count as not started, and open files as
    complete.
    """

    def answers(name: str) -> StoredRecords[Generation]:
        return record_files.read_records(directory.path / name, record_files.ANSWERS)

    plan = plan_of(given, manifest, text, fixed_in(directory))
    parts = {path.stem: answers(path.name) for path in sorted(directory.path.glob("soak-*.jsonl"), key=_part_number)}
    if live:
        parts = {name: found for name, found in parts.items() if found.trouble is None}
    soaks, looks = _joined(parts)

    def after(each: Pass[Any]) -> Iterator[tuple[str, StoredRecords[Any]]]:
        """Yield what a pass recorded after each soak, its parts joined, but nothing unfinished of a live run."""
        kind = record_files.KINDS[each.kind]
        stored = {}
        for name in parts if each.each_part else soaks:
            file = each.file_of(name)
            if PART not in name or (directory.path / file).exists():
                stored[file.removesuffix(".jsonl")] = record_files.read_records(directory.path / file, kind)
        for name, recorded in _joined(stored)[0].items():
            if not (live and recorded.trouble):
                yield f"{name}.jsonl", recorded

    asked: StoredRecords[Generation] = answers(ROUTING) if (directory.path / ROUTING).exists() else StoredRecords(())
    around: StoredRecords[Generation] = answers(REGION) if (directory.path / REGION).exists() else StoredRecords(())
    near: StoredRecords[Tie] = StoredRecords(())
    if (directory.path / REGION_TIES).exists():
        near = record_files.read_records(directory.path / REGION_TIES, record_files.TIES)
    damaged = directory.damaged_files()
    samples = record_files.read_records(directory.path / "host.jsonl", record_files.SAMPLES)
    events = record_files.read_records(directory.path / run_directory.EVENTS_FILE, record_files.EVENTS)
    slo = given.slo
    if manifest.soak_until != slo.soak.ends:  # of a run made before soaks could continue
        soak = slo.soak.model_copy(update={"until": manifest.soak_until})
        slo = slo.model_copy(update={"soak": soak})
    return Case(
        slo=slo,
        canaries=given.canaries,
        plan=plan,
        manifest_sha256=sha256(text),
        sweep={trial.name: answers(trial.file) for trial in plan.trials},
        soaks=soaks,
        looks=looks,
        extended=max((one.detail["soak_seconds"] for one in events.records if one.kind == "extended"), default=0.0),
        after_soak=dict(chain.from_iterable(after(each) for each in PASSES)),
        routing=StoredRecords(()) if live and asked.trouble else asked,
        region=replace(around, trouble=None) if live else around,
        region_ties=near,
        region_ended=not live or ((directory.path / REGION).exists() and around.trouble is None),
        host_samples=samples.records,
        host_trouble=None if live else samples.trouble,
        interval=manifest.sample_interval,
        conditions=_conditions_in(events.records),
        weights={one.name: given.profile.weight(one.name, one.tier) for one in given.slo.workload},
        certified=certified_in(directory, manifest, slo),
        findings=(
            *(Finding(one["kind"], one["about"], one["detail"], one.get("advice", "")) for one in manifest.findings),
            *(_damage_finding(name) for name in damaged),
        ),
        doubts=(*manifest.doubts, *_doubts_in(events.records), *_lost_events(damaged)),
    )


def _damage_finding(name: str) -> Finding:
    """Return the finding of a record file that was damaged, and continued without its damaged lines."""
    file, _, _ = name.partition(record_files.DAMAGED)
    return Finding(
        "damaged_records",
        file,
        f"lines of it were damaged while the run was interrupted; they are left out, and the whole file is {name}",
        "check the disk; where a soak lost answers, a new run proves more than this one",
    )


def _lost_events(damaged: Sequence[str]) -> list[str]:
    """Return a doubt where events were lost: any of them may have been a reason not to promote."""
    return [f"{name}: events were lost" for name in damaged if name.startswith(run_directory.EVENTS_FILE)]


def _part_number(path: Path) -> tuple[str, int]:
    name, _, part = path.stem.partition(PART)
    return name, int(part) if part.isdigit() else 1


def _joined(
    parts: Mapping[str, StoredRecords[Kind]],
) -> tuple[dict[str, StoredRecords[Kind]], dict[str, tuple[int, ...]]]:
    """Join the parts of each soak, given in their order; also return how many records each had after each part."""
    names = dict.fromkeys(stem.partition(PART)[0] for stem in parts)
    groups = {name: [parts[stem] for stem in parts if stem.partition(PART)[0] == name] for name in names}
    joined = {
        name: group[0]
        if len(group) == 1
        else StoredRecords(
            tuple(record for part in group for record in part.records),
            next((part.trouble for part in group if part.trouble is not None), None),
        )
        for name, group in groups.items()
    }
    ends = {name: tuple(accumulate(len(part.records) for part in group)) for name, group in groups.items()}
    return joined, {name: at for name, at in ends.items() if len(at) > 1}


def _conditions_in(events: Sequence[Event]) -> dict[str, list[dict[str, Any]]]:
    """Return the host's facts before and after each soak, in its last segment."""
    found: dict[str, tuple[int, list[dict[str, Any]]]] = {}
    for event in events:
        if event.kind == "conditions":
            segment, soak, facts = (event.detail[key] for key in ("segment", "soak", "facts"))
            if not (isinstance(segment, int) and isinstance(soak, str) and isinstance(facts, dict)):
                raise ValueError(f"events.jsonl: the conditions of {event.at} are not readable")
            if found.get(soak, (segment,))[0] != segment or soak not in found:
                found[soak] = (segment, [])
            found[soak][1].append(facts)
    return {soak: facts for soak, (_, facts) in found.items()}


def _doubts_in(events: Sequence[Event]) -> list[str]:
    doubts = []
    for event in events:
        if event.kind == "artifact_changed":
            doubts.append(f"'{event.detail.get('model')}' changed on disk during the run")
        elif event.kind == "load_died":
            doubts.append(f"the background load of {event.detail.get('soak')}: {event.detail.get('because')}")
        elif event.kind == "sampler_died":
            doubts.append(f"host sampling stopped: {event.detail.get('because')}")
    return doubts


def judge(path: Path, slo_path: Path | None = None) -> Verdict:
    """Compute the verdict of a stored run again from its records; *slo_path* judges them by another SLO."""
    case, _, _ = _stored(run_directory.RunDirectory(path), slo_path)
    return _concluded(case, path)


def load_decision(path: Path, slo_path: Path | None = None) -> Decision:
    """Judge a stored run again, and return what to do: as `judge` does, with what its policy says."""
    directory = run_directory.RunDirectory(path)
    case, _, events = _stored(directory, slo_path)
    verdict, unfinished = _concluded(case, path), events.trouble is not None
    extend = None if unfinished else extension(case, verdict)
    return decide(verdict, policy=_policy_text(directory), extend=extend, alone=case.plan.fixed is not None)


def _policy_text(directory: run_directory.RunDirectory) -> str | None:
    return directory.read(POLICY).decode(errors="replace") if (directory.path / POLICY).is_file() else None


def sweep_document(path: Path) -> dict[str, Any]:
    """Return what the sweep of a stored run would choose, per workload, as the document of `sweep`."""
    directory = run_directory.RunDirectory(path)
    with run_directory.unreadable_as_no_proof(path):
        text = directory.text("manifest.json")
        manifest = load_manifest(text.encode())
        given, _ = stored_inputs(directory, manifest)
        found = sweep_conclusion(load_case(directory, given, manifest, text, live=True))
    return found | {"run": str(path)}


def stored_policy(path: Path) -> Policy | None:
    """Return the policy of a run; None where it has none that can be read."""
    try:
        return policies.parse(inputs.read_text(path / POLICY, "policy"), POLICY)
    except InputError:
        return None


def certified_policy(path: Path) -> Policy | None:
    """Return the policy that a run certified, whatever its policy file says now; None where it has none.

    A file that differs from SHA256SUMS was edited: what it said is derived again from the records. Raise InputError
    where they do not show it.
    """
    directory = run_directory.RunDirectory(path)
    if not (path / POLICY).exists():
        return None
    if directory.is_finished() and not directory.changed_files(lambda name: name == POLICY):
        return stored_policy(path)
    try:
        case, manifest, events = _stored(directory)
        verdict = _concluded(case, path)
        issued = max(parse.moment(event.at) for event in events.records)
        content = policy(
            case.slo,
            verdict,
            manifest,
            events.records,
            verdict_sha256=sha256(directory.read("verdict.json")),
            issued=stamp(issued),
            expires=stamp(issued + timedelta(seconds=case.slo.promote.valid_for)),
        )
        return policies.parse(render(content), POLICY)
    except (GatekeeperError, ValueError) as error:
        raise InputError(
            f"{path}/{POLICY} was edited, and the records do not show what it certified: {error}",
            hint=f"{RESTORE_HINT}; then edit a copy, and name the run: --run {path}",
        ) from error


def load_page_data(path: Path) -> PageData:
    """Judge a stored run again and compute everything a page shows of it."""
    directory = run_directory.RunDirectory(path)
    case, manifest, events = _stored(directory)
    return page_data(
        case,
        _concluded(case, path),
        events.records,
        finished=events.trouble is None,
        manifest=manifest.model_dump(mode="json", by_alias=True),
        policy=_policy_text(directory),
    )


def load_live_page(path: Path) -> PageData:
    """Compute the page of a run that is under way: what was measured so far, and how far it is; nothing is decided."""
    case, manifest, events = _stored(run_directory.RunDirectory(path))
    recorded = [*case.sweep.values(), *case.soaks.values()]
    planned = len(case.plan.requests)
    happened = [(one.at, one) for one in events.records]
    happened += [
        (one.at, Event(one.at, "answer", {"generation": one} | ({"of": planned} if one.trial in case.sweep else {})))
        for file in recorded
        for one in file.records
    ]
    happened += [(one.at, Event(one.at, "sample", {"values": one.values})) for one in case.host_samples[-1:]]
    progress = Progress()
    for _, event in sorted(happened, key=lambda one: one[0]):
        progress.update(event)
    page = page_data(
        case,
        _concluded(case, path),
        events.records,
        finished=False,
        manifest=manifest.model_dump(mode="json", by_alias=True),
        policy=None,
    )
    return replace(page, progress=progress.snapshot(), gaps=())


def _stored(
    directory: run_directory.RunDirectory, slo_path: Path | None = None
) -> tuple[Case, Manifest, StoredRecords[Event]]:
    """Read a stored run as a case; everything that is wrong with it is among the doubts."""
    path = directory.path
    with run_directory.unreadable_as_no_proof(path):
        text = directory.text("manifest.json")
        manifest = load_manifest(text.encode())
        given, doubts = stored_inputs(directory, manifest)
    if slo_path is not None:
        given = _with_objectives_of(given, inputs.read(slo_path), slo_path)
    with run_directory.unreadable_as_no_proof(path):
        case = load_case(directory, given, manifest, text)
    events = record_files.read_records(path / run_directory.EVENTS_FILE, record_files.EVENTS)
    if events.trouble is not None:
        doubts.append(f"events.jsonl: {events.trouble}")
    if not (path / "plan.json").is_file():
        doubts.append("plan.json: missing")
    if not directory.is_finished():
        doubts.append(f"{run_directory.CHECKSUMS}: missing")  # unfinished, or nothing shows what was changed since
    changed = directory.changed_files(lambda name: name.endswith(".jsonl") or name in {"manifest.json", "plan.json"})
    doubts += [f"{name} differs from {run_directory.CHECKSUMS}" for name in changed]
    return replace(case, doubts=(*case.doubts, *dict.fromkeys(doubts))), manifest, events


def _concluded(case: Case, path: Path) -> Verdict:
    """Judge a stored case; where its inputs were changed, an error is damage to the run and not a bug."""
    try:
        return conclude(case).verdict
    except (ValueError, LookupError) as error:
        if not case.doubts:
            raise
        raise NoProofError(Reason.UNREADABLE, f"{path}: {'; '.join(case.doubts)}", hint=RESTORE_HINT) from error


def _with_objectives_of(given: Inputs, other: Inputs, path: Path) -> Inputs:
    """Return the inputs with the objectives of another SLO; what was measured stays the same."""
    mine, new = given.slo, other.slo
    same = {one.name for one in mine.workload} == {one.name for one in new.workload}
    if not same or mine.sweep != new.sweep or mine.subject != new.subject:
        raise InputError(
            f"{path}: its workloads, [subject] or [sweep] differ from this run's",
            hint="only [[objective]], confidence, [fallback] and [host] may differ; otherwise certify again",
        )
    update = {"objective": new.objective, "confidence": new.confidence, "fallback": new.fallback, "host": new.host}
    return Inputs(mine.model_copy(update=update), given.canaries, given.profile, given.base, given.texts, given.files)
