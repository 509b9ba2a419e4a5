"""Cells of a fleet."""

from pathlib import Path
from typing import Any

from gatekeeper.fleet.cells import Cell
from gatekeeper.fleet.fleet_record import FleetCell


def make_cell(name: str, **changes: Any) -> Cell:
    """Return the cell SLO@HOST."""
    slo, _, host = name.partition("@")
    return Cell(slo=slo, path=Path(f"{slo}.toml"), host=host, address=host, inputs_sha256="0" * 64, **changes)


def make_fleet_cell(name: str, **changes: Any) -> FleetCell:
    """Return the cell SLO@HOST of a record; a `result` among the *changes* is how it ended."""
    result = changes.pop("result", None)
    return FleetCell(**dict(make_cell(name, **changes)), result=result)
