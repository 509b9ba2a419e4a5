"""Verify a finished run: its checksums, its verdict, policy and certificate derived again, and its signature."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from gatekeeper import __version__
from gatekeeper.analysis.plan.complaints.wrong_host import host_doubts
from gatekeeper.analysis.verdict import admission
from gatekeeper.analysis.verdict.admission import Present
from gatekeeper.analysis.verdict.policy.certified_policy import issue_policy
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core import parse
from gatekeeper.core import slo as slo_file
from gatekeeper.core.document import document_of, text_of
from gatekeeper.core.errors import RESTORE_HINT, GatekeeperError, InputError, NoProofError
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.policy import Policy
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import Event, EventKind
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import record_files, run_directory
from gatekeeper.core.system.inputs import PROFILE_NAME, SLO_NAME, Inputs, canary_name, load_manifest
from gatekeeper.core.system.run_directory import EVENTS_FILE, MANIFEST, PLAN, POLICY, VERDICT, WATCH_FILES, RunDirectory
from gatekeeper.core.text import json_text
from gatekeeper.report import attestation
from gatekeeper.report.attestation import CERTIFICATE, CHAIN
from gatekeeper.report.policy_toml import render
from gatekeeper.run.stages.freeze import freeze_models
from gatekeeper.run.stored.judge import judge

READ = (".jsonl", ".json", ".toml", run_directory.SIGNATURE_SUFFIX)
"""Files that are read as part of a run: adding one counts as tampering, adding a note does not."""


@dataclass(frozen=True, slots=True)
class VerifiedRun:
    """A run whose checksums match, and the verdict that its records give."""

    directory: RunDirectory
    manifest: Manifest
    slo: Slo
    """The SLO as it was frozen."""
    verdict: Verdict
    exact: bool
    """The versions are those of the run, so every byte must be the same."""
    events: Sequence[Event]
    ended: datetime
    """The time of the last event."""


@dataclass(frozen=True, slots=True)
class Published:
    """The policy and the certificate of a run, as its verdict gives them."""

    policy: Mapping[str, Any]
    policy_sha256: str
    issued: datetime
    certificate: bytes


def present_now(inputs: Inputs) -> Present:
    """Hash the models on this machine now. Every byte is read again: a cached digest proves nothing about now."""
    try:
        models = freeze_models(inputs, afresh=True)
        subject = inputs.slo.subject
        script = sha256((inputs.base / subject.script).read_bytes()) if subject.script is not None else None
    except InputError as error:
        raise NoProofError(Reason.NO_ARTIFACTS, error.message, hint=error.hint) from error
    except OSError as error:
        hint = "every model file must be readable"
        raise NoProofError(Reason.NO_ARTIFACTS, f"cannot read {error.filename}: {error.strerror}", hint=hint) from error
    files = {name: file for name, file in inputs.files.items() if name != "slo"}
    return Present(models.target, models.drafts, files, script)


def check_slo(frozen: Slo, now: Slo) -> None:
    """Refuse a run of another SLO; comments and layout of the file do not matter."""
    if frozen.name != now.name:
        raise NoProofError(Reason.OTHER_SLO, f"the run is of the SLO '{frozen.name}'", hint=admission.CERTIFY)
    if frozen != now:
        keys = [key for key in type(now).model_fields if getattr(frozen, key) != getattr(now, key)]
        raise NoProofError(Reason.OTHER_SLO, f"the run's SLO differs in: {', '.join(keys)}", hint=admission.CERTIFY)


def check_sums(directory: RunDirectory) -> int:
    """Refuse a run that is unfinished or differs from SHA256SUMS; return the number of listed files."""
    if not directory.is_finished():
        hint = "wait for it, or continue it: gatekeeper certify {slo} --resume --output {run}"
        raise NoProofError(Reason.UNFINISHED, f"the run is unfinished: it has no {run_directory.CHECKSUMS}", hint=hint)
    sums = directory.read(run_directory.CHECKSUMS).decode(errors="replace")
    listed = {line.partition("  ")[2] for line in sums.splitlines()}
    broken = directory.changed_files(lambda name: name in listed or (name.endswith(READ) and not name.startswith(".")))
    if broken:
        names = ", ".join(broken[:4]) + (" ..." if len(broken) > 4 else "")
        raise NoProofError(Reason.TAMPERED, f"differs from {run_directory.CHECKSUMS}: {names}", hint=RESTORE_HINT)
    return len(listed)


def judge_again(directory: RunDirectory, manifest: Manifest) -> VerifiedRun:
    """Judge a finished run again; refuse one whose verdict.json does not match its records."""
    try:
        stored = directory.document(VERDICT)
        frozen = slo_file.parse(directory.text(SLO_NAME), SLO_NAME)
        verdict = judge(directory.path)
        events = record_files.read_records(directory.path / EVENTS_FILE, record_files.EVENTS).records
        ended = max(parse.moment(event.at) for event in events)
    except (InputError, ValueError) as error:  # ValueError: bytes that are not UTF-8, with new checksums
        raise _unreadable(error) from error
    ran = {"gatekeeper": __version__, "numpy": np.__version__}
    exact = all(manifest.versions.get(name) == version for name, version in ran.items())
    if exact and text_of(verdict).encode() != directory.read(VERDICT):
        raise NoProofError(Reason.TAMPERED, "verdict.json does not match the records", hint=RESTORE_HINT)
    if _gist(document_of(verdict)) != _gist(stored):
        raise NoProofError(
            Reason.TAMPERED if exact else Reason.UNPROVEN,
            f"verdict.json says '{stored.get('outcome')}', "
            f"gatekeeper {__version__} derives '{verdict.outcome}' from the records",
            hint=RESTORE_HINT,
        )
    return VerifiedRun(directory, manifest, frozen, verdict, exact=exact, events=events, ended=ended)


def check_host(run: VerifiedRun) -> bool:
    """Refuse a run whose host is not the one of the SLO's [host]; return whether the SLO names one."""
    if "host" not in run.slo.model_fields_set:
        return False
    states = [run.manifest.host, *(event.detail["facts"] for event in run.events if event.kind == EventKind.CONDITIONS)]
    admission.right_host([doubt for facts in states for doubt in host_doubts(run.slo.host, facts)])
    return True


def _unreadable(error: Exception) -> NoProofError:
    """Return the refusal of a run that this gatekeeper cannot read."""
    message, hint = (error.message, error.hint) if isinstance(error, GatekeeperError) else (str(error), RESTORE_HINT)
    return NoProofError(Reason.UNREADABLE, f"cannot be read: {message}", hint=hint or RESTORE_HINT)


def _gist(document: Mapping[str, Any]) -> Any:
    """Return what every version must derive alike: the outcomes and the settings."""
    outcomes = ("name", "outcome", "setting")
    workloads = [tuple(workload.get(key) for key in outcomes) for workload in document.get("workloads", ())]
    return [document.get(key) for key in ("slo", "grade", "outcome", "exit_code", "manifest_sha256")], workloads


def check_published(run: VerifiedRun) -> Published:
    """Derive policy and certificate again; refuse a run whose files are missing or differ."""
    directory = run.directory
    try:
        text, written = directory.text(POLICY), directory.read(CERTIFICATE)
        directory.read(CHAIN)  # the certificate names its digest
    except InputError as error:  # for example a soak alone, which promotes nothing
        raise NoProofError(Reason.UNPROVEN, error.message, hint=admission.CERTIFY) from error
    try:
        stored = parse.toml_table(text)
        issued = parse.moment(stored["issued"])
        digest = sha256(directory.read(VERDICT))
        derived = issue_policy(run.slo, run.verdict, run.manifest, run.events, verdict_sha256=digest, issued=issued)
        derived_certificate = certificate_of(directory, run.manifest, run.verdict, derived, run.events)
        certified = parse.json_object(written)
        subject, result = certified["subject"], certified["predicate"]["result"]
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        message = f"{POLICY} or {CERTIFICATE} is damaged: {error}"
        raise NoProofError(Reason.TAMPERED, message, hint=RESTORE_HINT) from error
    if _routes(stored, run) != _routes(tomllib.loads(render(derived)), run):
        raise NoProofError(Reason.TAMPERED, f"{POLICY} does not match the verdict", hint=RESTORE_HINT)
    if subject != derived_certificate["subject"]:
        raise NoProofError(Reason.TAMPERED, f"{CERTIFICATE} describes another run", hint=RESTORE_HINT)
    same_result = result == derived_certificate["predicate"]["result"]
    if not same_result or (run.exact and json_text(derived_certificate).encode() != written):
        raise NoProofError(Reason.TAMPERED, f"{CERTIFICATE} does not match the verdict", hint=RESTORE_HINT)
    return Published(stored, sha256(text), issued, written)


def _routes(policy: Mapping[str, Any], run: VerifiedRun) -> dict[str, Any]:
    """Return what a policy routes; between two versions its reasons, warm-up and guards may differ."""
    changing = (
        "because", "warm_up", "warm_up_after", "ladder", "measured", "longest_prompt", "longest_format", "models",
        "request",
    )  # fmt: skip
    loose = () if run.exact else changing
    watched = ("guard", "watch", "conditions", "launch")
    routes = [{key: value for key, value in route.items() if key not in loose} for route in policy.get("route", ())]
    rest = policy if run.exact else {key: value for key, value in policy.items() if key not in watched}
    return {**rest, "route": routes}


def certificate_of(
    directory: RunDirectory, manifest: Manifest, verdict: Verdict, policy: Policy, events: Sequence[Event]
) -> dict[str, Any]:
    """Return the certificate of a run whose verdict.json, policy.toml and chain are written."""
    results = (MANIFEST, VERDICT, POLICY, CHAIN)
    frozen = {SLO_NAME: manifest.slo.sha256, PROFILE_NAME: manifest.profile.sha256}
    frozen |= {canary_name(name): file.sha256 for name, file in manifest.canaries.items()}
    files = {name: directory.sha256(name) for name in results}
    url = attestation.build_of(events)
    tries = attestation.tries_before(events)
    return attestation.certificate_statement(
        manifest, verdict, policy, files=files, inputs=frozen, url=url, tries=tries
    )


def chain_of(directory: RunDirectory, manifest: Manifest, events: Sequence[Event]) -> dict[str, Any]:
    """Return the chain of a run whose policy is written: its steps, who made them, and where."""
    records = sorted(path.name for path in directory.path.glob("*.jsonl") if path.name not in WATCH_FILES)
    names = (MANIFEST, PLAN, VERDICT, POLICY, *records)
    return attestation.chain_document(manifest, events, {name: directory.sha256(name) for name in names})


def check_chain(run: VerifiedRun) -> list[dict[str, Any]]:
    """Return who made each step of a run; refuse a chain that its files do not give."""
    directory = run.directory
    derived = chain_of(directory, run.manifest, run.events)
    if run.exact and json_text(derived).encode() != directory.read(CHAIN):
        raise NoProofError(Reason.TAMPERED, f"{CHAIN} does not match the run", hint=RESTORE_HINT)
    return attestation.chain_steps(derived)


def read_manifest(directory: RunDirectory) -> Manifest:
    """Parse a run's manifest; refuse one that cannot be read."""
    try:
        return load_manifest(directory.read(MANIFEST))
    except InputError as error:
        raise _unreadable(error) from error


def read_frozen(directory: RunDirectory) -> tuple[Manifest, Slo]:
    """Return a run's manifest and SLO; refuse a run where one of them was changed or cannot be read."""
    try:
        manifest, text = read_manifest(directory), directory.text(SLO_NAME)
        if directory.changed_files(lambda name: name in {MANIFEST, SLO_NAME}):
            message = f"the manifest or the SLO differs from {run_directory.CHECKSUMS}"
            raise NoProofError(Reason.TAMPERED, message, hint=RESTORE_HINT)
        if sha256(text) != manifest.slo.sha256:
            raise NoProofError(Reason.TAMPERED, f"{SLO_NAME} is not the SLO that was frozen", hint=RESTORE_HINT)
        return manifest, slo_file.parse(text, SLO_NAME)
    except (InputError, ValueError) as error:
        raise _unreadable(error) from error
