"""Whether a policy may be trusted at a time: it has not expired, and the clock is not far before its issue."""

from datetime import datetime, timedelta

from gatekeeper.core.clock import stamp
from gatekeeper.core.policy import Policy

UNISSUED = timedelta(days=1)
"""With a clock so far before the policy's issue, its expiry cannot be determined."""


def policy_fault(policy: Policy, now: datetime) -> str | None:
    """Return why *policy* is not valid at *now*; None if it is."""
    if policy.expired(now):
        return f"the policy expired at {stamp(policy.expires)[:19]}Z"
    if now < policy.issued - UNISSUED:
        return (
            f"the clock shows {stamp(now)}, more than a day before the policy was issued at "
            f"{stamp(policy.issued)}: cannot determine whether it has expired"
        )
    return None
