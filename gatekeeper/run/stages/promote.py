"""The promotion: the policy that may be deployed, written only where the verdict allows it."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from gatekeeper.analysis.verdict.policy import policy
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import ExitCode
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.records import Event
from gatekeeper.core.slo import Slo
from gatekeeper.report.policy_toml import render

POLICY = "policy.toml"


def promote(
    slo: Slo,
    verdict: Verdict,
    manifest: Manifest,
    events: Sequence[Event],
    *,
    verdict_sha256: str,
    now: datetime,
    write: Callable[[str, str], None],
) -> bool:
    """Write policy.toml for exit codes 0 and 1; tell whether it was written. An unproven verdict changes nothing."""
    if verdict.exit_code == ExitCode.UNPROVEN:
        return False
    content = policy(
        slo,
        verdict,
        manifest,
        events,
        verdict_sha256=verdict_sha256,
        issued=stamp(now),
        expires=stamp(now + timedelta(seconds=slo.promote.valid_for)),
    )
    write(POLICY, render(content))
    return True
