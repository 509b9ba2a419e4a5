"""Admission: the conditions, besides passing, under which a stored run may be deployed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gatekeeper.analysis.plan.complaints.wrong_host import OTHER_HOST
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import NoProofError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.judgement import Outcome
from gatekeeper.core.manifest import File, Manifest, Model, sha256
from gatekeeper.core.reasons import CERTIFICATION, Reason
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import show_seconds

CLOCKS_APART_S = 300.0
"""Clocks of two machines differ by far less; a run issued further in the future was stamped by a wrong clock."""
CERTIFY = "certify again: gatekeeper certify {slo}"


@dataclass(frozen=True, slots=True)
class Present:
    """The SLO's models and input files on this machine now."""

    target: Model | None
    drafts: tuple[Model, ...]
    files: Mapping[str, File]
    """As the manifest names them: `profile`, `workload NAME`."""
    script: str | None = None
    """Digest of the script of a scripted system, which has no models."""


def certified_with(manifest: Manifest) -> Present:
    """Return the models and input files that a run was certified with."""
    files = {"profile": manifest.profile} | {f"workload {name}": file for name, file in manifest.canaries.items()}
    return Present(manifest.target, manifest.drafts, files, manifest.versions.get("script"))


def subject_digest(slo: Slo, present: Present) -> str:
    """Return a digest of what `admit` compares: objectives, inputs and artifacts, whatever the names of their files."""
    models = (present.target, *present.drafts)
    parts = {
        "slo": slo.model_dump(mode="json", exclude_defaults=True),  # a key that a later version adds changes nothing
        "models": [model and model.digest for model in models],
        "script": present.script,
        "inputs": {name: file.sha256 for name, file in present.files.items()},
    }
    return sha256(json.dumps(parts, sort_keys=True))


def artifacts_digest(present: Present) -> str:
    """Return a digest of the artifacts alone: the models, or the script of a scripted system."""
    digests = [model and model.digest for model in (present.target, *present.drafts)]
    return sha256(json.dumps([sorted(filter(None, digests)), present.script]))


def same_subject(manifest: Manifest, now: Present) -> None:
    """Refuse a run of other models or input files than these."""
    then = (manifest.target, *manifest.drafts)
    models_now = (now.target, *now.drafts)
    if len(then) != len(models_now):
        raise NoProofError(
            Reason.OTHER_ARTIFACTS,
            f"the run was certified with {len(then)} models, the SLO now has {len(models_now)}",
            hint=CERTIFY,
        )
    for before, after in zip(then, models_now, strict=True):
        if (before and before.digest) != (after and after.digest):
            raise NoProofError(Reason.OTHER_ARTIFACTS, _other_model(before, after), hint=CERTIFY)
    if now.script is not None and manifest.versions.get("script") != now.script:
        raise NoProofError(Reason.OTHER_ARTIFACTS, "the script has changed since the run", hint=CERTIFY)
    files = certified_with(manifest).files
    for name, file in now.files.items():
        if name not in files or files[name].sha256 != file.sha256:
            input_name = "soak profile" if name == "profile" else f"canaries of {name}"
            raise NoProofError(Reason.OTHER_INPUTS, f"changed since the run: {input_name} ({file.name})", hint=CERTIFY)


def _other_model(before: Model | None, after: Model | None) -> str:
    if before is None or after is None:
        then, now = (model.name if model else "no model" for model in (before, after))
        return f"the run was certified with {then}, here is {now}"
    names = sorted({*before.files, *after.files})
    changed = [name for name in names if before.files.get(name) != after.files.get(name)]
    return (
        f"'{after.name}' is not the certified model: {', '.join(changed[:4])}{' ...' if len(changed) > 4 else ''} "
        f"changed (now {after.digest[:12]}, certified {before.digest[:12]})"
    )


def right_host(doubts: Sequence[str]) -> None:
    """Refuse a run whose host is not the one of the SLO's [host]."""
    if doubts:
        raise NoProofError(Reason.OTHER_HOST, "; ".join(dict.fromkeys(doubts)), hint=OTHER_HOST)


def require_proof(verdict: Verdict) -> None:
    """Refuse a run that ended unproven."""
    if verdict.exit_code == ExitCode.UNPROVEN:
        open_workloads = [
            f"{workload.name}: {workload.because}"
            for workload in verdict.workloads
            if workload.outcome is WorkloadOutcome.UNPROVEN
        ]
        hosts = [
            f"{check.metric}: {check.because}" for check in verdict.host_checks if check.outcome is Outcome.UNPROVEN
        ]
        because = verdict.incomplete or "; ".join([*open_workloads, *hosts]) or "no objective was judged"
        raise NoProofError(Reason.UNPROVEN, because, hint="for details: gatekeeper judge {run}; then " + CERTIFY)


def expiry(*, issued: datetime, ended: datetime, valid_for: float, max_age: float | None) -> datetime:
    """Return when a run expires: *valid_for* seconds after its last record, or after the policy's issue if earlier.

    `max_age` can only shorten it.
    """
    seconds = valid_for if max_age is None else min(valid_for, max_age)
    try:
        return min(issued, ended) + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=issued.tzinfo)


def in_time(until: datetime, issued: datetime, now: datetime, *, limit: str = "") -> None:
    """Refuse a run that has expired, by its own validity or by a shorter *limit*, or was issued in the future."""
    if (issued - now).total_seconds() > CLOCKS_APART_S:
        raise NoProofError(
            Reason.NOT_YET_VALID,
            f"issued in the future, at {stamp(issued)}",
            hint="set the clock of this machine, or of the one that certified",
        )
    if now >= until:
        ago = show_seconds((now - until).total_seconds())
        raise NoProofError(Reason.EXPIRED, f"expired{limit} at {stamp(until)[:19]}Z, {ago} ago", hint=CERTIFY)


def long_enough(verdict: Verdict, *, demo: bool) -> None:
    """Refuse a demo, unless *demo* accepts one."""
    if verdict.grade != "certification" and not demo:
        raise NoProofError(
            Reason.DEMO,
            f"the soak was shorter than {CERTIFICATION}, so the run is a demo",
            hint=f'set soak.duration = "{CERTIFICATION}" or more and certify again, or accept it with --grade demo',
        )


def describe_failure(verdict: Verdict) -> str | None:
    """Return which objectives a run failed; None where it may be deployed."""
    if verdict.exit_code == ExitCode.OK:
        return None
    failed = [
        f"host: {check.metric}: {check.because}" for check in verdict.host_checks if check.outcome is Outcome.FAIL
    ]
    bad = [
        workload
        for workload in verdict.workloads
        if workload.outcome is WorkloadOutcome.FAILED
        or (workload.outcome is WorkloadOutcome.GRADED_BACK and workload.required)
    ]
    failed += [f"{workload.name}: {workload.outcome.replace('_', ' ')}: {workload.because}" for workload in bad]
    return "; ".join(failed) or verdict.outcome


def speculating(policy: Mapping[str, Any]) -> list[str]:
    """Return the workloads that a policy lets speculate."""
    return [str(route["workload"]) for route in policy["route"] if route["speculation"]]
