"""The answer of a fleet: fleet.json, with each cell, the worst exit code, and whether hosts of one chip differ."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.system.files import write_atomically
from gatekeeper.fleet.fleet_cell import FleetCell
from gatekeeper.fleet.host_pairs import HostPair

FILE = "fleet.json"
WORST_FIRST = (ExitCode.INTERNAL_ERROR, ExitCode.BAD_INPUT, ExitCode.OBJECTIVE_FAILED, ExitCode.UNPROVEN, ExitCode.OK)
"""How bad an exit code is for the fleet: an error of ours first, then a failed objective, then no proof."""


def worst_exit_code(codes: Iterable[int]) -> ExitCode:
    """Return the worst of the cells' exit codes; without a cell nothing is proven."""
    occurring = set(codes)
    return next((code for code in WORST_FIRST if code in occurring), ExitCode.UNPROVEN)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What fleet.json says."""

    started: str
    ended: str | None
    cells: tuple[FleetCell, ...]
    alike: tuple[HostPair, ...] = ()
    """Hosts of one chip, which are compared once the fleet has ended."""

    @property
    def included(self) -> tuple[FleetCell, ...]:
        """Return the cells that are run."""
        return tuple(cell for cell in self.cells if cell.state != "excluded")

    @property
    def exit_code(self) -> ExitCode:
        """Return the worst exit code of its cells; one that has not ended is no proof."""
        codes = (ExitCode.UNPROVEN if cell.done is None else cell.done.exit_code for cell in self.included)
        return worst_exit_code(codes)

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "schema": 1,
            "started": self.started,
            "ended": self.ended,
            "exit_code": int(self.exit_code),
            "cells": [cell.document() for cell in self.cells],
            "alike": [pair.document() for pair in self.alike],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Fleet":
        """Return the fleet of a document."""
        cells = tuple(FleetCell.of(cell) for cell in document["cells"])
        return cls(document["started"], document["ended"], cells, tuple(map(HostPair.of, document["alike"])))


def write(folder: Path, fleet: Fleet) -> None:
    """Write fleet.json whole, or not at all; while the fleet runs in one line, which takes a sixth of the time."""
    is_ended = fleet.ended is not None
    text = json.dumps(fleet.document(), indent=1 if is_ended else None, ensure_ascii=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, text, sync=is_ended)
    except OSError as error:
        message = f"cannot write {folder / FILE}: {error.strerror}"
        raise GatekeeperError(message, hint="free some disk space, or use another --runs") from error


def read(folder: Path) -> Fleet | None:
    """Return the fleet of *folder*; None where there is none."""
    try:
        return Fleet.of(json_object((folder / FILE).read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ParseError) as error:
        reason = str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"not the answer of a fleet: {error!r}"
    raise InputError(f"cannot read {folder / FILE}: {reason}", hint="move the file away to start anew")


def read_existing(folder: Path) -> Fleet:
    """Return the fleet of *folder*; raise InputError where there is none."""
    fleet = read(folder)
    if fleet is None:
        raise InputError(f"{folder} holds no fleet", hint="gatekeeper fleet certify SLO... --runs DIR makes one")
    return fleet
