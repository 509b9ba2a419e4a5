"""`gatekeeper admit --fleet`: the answer of the deploy gate for every host of a fleet that took the SLO."""

from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.reasons import Reason
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.deploy import admit as gate
from gatekeeper.fleet.fleet_cell import FleetCell
from gatekeeper.fleet.fleet_json import read_existing, worst_exit_code


def admit(slo: Path, folder: Path, required: gate.Requirements, now: datetime) -> dict[str, Any]:
    """Return the answer of the gate for each cell of *slo*, and the worst exit code; a cell without a run refuses."""
    fleet = read_existing(folder)
    name = read_inputs(slo).slo.name
    cells = [cell for cell in fleet.included if cell.cell.slo == name]
    if not cells:
        raise InputError(f"{folder}: the fleet has no SLO '{name}'", hint="name the SLO file that it certified")
    answers = [_admission(slo, cell, required, now) | {"host": cell.cell.host} for cell in cells]
    code = int(worst_exit_code(answer["exit_code"] for answer in answers))
    return {"schema": 1, "slo": name, "admitted": code == ExitCode.OK, "exit_code": code, "cells": answers}


def _admission(slo: Path, cell: FleetCell, required: gate.Requirements, now: datetime) -> dict[str, Any]:
    if cell.done is None or not cell.done.run:
        because = "it has not ended" if cell.done is None else cell.done.error or "it has not ended"
        return {"reason": Reason.NO_RUN.value, "exit_code": int(ExitCode.UNPROVEN), "because": because, "next": ""}
    admission = gate.admit(slo, run=Path(cell.done.run), runs=None, required=required, now=now)
    return admission.document()


def admission_text(document: dict[str, Any]) -> str:
    """Return one line for each host."""
    lines = []
    for answer in document["cells"]:
        because = f": {answer['because']}" if answer["because"] else ""
        lines.append(f"{answer['host']}: {answer['reason']}{because}\n")
    return "".join(lines)
