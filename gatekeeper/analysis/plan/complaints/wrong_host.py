"""Where a host is another one than the SLO's `[host]` names: its chip, memory, system or power."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.core.slo import Host
from gatekeeper.core.units import show_number, sold_gigabytes

MEMORY_TOLERANCE = 0.07
"""The kernel and the firmware reserve a few percent of a machine's memory."""


def host_doubts(required: Host, host: Mapping[str, Any]) -> list[str]:
    """Return how this host differs from the SLO's `[host]`; a value that is not known counts as different."""
    doubts = []
    if required.chip is not None and host.get("chip") != required.chip:
        doubts.append(f"chip is '{host.get('chip') or 'unknown'}' on this host, the SLO is for '{required.chip}'")
    if required.memory_gb is not None:
        have = sold_gigabytes(host.get("memory_bytes") or 0)
        if abs(have - required.memory_gb) > MEMORY_TOLERANCE * required.memory_gb:
            doubts.append(f"memory_gb is {show_number(have)} on this host, the SLO is for {required.memory_gb:g}")
    if required.os is not None and not _has_prefix(str(host.get("os") or ""), required.os):
        doubts.append(f"os is '{host.get('os') or 'unknown'}' on this host, the SLO is for '{required.os}'")
    if required.power == "ac" and host.get("power_source") != "ac":
        doubts.append(f"power is '{host.get('power_source') or 'unknown'}' on this host, the SLO is for 'ac'")
    return doubts


def _has_prefix(version: str, prefix: str) -> bool:
    """Compare whole parts of a version: 26 is a prefix of 26.1 and not of 260."""
    return version.split(".")[: len(prefix.split("."))] == prefix.split(".")
