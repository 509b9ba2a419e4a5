"""A stored run judged again: its verdict, and what to do about it."""

from dataclasses import replace
from pathlib import Path

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.remedies import extension
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.errors import RESTORE_HINT, InputError, NoProofError
from gatekeeper.core.judgement import Doubt
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import Event, StoredRecords
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.inputs import Inputs, load_manifest, stored_inputs
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.system.record_files import EVENTS, no_search_for_cycles, read_records
from gatekeeper.core.system.run_directory import (
    CHECKSUMS,
    EVENTS_FILE,
    MANIFEST,
    PLAN,
    POLICY,
    RunDirectory,
    unreadable_as_no_proof,
)
from gatekeeper.report.data.decision import Decision, decide, describe_progress
from gatekeeper.run.stored.load import load_case


def judge(path: Path, slo_path: Path | None = None) -> Verdict:
    """Compute the verdict of a stored run again from its records; *slo_path* judges them by another SLO."""
    case, _, _ = load_run(RunDirectory(path), slo_path)
    return conclude_run(case, path)


def load_decision(path: Path, slo_path: Path | None = None) -> Decision:
    """Judge a stored run again, and return what to do: as `judge` does, with what its policy says."""
    directory = RunDirectory(path)
    case, _, events = load_run(directory, slo_path)
    verdict, unfinished = conclude_run(case, path), None
    if events.trouble is not None and not directory.is_finished():
        unfinished = describe_progress(events.records)
    extend = extension(case, verdict) if events.trouble is None else None
    policy, alone = policy_text(directory), case.plan.fixed is not None
    return decide(verdict, policy=policy, unfinished=unfinished, extend=extend, alone=alone)


def policy_text(directory: RunDirectory) -> str | None:
    """Return the policy file of a stored run; None where it has none."""
    return directory.read(POLICY).decode(errors="replace") if (directory.path / POLICY).is_file() else None


def load_run(directory: RunDirectory, slo_path: Path | None = None) -> tuple[Case, Manifest, StoredRecords[Event]]:
    """Read a stored run as a case; everything that is wrong with it is among the doubts."""
    path = directory.path
    with unreadable_as_no_proof(path):
        text = directory.text(MANIFEST)
        manifest = load_manifest(text.encode())
        inputs, doubts = stored_inputs(directory, manifest)
    if slo_path is not None:
        inputs = _with_objectives_of(inputs, read_inputs(slo_path).slo, slo_path)
    with unreadable_as_no_proof(path):
        case = load_case(directory, inputs, manifest, text)
    events = read_records(path / EVENTS_FILE, EVENTS)
    if events.trouble is not None:
        doubts.append(f"{EVENTS_FILE}: {events.trouble}")
    if not (path / PLAN).is_file():
        doubts.append(f"{PLAN}: missing")
    if not directory.is_finished():
        doubts.append(f"{CHECKSUMS}: missing")  # unfinished, or nothing shows what was changed since
    changed = directory.changed_files(lambda name: name.endswith(".jsonl") or name in {MANIFEST, PLAN})
    doubts += [f"{name} differs from {CHECKSUMS}" for name in changed]
    return replace(case, doubts=(*case.doubts, *map(Doubt, dict.fromkeys(doubts)))), manifest, events


def conclude_run(case: Case, path: Path) -> Verdict:
    """Judge a stored case; where its inputs were changed, an error is damage to the run and not a bug."""
    try:
        with no_search_for_cycles():
            return conclude(case).verdict
    except ArithmeticError as error:
        message = f"{path}: its records hold numbers that cannot be computed with ({error})"
        raise NoProofError(Reason.UNREADABLE, message, hint=RESTORE_HINT) from error
    except (ValueError, LookupError) as error:
        if not case.doubts:
            raise
        because = "; ".join(doubt.because for doubt in case.doubts)
        raise NoProofError(Reason.UNREADABLE, f"{path}: {because}", hint=RESTORE_HINT) from error


def _with_objectives_of(inputs: Inputs, other_slo: Slo, path: Path) -> Inputs:
    """Return the inputs with the objectives of another SLO; what was measured stays the same."""
    slo = inputs.slo
    same_workloads = {workload.name for workload in slo.workload} == {workload.name for workload in other_slo.workload}
    if not same_workloads or slo.sweep != other_slo.sweep or slo.subject != other_slo.subject:
        hint = "only [[objective]], confidence, [fallback] and [host] may differ; otherwise certify again"
        raise InputError(f"{path}: its workloads, [subject] or [sweep] differ from this run's", hint=hint)
    update = {key: getattr(other_slo, key) for key in ("objective", "confidence", "fallback", "host")}
    return replace(inputs, slo=slo.model_copy(update=update))
