"""The case of a run: everything that its verdict depends on, read from its directory."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.analysis.follow_ups.follow_up import FollowUp
from gatekeeper.analysis.plan.complaints.wrong_host import OTHER_HOST
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.soak_schedule import PART
from gatekeeper.analysis.plan.sweep_plan import SweepPlan, sweep_plan
from gatekeeper.analysis.verdict.against_certified import Certified, CertifiedFigures, compare_certified
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.backends.dialects import cache_off_advice
from gatekeeper.core.document import read_document
from gatekeeper.core.errors import RESTORE_HINT, GatekeeperError
from gatekeeper.core.judgement import Doubt, Finding, FindingKind
from gatekeeper.core.manifest import Manifest, seed_of, sha256
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.parse import json_object
from gatekeeper.core.records import Event, EventKind, Generation, Kind, Setting, StoredRecords
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.inputs import CERTIFIED_NAME, Inputs
from gatekeeper.core.system.record_files import ANSWERS, DAMAGED, EVENTS, SAMPLES, read_records, records_of
from gatekeeper.core.system.run_directory import EVENTS_FILE, HOST_FILE, PLAN, RunDirectory

SWEEP, FIRST, AGAIN = "the sweep", "the first request", "the baseline once more"
"""The names of stages, and of the look before the sweep, in events of a busy machine; a soak has its own name."""


def fixed_setting_of(directory: RunDirectory) -> Setting | None:
    """Return the setting of a run that soaked one setting without a sweep; None for any other run."""
    if not (directory.path / PLAN).exists():
        return None
    fixed = directory.document(PLAN).get("fixed")
    return tuple(sorted(fixed.items())) if isinstance(fixed, dict) else None


def plan_of(inputs: Inputs, manifest: Manifest, text: str, fixed: Setting | None) -> SweepPlan:
    """Return the sweep's plan, which depends on the frozen inputs alone; *text* is the manifest's."""
    return sweep_plan(
        inputs.slo, inputs.canaries, shares_process=manifest.shares_process, restart_knobs=manifest.restart_knobs,
        seed=seed_of(manifest, text), fixed=fixed, terms=terms_of(manifest),
    )  # fmt: skip


def terms_of(manifest: Manifest) -> Terms:
    """Return what a run is judged by besides its SLO file; what a backend of another version shows is left out."""
    sight = Sight.NOTHING
    for name in manifest.sight:
        sight |= Sight.__members__.get(name, Sight.NOTHING)
    return Terms(sight, manifest.draft_hint)


def load_case(directory: RunDirectory, inputs: Inputs, manifest: Manifest, text: str, *, live: bool = False) -> Case:
    """Read everything a verdict depends on from a run directory.

    While the run is *live*, an unfinished soak and its follow-ups count as not started, and open files as complete.
    """

    def answers(name: str) -> StoredRecords[Generation]:
        return read_records(directory.path / name, ANSWERS)

    plan = plan_of(inputs, manifest, text, fixed_setting_of(directory))
    parts = {path.stem: answers(path.name) for path in sorted(directory.path.glob("soak-*.jsonl"), key=_part_number)}
    if live:
        # The file that is being written ends in the middle of a record; of a run that ended this would be damage.
        parts = {name: recorded for name, recorded in parts.items() if recorded.trouble is None}
    soaks, looks = _join(parts)

    after_soak = {
        file: recorded
        for follow_up in FOLLOW_UPS
        for file, recorded in _read_follow_up(directory, follow_up, parts if follow_up.each_part else soaks).items()
        if not (live and recorded.trouble)
    }
    damaged = directory.damaged_files()
    # Any event may have been a reason not to promote.
    lost = (f"{name}: events were lost" for name in damaged if name.startswith(EVENTS_FILE))
    samples = read_records(directory.path / HOST_FILE, SAMPLES)
    events = read_records(directory.path / EVENTS_FILE, EVENTS)
    # `--extend` may have allowed more time than the SLO file, in several sessions: the largest counts.
    extended = (event.detail["soak_seconds"] for event in events.records if event.kind == EventKind.EXTENDED)
    slo = inputs.slo
    return Case(
        slo=slo,
        canaries=inputs.canaries,
        plan=plan,
        manifest_sha256=sha256(text),
        sweep={trial.name: answers(trial.file) for trial in plan.trials},
        soaks=soaks,
        looks=looks,
        extended=max(extended, default=0.0),
        after_soak=after_soak,
        host_samples=samples.records,
        host_trouble=None if live else samples.trouble,
        interval=manifest.sample_interval,
        conditions=_host_conditions(events.records),
        weights={workload.name: inputs.profile.weight(workload.name, workload.tier) for workload in slo.workload},
        certified=_certified_figures(directory, manifest, slo),
        cache_off=cache_off_advice(slo.subject.backend),
        findings=(
            *manifest.findings,
            *(_damage_finding(name) for name in damaged),
            *busy_findings(events.records),
            *_given_up(events.records),
        ),
        doubts=(
            *(Doubt(because, OTHER_HOST, "gatekeeper init") for because in manifest.doubts),
            *_doubts(events.records),
            *map(Doubt, lost),
        ),
    )


def _read_follow_up(
    directory: RunDirectory, follow_up: FollowUp[Any], soaks: Iterable[str]
) -> dict[str, StoredRecords[Any]]:
    """Return what a follow-up recorded of each of *soaks*, or of their parts, by its file, its own parts joined."""
    stored = {}
    for name in soaks:
        file = follow_up.file_of(name)
        if PART not in name or (directory.path / file).exists():
            stored[file.removesuffix(".jsonl")] = read_records(directory.path / file, records_of(follow_up.kind))
    return {f"{name}.jsonl": recorded for name, recorded in _join(stored)[0].items()}


def _damage_finding(name: str) -> Finding:
    """Return the finding of a record file that was damaged, and continued without its damaged lines."""
    file, _, _ = name.partition(DAMAGED)
    return Finding(
        FindingKind.DAMAGED_RECORDS,
        file,
        f"lines of it were damaged while the run was interrupted; they are left out, and the whole file is {name}",
        "check the disk; where a soak lost answers, a new run proves more than this one",
    )


def _part_number(path: Path) -> tuple[str, int]:
    name, _, part = path.stem.partition(PART)
    return name, int(part) if part.isdigit() else 1


def _join(
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
    return joined, {name: counts for name, counts in ends.items() if len(counts) > 1}


def _host_conditions(events: Sequence[Event]) -> dict[str, list[dict[str, Any]]]:
    """Return the host's facts before and after each soak, in its last segment."""
    by_soak: dict[str, tuple[int, list[dict[str, Any]]]] = {}
    for event in events:
        if event.kind == EventKind.CONDITIONS:
            segment, soak, facts = (event.detail[key] for key in ("segment", "soak", "facts"))
            if not (isinstance(segment, int) and isinstance(soak, str) and isinstance(facts, dict)):
                raise ValueError(f"events.jsonl: the conditions of {event.at} are not readable")
            if soak not in by_soak or by_soak[soak][0] != segment:
                by_soak[soak] = (segment, [])
            by_soak[soak][1].append(facts)
    return {soak: facts for soak, (_, facts) in by_soak.items()}


def busy_findings(events: Sequence[Event]) -> tuple[Finding, ...]:
    """Return a finding for each stage during which other programs kept the machine busy, else before which they did.

    What was used during a stage counts, and not the look before it; of a stage in several segments the busiest one.
    """
    looks: dict[str, tuple[float, str]] = {}
    for event in events:
        detail = event.detail
        if event.kind == EventKind.CONTINUED:
            looks.pop(f"during {AGAIN}", None)
        if event.kind == EventKind.BASELINE_AGAIN and detail["set_aside"]:
            looks.clear()
        if event.kind != EventKind.BUSY:
            continue
        look = float(detail.get("cores", 0.0)), str(detail.get("because"))
        if "before" in detail:
            looks[f"before {detail['before']}"] = look
            continue
        stage = str(detail.get("during"))
        looks.pop(f"before {FIRST if stage == SWEEP else stage}", None)
        if detail.get("busy"):
            about = f"during {stage}"
            looks[about] = max(look, looks.get(about, look))
    return tuple(Finding(FindingKind.BUSY_MACHINE, about, because) for about, (_, because) in looks.items())


def _given_up(events: Sequence[Event]) -> tuple[Finding, ...]:
    """Return a finding for a sweep that was given up, and for the baseline that was no better once more."""
    details: dict[str, str] = {}
    for detail in (event.detail for event in events if event.kind == EventKind.BASELINE_AGAIN):
        if detail["set_aside"]:
            details = {"an earlier sweep": f"its answers are set aside: {detail['because']}"}
        else:
            details[AGAIN] = str(detail["because"])
    return tuple(Finding(FindingKind.UNSTABLE_ARM, about, because) for about, because in details.items())


def _doubts(events: Sequence[Event]) -> list[Doubt]:
    doubts = []
    for event in events:
        if event.kind == EventKind.ARTIFACT_CHANGED:
            because = f"'{event.detail.get('model')}' changed on disk during the run"
            doubts.append(Doubt(because, "leave the models alone during a run, and certify again"))
        elif event.kind == EventKind.LOAD_DIED:
            because = f"the background load of {event.detail.get('soak')}: {event.detail.get('because')}"
            doubts.append(Doubt(because, "correct [background] of the soak profile, or its memory, and certify again"))
        elif event.kind == EventKind.SAMPLER_DIED:
            because = f"host sampling stopped: {event.detail.get('because')}"
            doubts.append(Doubt(because, "see what `gatekeeper doctor` says of the sensors, and certify again"))
    return doubts


def _certified_figures(directory: RunDirectory, manifest: Manifest, slo: Slo) -> Certified:
    """Read the certified run that a run is compared with; a copy that differs from its digest proves nothing."""
    frozen = manifest.certified
    if frozen is None:
        return Certified()
    if frozen.run is None:
        return Certified(none_yet=True)
    try:
        content = directory.read(CERTIFIED_NAME)
        if sha256(content) != frozen.sha256:
            return Certified(because=f"{CERTIFIED_NAME} was changed after the run was frozen")
        figures = read_document(CertifiedFigures, json_object(content), f"run {frozen.run}", hint=RESTORE_HINT)
        return compare_certified(figures, manifest, slo)
    except (GatekeeperError, ValueError) as error:
        return Certified(because=f"{CERTIFIED_NAME} cannot be read: {error}")
