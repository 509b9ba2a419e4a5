"""A stored run judged again: its verdict, what to do about it, its policy and its page."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.remedies import extension
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.policy.certified_policy import issue_policy
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.analysis.verdict.sweep_result import sweep_conclusion
from gatekeeper.core import parse
from gatekeeper.core import policy as policies
from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.policy import Policy
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import Event, StoredRecords
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.inputs import Inputs, load_manifest, read_text, stored_inputs
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.core.system.record_files import EVENTS, RESTORE_HINT, no_search_for_cycles, read_records
from gatekeeper.core.system.run_directory import (
    CHECKSUMS,
    EVENTS_FILE,
    MANIFEST,
    PLAN,
    POLICY,
    VERDICT,
    RunDirectory,
    unreadable_as_no_proof,
)
from gatekeeper.report.attestation.certificate import CERTIFICATE
from gatekeeper.report.data.decision import Decision, decide
from gatekeeper.report.data.page_data import PageData, page_data, reached
from gatekeeper.report.data.progress import Progress
from gatekeeper.report.policy_toml import render
from gatekeeper.run.stored.load import load_case


def judge(path: Path, slo_path: Path | None = None) -> Verdict:
    """Compute the verdict of a stored run again from its records; *slo_path* judges them by another SLO."""
    case, _, _ = _load(RunDirectory(path), slo_path)
    return _conclude(case, path)


def load_decision(path: Path, slo_path: Path | None = None) -> Decision:
    """Judge a stored run again, and return what to do: as `judge` does, with what its policy says."""
    directory = RunDirectory(path)
    case, _, events = _load(directory, slo_path)
    verdict, unfinished = _conclude(case, path), None
    if events.trouble is not None and not directory.is_finished():
        unfinished = reached(events.records)
    extend = extension(case, verdict) if events.trouble is None else None
    policy, alone = _policy_text(directory), case.plan.fixed is not None
    return decide(verdict, policy=policy, unfinished=unfinished, extend=extend, alone=alone)


def _policy_text(directory: RunDirectory) -> str | None:
    return directory.read(POLICY).decode(errors="replace") if (directory.path / POLICY).is_file() else None


def sweep_document(path: Path) -> dict[str, Any]:
    """Return what the sweep of a stored run would choose, per workload, as the document of `sweep`."""
    directory = RunDirectory(path)
    with unreadable_as_no_proof(path):
        text = directory.text(MANIFEST)
        manifest = load_manifest(text.encode())
        inputs, _ = stored_inputs(directory, manifest)
        conclusion = sweep_conclusion(load_case(directory, inputs, manifest, text, live=True))
    return conclusion | {"run": str(path)}


def stored_policy(path: Path) -> Policy | None:
    """Return the policy of a run; None where it has none that can be read."""
    try:
        return policies.parse(read_text(path / POLICY, "policy"), POLICY)
    except InputError:
        return None


def certified_policy(path: Path) -> Policy | None:
    """Return the policy that a run certified, whatever its policy file says now; None where it certified none.

    A file that is not the one that certificate and SHA256SUMS name was edited or moved: what it said is derived again
    from the records. Raise InputError where they do not show it.
    """
    directory = RunDirectory(path)
    if _is_as_certified(directory):
        return stored_policy(path)
    if not (path / POLICY).exists() and not (path / CERTIFICATE).exists():
        return None
    try:
        case, manifest, events = _load(directory)
        verdict = _conclude(case, path)
        issued = max(parse.moment(event.at) for event in events.records)
        digest = sha256(directory.read(VERDICT))
        content = issue_policy(case.slo, verdict, manifest, events.records, verdict_sha256=digest, issued=issued)
        return policies.parse(render(content), POLICY)
    except (GatekeeperError, ValueError) as error:
        message = f"{path}/{POLICY} was edited, and the records do not show what it certified: {error}"
        raise InputError(message, hint=f"{RESTORE_HINT}; then edit a copy, and name the run: --run {path}") from error


def certified_policy_digest(directory: RunDirectory) -> str | None:
    """Return the SHA-256 of the policy file that a run's certificate names; None where no certificate names one."""
    try:
        subject = parse.json_object(directory.read(CERTIFICATE))["subject"]
        digests = [str(part["digest"]["sha256"]) for part in subject if part["name"] == POLICY]
    except (GatekeeperError, ValueError, LookupError, TypeError):
        return None
    return digests[0] if len(digests) == 1 else None


def _is_as_certified(directory: RunDirectory) -> bool:
    """Return whether the policy file is the one that both the certificate and SHA256SUMS name."""
    if not (directory.path / POLICY).exists() or not directory.is_finished():
        return False
    is_named = certified_policy_digest(directory) == directory.sha256(POLICY)
    return is_named and not directory.changed_files(lambda name: name == POLICY)


def load_page_data(path: Path) -> PageData:
    """Judge a stored run again and compute everything a page shows of it."""
    directory = RunDirectory(path)
    case, manifest, events = _load(directory)
    verdict, policy, finished = _conclude(case, path), _policy_text(directory), events.trouble is None
    return page_data(case, verdict, events.records, finished=finished, manifest=manifest, policy=policy)


def load_live_page(path: Path) -> PageData:
    """Compute the page of a run that is under way: what was measured so far, and how far it is; nothing is decided."""
    case, manifest, events = _load(RunDirectory(path))
    recorded = [*case.sweep.values(), *case.soaks.values()]
    planned = len(case.plan.requests)
    happened = [*events.records]
    for generation in (generation for file in recorded for generation in file.records):
        total = {"of": planned} if generation.trial in case.sweep else {}
        happened.append(Event(generation.at, "answer", {"generation": generation, **total}))
    happened += [Event(sample.at, "sample", {"values": sample.values}) for sample in case.host_samples[-1:]]
    progress = Progress()
    for event in sorted(happened, key=lambda event: event.at):
        progress.update(event)
    page = page_data(case, _conclude(case, path), events.records, finished=False, manifest=manifest, policy=None)
    now = progress.snapshot()
    counts = Counter(request.workload for request in case.plan.requests) if now.stage == "sweep" else {}
    return replace(page, progress=now, planned=counts, gaps=())


def _load(directory: RunDirectory, slo_path: Path | None = None) -> tuple[Case, Manifest, StoredRecords[Event]]:
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
        doubts.append(f"events.jsonl: {events.trouble}")
    if not (path / PLAN).is_file():
        doubts.append(f"{PLAN}: missing")
    if not directory.is_finished():
        doubts.append(f"{CHECKSUMS}: missing")  # unfinished, or nothing shows what was changed since
    changed = directory.changed_files(lambda name: name.endswith(".jsonl") or name in {MANIFEST, PLAN})
    doubts += [f"{name} differs from {CHECKSUMS}" for name in changed]
    return replace(case, doubts=(*case.doubts, *dict.fromkeys(doubts))), manifest, events


def _conclude(case: Case, path: Path) -> Verdict:
    """Judge a stored case; where its inputs were changed, an error is damage to the run and not a bug."""
    try:
        with no_search_for_cycles():
            return conclude(case).verdict
    except (ValueError, LookupError) as error:
        if not case.doubts:
            raise
        raise NoProofError(Reason.UNREADABLE, f"{path}: {'; '.join(case.doubts)}", hint=RESTORE_HINT) from error


def _with_objectives_of(inputs: Inputs, other_slo: Slo, path: Path) -> Inputs:
    """Return the inputs with the objectives of another SLO; what was measured stays the same."""
    slo = inputs.slo
    same_workloads = {workload.name for workload in slo.workload} == {workload.name for workload in other_slo.workload}
    if not same_workloads or slo.sweep != other_slo.sweep or slo.subject != other_slo.subject:
        hint = "only [[objective]], confidence, [fallback] and [host] may differ; otherwise certify again"
        raise InputError(f"{path}: its workloads, [subject] or [sweep] differ from this run's", hint=hint)
    update = {key: getattr(other_slo, key) for key in ("objective", "confidence", "fallback", "host")}
    return replace(inputs, slo=slo.model_copy(update=update))
