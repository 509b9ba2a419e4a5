"""The answer of a fleet: fleet.json with each cell and the worst exit code; its table as text and Markdown."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gatekeeper.analysis.verdict.run_verdict import outcome_words
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.text import aligned, counted, json_text
from gatekeeper.core.units import show_ratio
from gatekeeper.fleet.cell_task import CellResult, CellWorkload
from gatekeeper.fleet.cells import Cell
from gatekeeper.report.phrases import spaced

FILE = "fleet.json"
HEADS = ("SLO", "host", "outcome", "against plain decoding")
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
    """By SLO: the file of the common policy, or why there is none."""

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


def headline(record: FleetRecord) -> str:
    """Return the answer in one sentence."""
    outcomes = [cell.outcome for cell in record.included]
    parts = [f"{outcomes.count(word)} {spaced(word)}" for word in dict.fromkeys(outcomes)]
    return f"{counted(len(outcomes), 'run')}: {', '.join(parts)}"


def render_text(record: FleetRecord) -> str:
    """Return the answer for a terminal."""
    rows = [HEADS, *map(_row, record.included)]
    remarks = list(_remarks(record))
    last = f"{headline(record)} (exit code {record.exit_code:d})"
    return "\n".join([*aligned(rows), *([""] if remarks else []), *remarks, "", last]) + "\n"


def render_markdown(record: FleetRecord) -> str:
    """Return the answer for a job's page."""
    from gatekeeper.report.markdown import plain, table  # noqa: PLC0415 (it needs numpy, which most commands do not)

    rows = [tuple(plain(text) for text in _row(cell)) for cell in record.included]
    blocks = [f"### {plain(headline(record))} (exit code {record.exit_code:d})", table(HEADS, rows)]
    if remarks := [f"- {plain(line)}" for line in _remarks(record)]:
        blocks.append("\n".join(remarks))
    return "\n\n".join(blocks) + "\n"


def _row(cell: FleetCell) -> tuple[str, str, str, str]:
    ended = outcome_words(cell.outcome, [workload.outcome for workload in cell.workloads])
    return cell.slo, cell.host, f"{ended} (demo)" if cell.is_demo else ended, "; ".join(describe_speeds(cell))


def describe_speeds(cell: FleetCell) -> list[str]:
    """Return the speed of each workload against plain decoding, or its outcome where it does not speculate."""
    return [
        f"{workload.name} {spaced(workload.outcome) if workload.ratio is None else show_ratio(*workload.ratio)}"
        for workload in cell.workloads
    ]


def _remarks(record: FleetRecord) -> Iterator[str]:
    """Yield why a run gave no verdict, once for all hosts with the same reason, and where the policies are."""
    names: dict[str, list[str]] = {}
    for cell in record.included:
        if cell.result is not None and cell.result.error:
            reason = "; ".join(filter(None, (" ".join(cell.result.error.split()), cell.result.hint)))
            names.setdefault(reason, []).append(cell.name)
    for reason, cells in names.items():
        yield f"{', '.join(cells)}: {reason}"
    for slo, policy in record.policies.items():
        yield f"{slo}, one policy for all hosts: {policy}"
