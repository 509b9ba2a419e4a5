"""The plan of a fleet: its cells, and what each host needs for its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.text import show_count
from gatekeeper.core.units import show_bytes, show_seconds
from gatekeeper.fleet.cells import Cell, HostLook
from gatekeeper.report.shown_document import Document, Listing, Node, Note, Section, Table


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What `gatekeeper fleet plan` shows."""

    looks: Mapping[str, HostLook]
    cells: Sequence[Cell]

    @property
    def ready(self) -> list[Cell]:
        """Return the cells that can be run: those of a host that gave no answer are in no figure."""
        return [cell for cell in self.cells if not cell.excluded and not self.looks[cell.host].error]

    @property
    def unanswered(self) -> list[str]:
        """Return the hosts that gave no answer."""
        return [name for name, look in self.looks.items() if look.error]

    @property
    def exit_code(self) -> ExitCode:
        """Return 3 where a host gave no answer or no SLO fits any host: `fleet certify` would prove nothing there."""
        return ExitCode.OK if self.ready and not self.unanswered else ExitCode.UNPROVEN

    @property
    def expected_s(self) -> dict[str, float]:
        """Return the time of each host's runs."""
        seconds = dict.fromkeys(self.looks, 0.0)
        for cell in self.ready:
            seconds[cell.host] += cell.expected_seconds
        return seconds

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        expected_s = self.expected_s
        return {
            "schema": 1,
            "hosts": {name: look.document(expected_s[name]) for name, look in self.looks.items()},
            "cells": [cell.model_dump(mode="json") for cell in self.cells],
            "expected_seconds": round(max(expected_s.values())),
            "expected_host_seconds": round(sum(expected_s.values())),
        }

    def describe(self, following: Sequence[Node] = ()) -> Document:
        """Return for people: hosts, cells, and why the others are not run; at the end what is *following*."""
        expected_s, runs, silent = self.expected_s, self.ready, self.unanswered
        hosts = [_host_row(look, expected_s[name]) for name, look in self.looks.items()]
        rows = [
            (cell.slo, cell.host, show_seconds(round(cell.expected_seconds)), ", ".join(cell.needs)) for cell in runs
        ]
        lines = [f"not on {cell.host}: {cell.slo}: {'; '.join(cell.excluded)}" for cell in self.cells if cell.excluded]
        longest, total = (show_seconds(round(seconds(expected_s.values()))) for seconds in (max, sum))
        lines.append(f"{show_count(len(runs), 'run')}, about {longest} with all hosts at once, {total} of host time")
        if silent:
            answer = f"no answer from {', '.join(silent)}: each SLO stays unproven there"
            lines.append(f"{answer}; reach {'it' if len(silent) == 1 else 'them'}, or name the other hosts with --only")
        nodes = (
            Section("Hosts", (Table(("host", "chip", "memory", "os", "time", ""), hosts),)),
            Section("Runs", (Table(("SLO", "host", "expected", "needs"), rows) if runs else Note("no run can begin"),)),
        )
        return Document("fleet plan", "", (*nodes, Listing(lines), *following))


def _host_row(look: HostLook, expected_s: float) -> tuple[str, str, str, str, str, str]:
    memory = look.facts.get("memory_bytes")
    return (
        look.name,
        look.facts.get("chip") or "-",
        show_bytes(memory) if memory else "-",
        look.facts.get("os") or "-",
        "-" if look.error else show_seconds(round(expected_s)),
        look.error or (f"busy: {look.running}" if look.running else ""),
    )
