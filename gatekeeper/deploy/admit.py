"""The deploy gate: admits the newest run of these artifacts if it passed, is in time and was not changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict import admission
from gatekeeper.analysis.verdict.admission import Present
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import ExitCode, InputError, NoProofError
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.reasons import Reason
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import inputs, run_directory
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.run import verify
from gatekeeper.run.stages.freeze import freeze_models, host_doubts
from gatekeeper.run.stages.promote import POLICY


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a deploy requires of a run beside the SLO."""

    max_age: float | None = None
    """Seconds; only ever shortens what the SLO grants."""
    demo: bool = False
    signers: Path | None = None
    """An allowed-signers file: one of them must have signed the certificate."""


@dataclass(slots=True)
class Admission:
    """What the gate answers: exit code 0 admitted, 1 an objective failed, 3 no proof."""

    slo: str
    exit_code: ExitCode = ExitCode.UNPROVEN
    reason: Reason = Reason.NO_RUN
    because: str = ""
    then: str = ""
    run: Path | None = None
    checks: list[tuple[str, str]] = field(default_factory=list)
    """What was checked and passed, in this order."""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    passed_over: list[tuple[Path, str]] = field(default_factory=list)
    """Runs of another SLO or of other artifacts."""

    def document(self) -> dict[str, Any]:
        """Return the answer as one JSON document."""
        return {
            "schema": 1,
            "slo": self.slo,
            "admitted": self.exit_code == ExitCode.OK,
            "exit_code": self.exit_code,
            "reason": self.reason,
            "because": self.because,
            "next": self.then,
            "run": str(self.run) if self.run is not None else None,
            **self.facts,
            "artifacts": dict(self.artifacts),
            "checks": [{"check": name, "detail": detail} for name, detail in self.checks],
            "passed_over": [{"run": str(path), "because": because} for path, because in self.passed_over],
        }


def admit(
    slo_path: Path, *, run: Path | None = None, runs: Path | None = None, required: Requirements, now: datetime
) -> Admission:
    """Answer whether the newest run of exactly this SLO and these artifacts may be deployed at *now*."""
    given = inputs.read(slo_path)
    paths = _directories(run, runs)
    if required.signers is not None:
        verify.check_signers_file(required.signers)
    answer = Admission(given.slo.name)
    try:
        present = _present(given)
        answer.artifacts = {model.name: model.digest for model in (present.target, *present.drafts) if model}
        answer.checks.append(("artifacts", f"{len(answer.artifacts)} models hashed"))
        directory, manifest = _newest(paths, given, present, answer, only=run is not None)
        _examine(directory, manifest, given.slo, required, now, answer)
    except NoProofError as error:
        answer.exit_code, answer.reason, answer.because = ExitCode.UNPROVEN, error.reason, error.message
        answer.then = error.next(slo_path, answer.run)
    return answer


def _directories(run: Path | None, runs: Path | None) -> list[Path]:
    if (run is None) == (runs is None):
        raise InputError("admit needs --run RUN_DIR or --runs DIR", hint="give exactly one of the two")
    if run is not None:
        if not run_directory.is_run(run):
            raise InputError(f"{run} is no run directory", hint="name one that gatekeeper certify wrote")
        return [run]
    assert runs is not None
    return run_directory.runs_in(runs)


def _present(given: Inputs) -> Present:
    """Hash the models that lie here now; every byte is read again, a remembered digest proves nothing about now."""
    try:
        models = freeze_models(given, afresh=True)
        subject = given.slo.subject
        script = sha256((given.base / subject.script).read_bytes()) if subject.script is not None else None
    except InputError as error:
        raise NoProofError(Reason.NO_ARTIFACTS, error.message, hint=error.hint) from error
    except OSError as error:
        hint = "the gate has to read every file of the models"
        raise NoProofError(Reason.NO_ARTIFACTS, f"cannot read {error.filename}: {error.strerror}", hint=hint) from error
    return Present(models.target, models.drafts, {n: file for n, file in given.files.items() if n != "slo"}, script)


def _newest(
    paths: Sequence[Path], given: Inputs, present: Present, answer: Admission, *, only: bool
) -> tuple[RunDirectory, Manifest]:
    """Return the newest run that cannot be ruled out as one of another SLO or of other artifacts."""
    candidates: list[tuple[tuple[bool, str, str], RunDirectory, Manifest | NoProofError]] = []
    for path in paths:
        directory = RunDirectory(path)
        try:
            manifest, frozen = verify.read_frozen(directory)
        except NoProofError as error:
            # It may well be the newest, so it is taken for that.
            candidates.append(((True, "", path.name), directory, error))
            continue
        try:
            _same_slo(frozen, given.slo)
            admission.same_subject(manifest, present)
        except NoProofError as error:
            if len(paths) == 1:
                answer.run = path
                raise
            answer.passed_over.append((path, f"{error.reason}: {error.message}"))
        else:
            candidates.append(((False, manifest.frozen_at, path.name), directory, manifest))
    if not candidates:
        because = f"none of the {len(paths)} runs is of this SLO and these artifacts" if paths else "there are no runs"
        raise NoProofError(Reason.NO_RUN, because, hint=admission.CERTIFY)
    _, directory, newest = max(candidates, key=lambda one: one[0])
    answer.run = directory.path
    if isinstance(newest, NoProofError):
        hint = newest.hint if only else f"{newest.hint}; or move it away, or name a run with --run"
        raise NoProofError(newest.reason, newest.message, hint=hint)
    return directory, newest


def _same_slo(frozen: Slo, now: Slo) -> None:
    """Refuse a run of other objectives; comments and layout of the file do not count."""
    if frozen.name != now.name:
        raise NoProofError(Reason.OTHER_SLO, f"it is a run of the SLO '{frozen.name}'", hint=admission.CERTIFY)
    if frozen != now:
        keys = [key for key in type(now).model_fields if getattr(frozen, key) != getattr(now, key)]
        raise NoProofError(Reason.OTHER_SLO, f"its SLO differs in: {', '.join(keys)}", hint=admission.CERTIFY)


def _examine(
    directory: RunDirectory, manifest: Manifest, slo: Slo, required: Requirements, now: datetime, answer: Admission
) -> None:
    """Check a run from its checksums to its verdict; the first check that fails ends it."""
    passed, facts = answer.checks.append, answer.facts
    passed(("slo", "the run's promises, inputs and artifacts are these"))
    passed(("seals", f"{verify.check_sums(directory)} files as sealed"))
    run = verify.judge_again(directory, manifest)
    facts |= {"outcome": run.verdict.outcome, "grade": run.verdict.grade, "certified_at": stamp(run.ended)}
    facts["versions"] = dict(manifest.versions)
    passed(("verdict", f"{run.verdict.outcome}, derived again from the records"))
    if "host" in slo.model_fields_set:
        seen = [event.detail["facts"] for event in run.events if event.kind == "conditions"]
        admission.right_host([doubt for host in (manifest.host, *seen) for doubt in host_doubts(slo.host, host)])
        passed(("host", "as [host] of the SLO"))
    admission.proven(run.verdict)
    published = verify.check_published(run)
    passed(("papers", "policy and certificate are what the verdict gives"))
    if required.signers is not None:
        facts["signed_by"] = verify.signed_by(run, published, required.signers)
        passed(("signature", f"by {facts['signed_by']}"))
    until = admission.expiry(
        issued=published.issued, ended=run.ended, valid_for=slo.promote.valid_for, max_age=required.max_age
    )
    facts |= {"issued": stamp(published.issued), "counts_until": stamp(until)}
    admission.in_time(until, published.issued, now)
    passed(("time", f"counts until {stamp(until)}"))
    admission.long_enough(run.verdict, demo=required.demo)
    passed(("grade", run.verdict.grade))
    broken = admission.broken(run.verdict)
    if broken is not None:
        answer.exit_code, answer.reason, answer.because = ExitCode.OBJECTIVE_FAILED, Reason.BROKEN_PROMISE, broken
        answer.then = f"deploy nothing that speculates there; gatekeeper report {directory.path} says all of it"
        return
    policy, on = directory.path / POLICY, admission.speculating(published.policy)
    answer.exit_code, answer.reason, answer.then = ExitCode.OK, Reason.ADMITTED, f"deploy {policy}"
    answer.because = f"speculation for {', '.join(on)}" if on else "plain decoding for every workload"
    facts |= {"policy": str(policy), "policy_sha256": published.policy_sha256}
