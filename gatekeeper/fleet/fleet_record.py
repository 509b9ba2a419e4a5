"""The answer of a fleet: fleet.json with each cell and the worst exit code."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.text import json_text
from gatekeeper.fleet.cell_task import CellResult, CellWorkload
from gatekeeper.fleet.cells import Cell

FILE = "fleet.json"
NO_VERDICT = "no_verdict"
"""Said of a run that ended without an outcome."""
WORST_FIRST = (ExitCode.INTERNAL_ERROR, ExitCode.BAD_INPUT, ExitCode.OBJECTIVE_FAILED, ExitCode.UNPROVEN, ExitCode.OK)
"""How bad an exit code is for the fleet: an error of ours first, then a failed objective, then no proof."""


def worst_exit_code(codes: Iterable[int]) -> ExitCode:
    """Return the worst of the cells' exit codes; without a cell nothing is proven."""
    occurring = set(codes)
    return next((code for code in WORST_FIRST if code in occurring), ExitCode.UNPROVEN)


class FleetCell(Cell):
    """One cell of a fleet, and how it ended."""

    result: CellResult | None = None
    """None: it has not ended, or is not run."""

    @property
    def exit_code(self) -> int:
        """Return the exit code of its run; one that has not ended is no proof."""
        return int(ExitCode.UNPROVEN) if self.result is None else self.result.exit_code

    @property
    def outcome(self) -> str:
        """Return the outcome of its run; `no_verdict` where it ended without one, `open` or `excluded` before."""
        if self.result is None:
            return "excluded" if self.excluded else "open"
        return self.result.outcome or NO_VERDICT

    @property
    def workloads(self) -> tuple[CellWorkload, ...]:
        """Return its workloads; none without a verdict."""
        return () if self.result is None else self.result.workloads

    @property
    def is_demo(self) -> bool:
        """Return whether its soak was too short for a certificate."""
        return self.result is not None and self.result.grade == "demo"


class FleetRecord(BaseModel):
    """What fleet.json says."""

    model_config = ConfigDict(frozen=True)

    schema_: int = Field(default=1, alias="schema", ge=1, le=1)
    started: str
    ended: str | None = None
    cells: tuple[FleetCell, ...]
    policies: dict[str, str] = {}
    """The file of the common policy of each SLO, or why there is none."""

    @property
    def included(self) -> tuple[FleetCell, ...]:
        """Return the cells that are run."""
        return tuple(cell for cell in self.cells if not cell.excluded)

    @property
    def exit_code(self) -> ExitCode:
        """Return the worst exit code of its cells."""
        return worst_exit_code(cell.exit_code for cell in self.included)

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return self.model_dump(mode="json", by_alias=True) | {"exit_code": int(self.exit_code)}


def write_record(folder: Path, record: FleetRecord) -> None:
    """Write fleet.json whole, or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, json_text(record.document()), sync=True)
    except OSError as error:
        message = f"cannot write {folder / FILE}: {error.strerror}"
        raise GatekeeperError(message, hint="free some disk space, or use another --runs") from error


def read_record(folder: Path) -> FleetRecord | None:
    """Return the record of the fleet in *folder*; None where there is none."""
    hint = "move the file away to start anew"
    try:
        return FleetRecord.model_validate_json((folder / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {folder / FILE}: {error.strerror}", hint=hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        raise InputError(f"{folder / FILE} is not the answer of a fleet: {reason}", hint=hint) from error
