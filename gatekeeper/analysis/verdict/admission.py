"""Admission: what a stored run must be, beside passing, before it may be deployed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import ExitCode, NoProofError
from gatekeeper.core.manifest import File, Manifest, Model
from gatekeeper.core.reasons import Reason
from gatekeeper.core.units import show_seconds
from gatekeeper.core.verdict import Outcome, Verdict

CLOCKS_APART_S = 300.0
"""Clocks of two machines differ by far less; a run from further in the future was stamped by a wrong clock."""
CERTIFY = "certify again: gatekeeper certify {slo}"


@dataclass(frozen=True, slots=True)
class Present:
    """The SLO's artifacts and input files as they lie on this machine now."""

    target: Model | None
    drafts: tuple[Model, ...]
    files: Mapping[str, File]
    """As the manifest names them: `profile`, `workload NAME`."""
    script: str | None = None
    """Digest of the script of a scripted system; it has no other artifacts."""


def same_subject(manifest: Manifest, now: Present) -> None:
    """Refuse a run of other models or other inputs than these."""
    then = (manifest.target, *manifest.drafts)
    here = (now.target, *now.drafts)
    if len(then) != len(here):
        raise NoProofError(
            Reason.OTHER_ARTIFACTS, f"it froze {len(then)} models, the SLO names {len(here)}", hint=CERTIFY
        )
    for before, after in zip(then, here, strict=True):
        if (before and before.digest) != (after and after.digest):
            raise NoProofError(Reason.OTHER_ARTIFACTS, _other_model(before, after), hint=CERTIFY)
    if now.script is not None and manifest.versions.get("script") != now.script:
        raise NoProofError(Reason.OTHER_ARTIFACTS, "the script of its scripted subject was another", hint=CERTIFY)
    files = {"profile": manifest.profile} | {f"workload {name}": file for name, file in manifest.canaries.items()}
    for name, file in now.files.items():
        if name not in files or files[name].sha256 != file.sha256:
            what = "soak profile" if name == "profile" else f"canaries of {name}"
            raise NoProofError(Reason.OTHER_INPUTS, f"the {what} ({file.name}) were others", hint=CERTIFY)


def _other_model(before: Model | None, after: Model | None) -> str:
    if before is None or after is None:
        return f"it froze {before.name if before else 'no model'}, here lies {after.name if after else 'none'}"
    names = sorted({*before.files, *after.files})
    changed = [name for name in names if before.files.get(name) != after.files.get(name)]
    return (
        f"'{after.name}' is not what was certified: {', '.join(changed[:4])}{' ...' if len(changed) > 4 else ''} "
        f"(now {after.digest[:12]}, certified {before.digest[:12]})"
    )


def right_host(doubts: Sequence[str]) -> None:
    """Refuse a run whose host is not the one of the SLO's [host]."""
    if doubts:
        raise NoProofError(
            Reason.OTHER_HOST,
            "; ".join(dict.fromkeys(doubts)),
            hint="certify on a host that is as [host] of the SLO says",
        )


def proven(verdict: Verdict) -> None:
    """Refuse a run that ended unproven."""
    if verdict.exit_code == ExitCode.UNPROVEN:
        open_ones = [f"{one.name}: {one.because}" for one in verdict.workloads if one.outcome == "unproven"]
        hosts = [f"{one.metric}: {one.because}" for one in verdict.host_checks if one.outcome is Outcome.UNPROVEN]
        because = verdict.incomplete or "; ".join([*open_ones, *hosts]) or "nothing was judged"
        raise NoProofError(Reason.UNPROVEN, because, hint="gatekeeper judge {run} says all of it; then " + CERTIFY)


def expiry(*, issued: datetime, ended: datetime, valid_for: float, max_age: float | None) -> datetime:
    """Return until when a run counts.

    It is counted from the last record where that is earlier than what the policy says of itself; `max_age` only
    shortens it.
    """
    seconds = valid_for if max_age is None else min(valid_for, max_age)
    try:
        return min(issued, ended) + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=issued.tzinfo)


def in_time(until: datetime, issued: datetime, now: datetime) -> None:
    """Refuse a run that is expired, or was issued in the future."""
    if (issued - now).total_seconds() > CLOCKS_APART_S:
        raise NoProofError(
            Reason.EXPIRED, f"it was issued in the future, {stamp(issued)}", hint="set the clock right, there or here"
        )
    if now >= until:
        ago = show_seconds((now - until).total_seconds())
        raise NoProofError(Reason.EXPIRED, f"it counted until {stamp(until)}, {ago} ago", hint=CERTIFY)


def long_enough(verdict: Verdict, *, demo: bool) -> None:
    """Refuse a demo, unless *demo* accepts one."""
    if verdict.grade != "certification" and not demo:
        raise NoProofError(
            Reason.DEMO,
            "its soak was shorter than 600 s: a demo",
            hint='set soak.duration = "600 s" or more and certify again; --grade demo accepts it as it is',
        )


def broken(verdict: Verdict) -> str | None:
    """Return which objectives a run failed; None where it may be deployed."""
    if verdict.exit_code == ExitCode.OK:
        return None
    said = [f"host: {one.metric}: {one.because}" for one in verdict.host_checks if one.outcome is Outcome.FAIL]
    blamed = [
        one for one in verdict.workloads if one.outcome == "failed" or (one.outcome == "graded_back" and one.required)
    ]
    said += [f"{one.name}: {one.outcome.replace('_', ' ')}: {one.because}" for one in blamed]
    return "; ".join(said) or verdict.outcome


def speculating(policy: Mapping[str, Any]) -> list[str]:
    """Return the workloads that a policy lets speculate."""
    return [str(route["workload"]) for route in policy["route"] if route["speculation"]]
