"""The deploy gate: admits the newest run of these artifacts if it passed, has not expired and was not changed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict import admission
from gatekeeper.analysis.verdict.admission import Present
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import InputError, NoProofError, OtherRulesError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.reasons import Reason
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import inputs, run_directory
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.run_directory import POLICY, RunDirectory
from gatekeeper.core.units import show_seconds
from gatekeeper.deploy.signing import keyless, sign, ssh_keys
from gatekeeper.deploy.signing.keyless import KeylessSigner
from gatekeeper.live.running.deployed_server import check_server
from gatekeeper.live.running.server_differences import Compared, differences
from gatekeeper.report.attestation import tries_before
from gatekeeper.run.stored import tries, verify
from gatekeeper.run.stored.tries import TryCount


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a deploy requires of a run in addition to the SLO."""

    max_age: float | None = None
    """Seconds; only shortens what the SLO allows."""
    demo: bool = False
    signers: Path | KeylessSigner | None = None
    """A file of allowed signers or public keys, or an identity: one of them must have signed the certificate."""
    url: Address | None = None
    """The server to deploy; it must not contradict the conditions of the certificate."""


@dataclass(slots=True)
class Admission:
    """The gate's decision: exit code 0 admitted, 1 an objective failed, 3 no proof."""

    slo: str
    exit_code: ExitCode = ExitCode.UNPROVEN
    reason: Reason = Reason.NO_RUN
    because: str = ""
    next_step: str = ""
    run: Path | None = None
    checks: list[tuple[str, str]] = field(default_factory=list)
    """Name and detail of each check that passed, in order."""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    server: list[Compared] | None = None
    """What the running server was compared in; None: no address was given."""
    tries: TryCount | None = None
    """How many finished runs of this SLO and these artifacts are known; None: there was no run to admit.

    Who tries until a run passes, passes by chance at last; who sees the tries can judge that.
    """
    passed_over: list[tuple[Path, str]] = field(default_factory=list)
    """Runs of another SLO, of other artifacts or of other rules."""

    def document(self) -> dict[str, Any]:
        """Return the decision as one JSON document."""
        return {
            "schema": 1,
            "slo": self.slo,
            "admitted": self.exit_code == ExitCode.OK,
            "exit_code": self.exit_code,
            "reason": self.reason,
            "because": self.because,
            "next": self.next_step,
            "run": str(self.run) if self.run is not None else None,
            **self.facts,
            **({} if self.tries is None else {"tries": self.tries.document()}),
            "artifacts": dict(self.artifacts),
            "checks": [{"check": name, "detail": detail} for name, detail in self.checks],
            **({} if self.server is None else {"server": [asdict(part) for part in self.server]}),
            "passed_over": [{"run": str(path), "because": because} for path, because in self.passed_over],
        }


def admit(
    slo_path: Path, *, run: Path | None = None, runs: Path | None = None, required: Requirements, now: datetime
) -> Admission:
    """Decide whether the newest run of exactly this SLO and these artifacts may be deployed at *now*."""
    slo_inputs = inputs.read(slo_path)
    paths = _directories(run, runs)
    if isinstance(required.signers, KeylessSigner):
        keyless.load_verifier(required.signers)
    elif required.signers is not None:
        ssh_keys.check_signers_file(required.signers)
    decision = Admission(slo_inputs.slo.name)
    try:
        present = verify.present_now(slo_inputs)
        decision.artifacts = {model.name: model.digest for model in (present.target, *present.drafts) if model}
        _check_lossless(slo_inputs.slo)
        decision.checks.append(("artifacts", f"{len(decision.artifacts)} models hashed"))
        directory, manifest = _newest(paths, slo_inputs, present, decision, only=run is not None)
        _examine(directory, manifest, slo_inputs.slo, required, now, decision)
        if decision.exit_code == ExitCode.OK and required.url is not None:
            _check_server(directory.path, slo_path, required.url, decision)
    except NoProofError as error:
        decision.exit_code, decision.reason, decision.because = ExitCode.UNPROVEN, error.reason, error.message
        decision.next_step = error.next(slo_path, decision.run)
    return decision


def _check_lossless(slo: Slo) -> None:
    """Refuse an SLO with a lossy option, whatever was certified with it."""
    subject = slo.subject
    lossy = dialect_of(subject.backend).find_lossy(subject) if subject.backend in SERVERS else None
    if lossy is not None:
        raise NoProofError(Reason.UNPROVEN, lossy.message, hint=f"{lossy.hint}, and certify again")


def _check_server(run: Path, slo_path: Path, url: Address, decision: Admission) -> None:
    """Refuse a server that contradicts the conditions under which *run* was certified."""
    parts = check_server(run, slo_path, url)
    decision.server = parts
    if differing := differences(parts):
        because = f"the server at {url} is not what was certified: {differing}"
        hint = f"start it as [[launch]] and [conditions] of {run / POLICY} say, or certify it as it is"
        raise NoProofError(Reason.OTHER_SERVER, because, hint=hint)
    certified = ", ".join(part.part for part in parts if part.outcome == "as certified")
    detail = f"as certified: {certified}" if certified else "it reports nothing that could be compared"
    decision.checks.append(("server", detail))


def _directories(run: Path | None, runs: Path | None) -> list[Path]:
    if (run is None) == (runs is None):
        raise InputError("admit needs --run RUN_DIR or --runs DIR", hint="give exactly one of the two")
    if run is not None:
        if not run_directory.is_run(run):
            around = run_directory.run_around(run)
            hint = "name one that gatekeeper certify wrote" if around is None else f"did you mean '{around}'?"
            raise InputError(f"{run} is not a run directory", hint=hint)
        return [run]
    assert runs is not None
    if run_directory.is_run(runs):
        raise InputError(f"--runs {runs} is a run", hint=f"write --run {runs}")
    return run_directory.runs_in(runs)


def _newest(
    paths: Sequence[Path], slo_inputs: Inputs, present: Present, decision: Admission, *, only: bool
) -> tuple[RunDirectory, Manifest]:
    """Return the newest run, leaving out those of another SLO or of other artifacts.

    Raise NoProofError where that is one of other rules, or may be one that cannot be read.
    """
    candidates: list[tuple[tuple[bool, str, str], RunDirectory, Manifest | NoProofError]] = []
    for path in paths:
        directory = RunDirectory(path)
        try:
            manifest, frozen = verify.read_frozen(directory)
        except NoProofError as error:
            # An unreadable run may be the newest, so it counts as the newest; one of other rules tells its age.
            frozen_at = error.frozen_at if isinstance(error, OtherRulesError) else ""
            candidates.append(((not frozen_at, frozen_at, path.name), directory, error))
            continue
        try:
            verify.check_slo(frozen, slo_inputs.slo)
            admission.same_subject(manifest, present)
        except NoProofError as error:
            if len(paths) == 1:
                decision.run = path
                raise
            decision.passed_over.append((path, f"{error.reason}: {error.message}"))
        else:
            candidates.append(((False, manifest.frozen_at, path.name), directory, manifest))
    if not candidates:
        because = f"none of the {len(paths)} runs matches this SLO and these artifacts" if paths else "no runs found"
        raise NoProofError(Reason.NO_RUN, because, hint=admission.CERTIFY)
    _, directory, newest = max(candidates, key=lambda candidate: candidate[0])
    beside, unreadable = tries.runs_beside(directory.path) if only else (paths, 0)
    decision.tries = tries.count(beside, unreadable, slo_inputs.slo, present, directory)
    decision.run = directory.path
    decision.passed_over += [
        (older.path, f"{Reason.OTHER_RULES}: {refusal.message}")
        for _, older, refusal in candidates
        if isinstance(refusal, OtherRulesError) and older is not directory
    ]
    if isinstance(newest, NoProofError):
        hint = newest.hint if only else f"{newest.hint}; or move it out of the folder, or choose a run with --run"
        raise NoProofError(newest.reason, newest.message, hint=hint)
    return directory, newest


def _examine(
    directory: RunDirectory, manifest: Manifest, slo: Slo, required: Requirements, now: datetime, decision: Admission
) -> None:
    """Check a run from its checksums to its verdict; stop at the first check that fails."""
    passed, facts = decision.checks.append, decision.facts
    passed(("slo", "objectives, inputs and artifacts match the run"))
    passed(("checksums", f"{verify.check_sums(directory)} files match {run_directory.CHECKSUMS}"))
    run = verify.judge_again(directory, manifest)
    facts |= {"outcome": run.verdict.outcome, "grade": run.verdict.grade, "certified_at": stamp(run.ended)}
    facts["versions"] = dict(manifest.versions)
    passed(("verdict", f"{run.verdict.outcome}, derived again from the records"))
    if verify.check_host(run):
        passed(("host", "matches [host] of the SLO"))
    admission.require_proof(run.verdict)
    published = verify.check_published(run)
    if decision.tries is not None:
        passes = run.verdict.exit_code == ExitCode.OK
        decision.tries = decision.tries.with_earlier(tries_before(run.events), passed=passes)
    passed(("certificate", "policy and certificate match the verdict"))
    if steps := verify.check_chain(run):
        facts["chain"] = steps
    if required.signers is not None:
        facts["signed_by"] = sign.verify_signature(run, published, required.signers)
        passed(("signature", f"by {facts['signed_by']}"))
    issued, valid_for = published.issued, slo.promote.valid_for
    until = admission.expiry(issued=issued, ended=run.ended, valid_for=valid_for, max_age=required.max_age)
    facts |= {"issued": stamp(issued), "counts_until": stamp(until)}
    oldest = required.max_age if required.max_age is not None and required.max_age < valid_for else None
    admission.in_time(until, issued, now, limit=f" by --max-age {show_seconds(oldest)}" if oldest is not None else "")
    passed(("time", f"expires at {stamp(until)}"))
    admission.long_enough(run.verdict, demo=required.demo)
    passed(("grade", run.verdict.grade))
    broken = admission.describe_failure(run.verdict)
    if broken is not None:
        decision.exit_code, decision.reason, decision.because = (
            ExitCode.OBJECTIVE_FAILED,
            Reason.FAILED_OBJECTIVE,
            broken,
        )
        decision.next_step = f"do not deploy speculation there; for details: gatekeeper report {directory.path}"
        return
    policy, on = directory.path / POLICY, admission.speculating(published.policy)
    decision.exit_code, decision.reason, decision.next_step = ExitCode.OK, Reason.ADMITTED, f"deploy {policy}"
    decision.because = f"speculation for {', '.join(on)}" if on else "plain decoding for every workload"
    facts |= {"policy": str(policy), "policy_sha256": published.policy_sha256}
