"""Where a host is another one than the SLO's `[host]` names: its chip, memory, system or power; or a virtual Mac."""

from collections.abc import Mapping
from typing import Any

from gatekeeper.analysis.metrics.host.host_findings import is_virtual_mac
from gatekeeper.analysis.plan.complaints.complaint import Complaint
from gatekeeper.core.judgement import FindingKind
from gatekeeper.core.slo import Host
from gatekeeper.core.units import show_number, sold_gigabytes

MEMORY_TOLERANCE = 0.07
"""The kernel and the firmware reserve a few percent of a machine's memory."""

OTHER_HOST = "certify on a host that matches [host] of the SLO, or write an SLO for this one"
"""What to do on a host that an SLO is not for."""


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
    if required.power == "ac" and (source := host.get("power_source")) != "ac":
        charger = ": connect the charger" if source == "battery" else ""
        doubts.append(f"power is '{source or 'unknown'}' on this host, the SLO is for 'ac'{charger}")
    return doubts


def virtual_mac(host: Mapping[str, Any]) -> list[Complaint]:
    """Complain of a virtual Mac before anything is measured: its run would be disqualified at the end."""
    if not is_virtual_mac(host):
        return []
    message = "a virtual Mac certifies nothing: its sensors do not show a real machine"
    return [Complaint("weak", "this machine", message, FindingKind.VIRTUAL_MAC.remedy)]


def _has_prefix(version: str, prefix: str) -> bool:
    """Compare whole parts of a version: 26 is a prefix of 26.1 and not of 260."""
    return version.split(".")[: len(prefix.split("."))] == prefix.split(".")
