"""`gatekeeper admit --fleet`: the deploy gate, asked for every host of a fleet that took the SLO."""

from datetime import datetime
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import ExitCode, InputError
from gatekeeper.core.reasons import Reason
from gatekeeper.core.system import inputs
from gatekeeper.deploy import admit as gate
from gatekeeper.fleet import answer


def admit(slo: Path, folder: Path, required: gate.Requirements, now: datetime) -> dict[str, Any]:
    """Return the answer of the gate for each cell of *slo*, and the worst exit code; a cell without a run refuses."""
    fleet = answer.read(folder)
    if fleet is None:
        raise InputError(f"{folder} holds no fleet", hint="gatekeeper fleet certify SLO... --runs DIR makes one")
    name = inputs.read(slo).slo.name
    cells = [one for one in fleet["cells"] if one["slo"] == name and one["state"] != "excluded"]
    if not cells:
        raise InputError(f"{folder}: the fleet has no SLO '{name}'", hint="name the SLO file that it certified")
    answers = [_admission(slo, one, required, now) | {"host": one["host"]} for one in cells]
    code = answer.exit_code(one["exit_code"] for one in answers)
    return {"schema": 1, "slo": name, "admitted": code == ExitCode.OK, "exit_code": code, "cells": answers}


def _admission(slo: Path, cell: dict[str, Any], required: gate.Requirements, now: datetime) -> dict[str, Any]:
    if not cell.get("run"):
        because = str(cell.get("error") or "it has not ended")
        return {"reason": Reason.NO_RUN.value, "exit_code": int(ExitCode.UNPROVEN), "because": because, "next": ""}
    admission = gate.admit(slo, run=Path(cell["run"]), runs=None, required=required, now=now)
    return admission.document()


def text(document: dict[str, Any]) -> str:
    """Return one line for each host."""
    lines = []
    for one in document["cells"]:
        because = f": {one['because']}" if one["because"] else ""
        lines.append(f"{one['host']}: {one['reason']}{because}\n")
    return "".join(lines)
