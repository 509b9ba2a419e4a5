"""The policy of a stored run: as its file says, and as it was certified."""

from pathlib import Path

from gatekeeper.analysis.verdict.policy.certified_policy import allows_policy, issue_policy
from gatekeeper.core import parse
from gatekeeper.core import policy as policies
from gatekeeper.core.errors import RESTORE_HINT, GatekeeperError, InputError
from gatekeeper.core.manifest import sha256
from gatekeeper.core.policy import Policy
from gatekeeper.core.system.inputs import read_text
from gatekeeper.core.system.run_directory import POLICY, VERDICT, RunDirectory
from gatekeeper.report.attestation import CERTIFICATE
from gatekeeper.run.stored.judge import conclude_run, load_run


def stored_policy(path: Path) -> Policy | None:
    """Return the policy of a run; None where it has none that can be read."""
    try:
        return policies.parse(read_text(path / POLICY, "policy"), POLICY)
    except InputError:
        return None


def certified_policy(path: Path) -> Policy:
    """Return the policy that a run certified, whatever its policy file says now.

    A file that is not the one that certificate and SHA256SUMS name was edited, moved or deleted: what it said is
    derived again from the records. Raise InputError where they do not show it, or certify no policy.
    """
    directory = RunDirectory(path)
    if _is_as_certified(directory) and (policy := stored_policy(path)) is not None:
        return policy
    try:
        case, manifest, events = load_run(directory)
        verdict = conclude_run(case, path)
        if not allows_policy(case.plan, verdict):
            raise InputError(f"the run is {verdict.outcome}, and certified none", hint="certify again")
        issued = max(parse.moment(event.at) for event in events.records)
        digest = sha256(directory.read(VERDICT))
        return issue_policy(case.slo, verdict, manifest, events.records, verdict_sha256=digest, issued=issued)
    except (GatekeeperError, ValueError) as error:
        message = f"{path}/{POLICY} is not as it was certified, and the records do not show what it said: {error}"
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
