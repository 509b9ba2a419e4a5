"""The freeze: everything a verdict depends on is written down before the first token."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.core.interfaces import Backend
from gatekeeper.core.manifest import File, Manifest, Model
from gatekeeper.core.metrics import Sight
from gatekeeper.core.slo import Host, Slo
from gatekeeper.core.units import sold_gigabytes
from gatekeeper.core.verdict import Finding

MEMORY_TOLERANCE = 0.07
"""The kernel and the firmware keep a few percent of the memory a machine is sold with."""


def freeze(
    slo: Slo,
    *,
    inputs: Mapping[str, File],
    target: Model | None,
    drafts: Sequence[Model],
    backend: Backend,
    sight: Sight,
    versions: Mapping[str, str],
    host: Mapping[str, Any],
    findings: Sequence[Finding],
    frozen_at: str,
) -> Manifest:
    """Return the manifest; `inputs` holds the SLO, the profile, and one file a workload under its name."""
    return Manifest(
        slo=inputs["slo"],
        backend=backend.name,
        shares_process=backend.shares_process,
        streams=backend.streams,
        restart_knobs=tuple(backend.restart_knobs),
        sight=tuple(sorted(str(flag.name) for flag in sight)),
        target=target,
        drafts=tuple(drafts),
        sampling=slo.sampling.model_dump(mode="json"),
        canaries={workload.name: inputs[f"workload {workload.name}"] for workload in slo.workload},
        profile=inputs["profile"],
        versions=dict(sorted(versions.items())),
        host=dict(host),
        findings=tuple({**finding.document()} for finding in findings),
        doubts=tuple(host_doubts(slo.host, host)) if "host" in slo.model_fields_set else (),
        frozen_at=frozen_at,
    )


def host_doubts(promised: Host, host: Mapping[str, Any]) -> list[str]:
    """Say how this host differs from the one the promise was made for; what it does not tell counts as different."""
    doubts = []
    if promised.chip is not None and host.get("chip") != promised.chip:
        doubts.append(f"this host is '{host.get('chip') or 'unknown'}', the SLO is for '{promised.chip}'")
    if promised.memory_gb is not None:
        have = sold_gigabytes(host.get("memory_bytes") or 0)
        if abs(have - promised.memory_gb) > MEMORY_TOLERANCE * promised.memory_gb:
            doubts.append(f"memory_gb is {have:.3g} on this host, the SLO is for {promised.memory_gb:g}")
    if promised.os is not None and not _has_prefix(str(host.get("os") or ""), promised.os):
        doubts.append(f"this host runs OS '{host.get('os') or 'unknown'}', the SLO is for '{promised.os}'")
    if promised.power == "ac" and host.get("power_source") != "ac":
        doubts.append(f"power source is '{host.get('power_source') or 'unknown'}', the SLO is for 'ac'")
    return doubts


def _has_prefix(version: str, prefix: str) -> bool:
    """Compare whole parts: 26 is a prefix of 26.1 and not of 260."""
    return version.split(".")[: len(prefix.split("."))] == prefix.split(".")
