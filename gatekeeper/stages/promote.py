"""The promotion: the policy that may be deployed, written only where the verdict allows it."""

from collections.abc import Callable
from datetime import datetime, timedelta

from gatekeeper.terms.clock import stamp
from gatekeeper.terms.outcome import Verdict
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict.policy import policy
from gatekeeper.verdict.policyfile import render

POLICY = "policy.toml"


def promote(
    slo: Slo, verdict: Verdict, *, verdict_sha256: str, now: datetime, write: Callable[[str, str], None]
) -> bool:
    """Write policy.toml for exit codes 0 and 1; tell whether it was written. Unproven holds: nothing changes."""
    if verdict.exit_code not in {0, 1}:
        return False
    content = policy(
        slo,
        verdict,
        verdict_sha256=verdict_sha256,
        issued=stamp(now),
        expires=stamp(now + timedelta(seconds=slo.promote.valid_for)),
    )
    write(POLICY, render(content))
    return True
