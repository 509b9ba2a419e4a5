"""Whether the host slept or was restarted during a soak, by the time of day against the monotonic clock."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain, pairwise
from typing import Any

from gatekeeper.analysis.metrics.host.host_series import HostSamples
from gatekeeper.core.parse import ParseError, moment
from gatekeeper.core.verdict import Finding, FindingKind

SLEEP_GAP = 2.0
"""Seconds by which the time of day may differ from the monotonic clock between two samples; more means sleep."""


REBOOT_SHIFT = 60.0
"""Seconds by which the boot time may change without a restart: the system derives it from the time of day."""


def restarted(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Tell whether the host was updated or started again between two readings of its facts."""
    builds = before.get("os_build"), after.get("os_build")
    boots = _instant(before.get("booted_at")), _instant(after.get("booted_at"))
    if None not in builds and builds[0] != builds[1]:
        return True
    return boots[0] is not None and boots[1] is not None and abs((boots[1] - boots[0]).total_seconds()) > REBOOT_SHIFT


def _instant(written: object) -> datetime | None:
    try:
        return moment(str(written))
    except ParseError:
        return None


def slept(host: HostSamples) -> Iterator[Finding]:
    """Compare the time of day with the monotonic clock, which stands still while a host sleeps."""
    columns, at_ns = host.columns, host.columns.at_ns
    timed = (pairwise((place, _instant(columns.at[place])) for place in part) for part in host.segments().values())
    for (before, then), (after, now) in chain.from_iterable(timed):
        if then is None or now is None:
            continue  # a sample without a time of day cannot be compared
        ahead = (now - then).total_seconds() - (at_ns[after] - at_ns[before]) / 1e9
        if ahead > SLEEP_GAP:
            detail = f"the host slept for {ahead:.0f} s between {columns.at[before]} and {columns.at[after]}"
            yield Finding(
                FindingKind.HOST_SLEPT, "host", detail, "keep the lid open and prevent sleep, then run the soak again"
            )
        elif ahead < -SLEEP_GAP:
            yield Finding(
                FindingKind.CLOCK_SET, "host", f"the time of day was set back by {-ahead:.0f} s at {columns.at[after]}"
            )
