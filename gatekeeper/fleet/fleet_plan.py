"""The plan of a fleet: its cells, and what each host needs for its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.fleet.cells import Cell, HostLook, cells_to_run


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """One host, with the cells that are run on it."""

    look: HostLook
    cells: tuple[Cell, ...]

    @property
    def expected_s(self) -> float:
        """Return the time of its runs; 0 where the host gave no answer."""
        return 0.0 if self.look.error else sum(cell.seconds for cell in self.cells)

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "address": self.look.host.address,
            **{key: self.look.facts.get(key) for key in ("chip", "memory_bytes", "os", "power_source")},
            "running": self.look.running or None,
            "error": self.look.error or None,
            "expected_seconds": round(self.expected_s),
        }


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What `gatekeeper fleet plan` shows."""

    hosts: Mapping[str, PlannedHost]
    cells: tuple[Cell, ...]

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Return the hosts that gave no answer."""
        return tuple(name for name, host in self.hosts.items() if host.look.error)

    @property
    def exit_code(self) -> ExitCode:
        """Return 3 where a host gave no answer or no SLO fits any host: `fleet certify` would prove nothing there."""
        proves_all = not self.unanswered and any(not cell.excluded for cell in self.cells)
        return ExitCode.OK if proves_all else ExitCode.UNPROVEN

    @property
    def expected_s(self) -> float:
        """Return the time of the fleet with all hosts at once."""
        return max((host.expected_s for host in self.hosts.values()), default=0.0)

    @property
    def expected_host_s(self) -> float:
        """Return the time of all hosts together."""
        return sum(host.expected_s for host in self.hosts.values())

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "schema": 1,
            "hosts": {name: host.document() for name, host in self.hosts.items()},
            "cells": [cell.document() for cell in self.cells],
            "expected_seconds": round(self.expected_s),
            "expected_host_seconds": round(self.expected_host_s),
        }


def plan_fleet(cells: Sequence[Cell], looks: Mapping[str, HostLook]) -> FleetPlan:
    """Return the plan of *cells* on the hosts that were looked at."""
    runs = cells_to_run(cells)
    hosts = {name: PlannedHost(look, tuple(cell for cell in runs if cell.host == name)) for name, look in looks.items()}
    return FleetPlan(hosts, tuple(cells))
