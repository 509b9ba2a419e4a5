"""`gatekeeper admit --fleet`: the answer of the deploy gate for every host of a fleet that took the SLO."""

from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.reasons import Reason
from gatekeeper.core.system.inputs import read as read_inputs
from gatekeeper.deploy import admit as gate
from gatekeeper.fleet.fleet_record import FleetCell, read_record, worst_exit_code


def admit(slo: Path, folder: Path, required: gate.Requirements, now: datetime) -> dict[str, Any]:
    """Return the answer of the gate for each cell of *slo*, and the worst exit code; a cell without a run refuses."""
    record = read_record(folder)
    if record is None:
        raise InputError(f"{folder} holds no fleet", hint="gatekeeper fleet certify SLO... --runs DIR makes one")
    name = read_inputs(slo).slo.name
    cells = [cell for cell in record.included if cell.slo == name]
    if not cells:
        raise InputError(f"{folder}: the fleet has no SLO '{name}'", hint="name the SLO file that it certified")
    answers = [_admit_cell(slo, cell, required, now) | {"host": cell.host} for cell in cells]
    code = int(worst_exit_code(answer["exit_code"] for answer in answers))
    return {"schema": 1, "slo": name, "admitted": code == ExitCode.OK, "exit_code": code, "cells": answers}


def _admit_cell(slo: Path, cell: FleetCell, required: gate.Requirements, now: datetime) -> dict[str, Any]:
    if cell.result is None or not cell.result.run:
        because = cell.result.error if cell.result is not None else "it has not ended"
        return {"reason": Reason.NO_RUN.value, "exit_code": int(ExitCode.UNPROVEN), "because": because, "next": ""}
    return gate.admit(slo, run=Path(cell.result.run), runs=None, required=required, now=now).document()


def admission_text(document: dict[str, Any]) -> str:
    """Return one line for each host."""
    lines = []
    for answer in document["cells"]:
        because = f": {answer['because']}" if answer["because"] else ""
        lines.append(f"{answer['host']}: {answer['reason']}{because}\n")
    return "".join(lines)
