"""Whether hosts of one chip differ: what differs between their manifests, and the ratios of each workload.

Two hosts are compared by the logs of their ratios, workload by workload, as any two runs are (`run_to_run.apart`): an
error in twenty is allowed over all pairs together. Settings that differ are named and not compared. Of many hosts each
is compared with the one in the middle: their pairs would be too many to read, and their bounds too wide.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from gatekeeper.analysis.stats import run_to_run
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.manifest import Manifest, differences
from gatekeeper.core.system.inputs import load_manifest
from gatekeeper.fleet.fleet_cell import CellWorkload, FleetCell

LONGEST_DIFFERENCE = 100
"""Characters of a difference that is written with both values."""
NOT_COMPARED = ("host.booted_at", "host.uptime_s", "host.load_average", "host.heavy_processes")
PAIRED_MOST = 6
"""Hosts of one chip that are compared pair by pair."""


@dataclass(frozen=True, slots=True)
class RatioContrast:
    """Whether two hosts differ in the ratio of a workload."""

    says: str
    """differ | no difference shown | not compared"""
    because: str = ""
    quotient: float | None = None
    """Of the two ratios, with its bounds; None: not compared."""
    lo: float | None = None
    hi: float | None = None

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        if self.quotient is None:
            return {"says": self.says, "because": self.because}
        return {"says": self.says, "quotient": self.quotient, "lo": self.lo, "hi": self.hi}


@dataclass(frozen=True, slots=True)
class HostPair:
    """Two hosts of one chip that certified the same SLO."""

    slo: str
    chip: str
    hosts: tuple[str, str]
    differences: tuple[str, ...]
    """Of their manifests."""
    workloads: Mapping[str, RatioContrast]

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        workloads = {name: contrast.document() for name, contrast in self.workloads.items()}
        return asdict(self) | {"hosts": [*self.hosts], "differences": [*self.differences], "workloads": workloads}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "HostPair":
        """Return the pair of a document."""
        first, second = document["hosts"]
        workloads = {name: RatioContrast(**contrast) for name, contrast in document["workloads"].items()}
        return cls(document["slo"], document["chip"], (first, second), tuple(document["differences"]), workloads)


def compare_hosts(cells: Iterable[FleetCell]) -> tuple[HostPair, ...]:
    """Compare the hosts of one chip that certified the same SLO."""
    groups: dict[tuple[str, str], list[FleetCell]] = defaultdict(list)
    for cell in cells:
        if cell.verdict is not None and (chip := cell.verdict.host_facts.get("chip")) is not None:
            groups[cell.cell.slo, chip].append(cell)
    pairs = [(key, *pair) for key, group in groups.items() for pair in _pairs(group)]
    manifest_of = cache(_manifest_of)
    comparisons = sum(len(a.workloads.keys() & b.workloads.keys()) for _, a, b in pairs)
    compared = []
    for (slo, chip), a, b in pairs:
        differing = _differences(manifest_of(_run_of(a)), manifest_of(_run_of(b)))
        shared = [name for name in a.workloads if name in b.workloads]
        contrasts = {name: contrast(a.workloads[name], b.workloads[name], comparisons) for name in shared}
        compared.append(HostPair(slo, chip, (a.cell.host, b.cell.host), differing, contrasts))
    return tuple(compared)


def _pairs(group: Sequence[FleetCell]) -> list[tuple[FleetCell, FleetCell]]:
    """Return which hosts are compared: all pairs of a few, or each of many with the host in the middle."""
    if len(group) <= PAIRED_MOST:
        return list(combinations(group, 2))
    levels = [(level, position) for position, cell in enumerate(group) if (level := _level(cell)) is not None]
    middle = group[sorted(levels)[len(levels) // 2][1]] if levels else group[0]
    return [(middle, cell) for cell in group if cell is not middle]


def _level(cell: FleetCell) -> float | None:
    """Return the mean of the logs of a cell's ratios; None where one is missing."""
    ratios = [workload.speed_up for workload in cell.workloads.values()]
    logs = [math.log(ratio.center) for ratio in ratios if ratio is not None]
    return sum(logs) / len(logs) if logs and len(logs) == len(ratios) else None


def _run_of(cell: FleetCell) -> str:
    return "" if cell.done is None else cell.done.run


def _manifest_of(run: str) -> Manifest | None:
    try:
        return load_manifest((Path(run) / "manifest.json").read_bytes())
    except (OSError, GatekeeperError):
        return None


def _differences(first: Manifest | None, second: Manifest | None) -> tuple[str, ...]:
    if first is None or second is None:
        return ("a manifest cannot be read",)
    return tuple(_words(name, first, second) for name in differences(first, second) if name not in NOT_COMPARED)


def _words(name: str, first: Manifest, second: Manifest) -> str:
    part, _, key = name.partition(".")
    values = [(getattr(manifest, part) or {}).get(key) if key else None for manifest in (first, second)]
    is_readable = bool(key) and all(isinstance(value, str | int | float | None) for value in values)
    words = f"{name}: {values[0]} and {values[1]}"
    return words if is_readable and len(words) <= LONGEST_DIFFERENCE else name  # digests tell a reader nothing


def contrast(first: CellWorkload, second: CellWorkload, comparisons: int) -> RatioContrast:
    """Return whether two hosts differ in the ratio of a workload, one of so many *comparisons*."""
    if first.setting != second.setting:
        return RatioContrast("not compared", "their settings differ")
    if first.speed_up is None or second.speed_up is None:
        return RatioContrast("not compared", "a ratio is missing")
    apart = run_to_run.apart(first.speed_up, second.speed_up, comparisons, math.log)
    says = run_to_run.NO_DIFFERENCE if apart.lo <= 0 <= apart.hi else "differ"
    return RatioContrast(says, "", math.exp(apart.center), math.exp(apart.lo), math.exp(apart.hi))
