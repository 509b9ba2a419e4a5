"""The promotion: the policy that may be deployed."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gatekeeper.analysis.verdict.policy.certified_policy import CertifiedPolicy, policy
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.clock import stamp
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.records import Event
from gatekeeper.core.slo import Slo


def issue_policy(
    slo: Slo,
    verdict: Verdict,
    manifest: Manifest,
    events: Sequence[Event],
    *,
    verdict_sha256: str,
    issued: datetime,
) -> CertifiedPolicy:
    """Return the content of the policy of a verdict, issued at *issued*; it expires after the SLO's `valid_for`."""
    return policy(
        slo,
        verdict,
        manifest,
        events,
        verdict_sha256=verdict_sha256,
        issued=stamp(issued),
        expires=stamp(issued + timedelta(seconds=slo.promote.valid_for)),
    )
