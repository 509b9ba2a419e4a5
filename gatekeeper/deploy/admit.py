"""The deploy gate: whether there is a passing, unexpired, untampered run for exactly these artifacts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper.analysis.verdict import admission
from gatekeeper.analysis.verdict.admission import Present
from gatekeeper.core import inputs, run_directory
from gatekeeper.core import slo as promises
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import ExitCode, InputError, NoProofError, Reason
from gatekeeper.core.inputs import Inputs
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.slo import Slo
from gatekeeper.run import verify
from gatekeeper.run.stages.freeze import freeze_models, host_doubts
from gatekeeper.run.stages.promote import POLICY


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a deploy asks of a run beside the SLO."""

    max_age: float | None = None
    """Seconds; only ever shortens what the SLO grants."""
    demo: bool = False
    signers: Path | None = None
    """An allowed-signers file: who has to have signed the certificate."""


@dataclass(slots=True)
class Admission:
    """What the gate answers: 0 admitted, 1 a promise is broken, 3 no proof."""

    slo: str
    exit_code: ExitCode = ExitCode.UNPROVEN
    reason: Reason = Reason.NO_RUN
    because: str = ""
    then: str = ""
    run: Path | None = None
    checks: list[tuple[str, str]] = field(default_factory=list)
    """What holds, in the order in which it was looked at."""
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


@dataclass(frozen=True, slots=True)
class _Candidate:
    directory: run_directory.RunDirectory
    manifest: Manifest | None = None
    trouble: NoProofError | None = None
    """Why it can not be told what it is a run of."""

    @property
    def age(self) -> tuple[bool, str, str]:
        """Sort oldest first; one that can not be read may well be the newest, so it is taken for that."""
        at = self.manifest.frozen_at if self.manifest is not None else ""
        return self.manifest is None, at, self.directory.path.name


def admit(
    slo_path: Path, *, run: Path | None = None, runs: Path | None = None, terms: Requirements, now: datetime
) -> Admission:
    """Answer whether the newest run of exactly this SLO and these artifacts may be deployed at *now*."""
    given = inputs.read(slo_path)
    found = _directories(run, runs)
    if terms.signers is not None:
        verify.check_signers_file(terms.signers)
    answer = Admission(given.slo.name)
    try:
        present = _present(given)
        answer.artifacts = {model.name: model.digest for model in (present.target, *present.drafts) if model}
        answer.checks.append(("artifacts", f"{len(answer.artifacts)} models hashed"))
        newest = _newest(found, given, present, answer, only=run is not None)
        answer.run = newest.directory.path
        _examine(newest, given.slo, terms, now, answer)
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
    """Hash what lies here now; every byte is read again, for a remembered digest proves nothing about now."""
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


def _newest(found: Sequence[Path], given: Inputs, present: Present, answer: Admission, *, only: bool) -> _Candidate:
    """Return the newest run that can not be ruled out as one of another SLO or of other artifacts."""
    candidates, refusals = [], []
    for path in found:
        directory = run_directory.RunDirectory(path)
        try:
            candidate = _candidate(directory, given, present)
        except NoProofError as error:
            answer.passed_over.append((path, f"{error.reason}: {error.message}"))
            refusals.append((path, error))
        else:
            candidates.append(candidate)
    if not candidates and len(refusals) == 1:
        answer.run, why = refusals[0]
        answer.passed_over.clear()
        raise why
    if not candidates:
        said = f"none of the {len(found)} runs is of this SLO and these artifacts" if found else "there are no runs"
        raise NoProofError(Reason.NO_RUN, said, hint=admission.CERTIFY)
    newest = max(candidates, key=lambda one: one.age)
    if newest.trouble is not None:
        answer.run = newest.directory.path
        hint = newest.trouble.hint if only else f"{newest.trouble.hint}; or move it away, or name a run with --run"
        raise NoProofError(newest.trouble.reason, newest.trouble.message, hint=hint)
    return newest


def _candidate(directory: run_directory.RunDirectory, given: Inputs, present: Present) -> _Candidate:
    """Read what a run is of; refuse it where it is surely of something else."""
    try:
        manifest = verify.read_manifest(directory)
        text = directory.text(inputs.SLO_NAME)
        verify.check_inputs(directory, manifest, text)
        frozen = promises.parse(text, inputs.SLO_NAME)
    except NoProofError as error:
        return _Candidate(directory, trouble=error)
    except (InputError, ValueError) as error:
        return _Candidate(directory, trouble=verify.unreadable(error))
    _same_slo(frozen, given.slo)
    admission.same_subject(manifest, present)
    return _Candidate(directory, manifest)


def _same_slo(frozen: Slo, now: Slo) -> None:
    """Refuse a run of other promises; comments and layout of the file are no promise."""
    if frozen.name != now.name:
        raise NoProofError(Reason.OTHER_SLO, f"it is a run of the SLO '{frozen.name}'", hint=admission.CERTIFY)
    if frozen != now:
        keys = [key for key in type(now).model_fields if getattr(frozen, key) != getattr(now, key)]
        raise NoProofError(Reason.OTHER_SLO, f"its SLO differs in: {', '.join(keys)}", hint=admission.CERTIFY)


def _examine(candidate: _Candidate, slo: Slo, terms: Requirements, now: datetime, answer: Admission) -> None:
    """Look at a run from its seals to its verdict; the first thing that does not hold ends it."""
    directory, manifest = candidate.directory, candidate.manifest
    assert manifest is not None
    holds = answer.checks.append
    holds(("slo", "the run's promises, inputs and artifacts are these"))
    holds(("seals", f"{verify.check_sums(directory)} files as sealed"))
    run = verify.judge_again(directory, manifest)
    answer.facts |= {"outcome": run.verdict.outcome, "grade": run.verdict.grade, "certified_at": stamp(run.ended)}
    answer.facts["versions"] = dict(manifest.versions)
    holds(("verdict", f"{run.verdict.outcome}, derived again from the records"))
    if "host" in slo.model_fields_set:
        seen = [event.detail["facts"] for event in run.events if event.kind == "conditions"]
        admission.right_host([doubt for facts in (manifest.host, *seen) for doubt in host_doubts(slo.host, facts)])
        holds(("host", "as [host] of the SLO"))
    admission.proven(run.verdict)
    papers = verify.check_papers(run)
    holds(("papers", "policy and certificate are what the verdict gives"))
    if terms.signers is not None:
        answer.facts["signed_by"] = verify.signed_by(run, papers, terms.signers)
        holds(("signature", f"by {answer.facts['signed_by']}"))
    until = admission.expiry(
        issued=papers.issued, ended=run.ended, valid_for=slo.promote.valid_for, max_age=terms.max_age
    )
    answer.facts |= {"issued": stamp(papers.issued), "counts_until": stamp(until)}
    admission.in_time(until, papers.issued, now)
    holds(("time", f"counts until {stamp(until)}"))
    admission.long_enough(run.verdict, demo=terms.demo)
    holds(("grade", run.verdict.grade))
    broken = admission.broken(run.verdict)
    if broken is not None:
        answer.exit_code, answer.reason, answer.because = ExitCode.OBJECTIVE_FAILED, Reason.BROKEN_PROMISE, broken
        answer.then = f"deploy nothing that speculates there; gatekeeper report {directory.path} says all of it"
        return
    answer.exit_code, answer.reason = ExitCode.OK, Reason.ADMITTED
    on = admission.speculating(papers.policy)
    answer.because = f"speculation for {', '.join(on)}" if on else "plain decoding for every workload"
    answer.then = f"deploy {directory.path / POLICY}"
    answer.facts |= {"policy": str(directory.path / POLICY), "policy_sha256": papers.policy_sha256}
