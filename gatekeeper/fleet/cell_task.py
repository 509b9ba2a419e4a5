"""What a Dask worker does for a cell: `gatekeeper remote certify` as a process, which may be repeated at any time."""

import re
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.system.run_directory import MANIFEST, RunDirectory
from gatekeeper.fleet.cells import Cell, gatekeeper_words
from gatekeeper.report.data.workload_summary import speed_up
from gatekeeper.run.stored.judge import judge

PAUSE_S = 60.0
"""Before a cell is tried again."""
ERROR, HINT = "gatekeeper: ", "  hint: "
"""How the lines of an error and of its hint begin on stderr."""


@dataclass(frozen=True, slots=True)
class CellTask:
    """One cell, as a worker needs it."""

    cell: Cell
    runs: Path
    """Where the runs are downloaded to."""
    started: str
    """When the fleet started: a run of this cell that was downloaded since then is its answer."""
    options: tuple[str, ...] = ()
    """Further options of `gatekeeper remote certify`."""
    pause_s: float = 0.0
    """Wait so long before a failed connection is reported, after which Dask tries the cell again."""

    @property
    def run(self) -> Path:
        """Return where the run of the cell goes: the same place in every try of its fleet, and of the same inputs."""
        began = re.sub("[^0-9TZ]", "", self.started.partition(".")[0])
        name = re.sub("[^A-Za-z0-9._-]", "-", self.cell.name)
        return self.runs / f"{began}-{name}-{self.cell.inputs_sha256[:8]}"


class CellWorkload(BaseModel):
    """What became of one workload of a cell."""

    model_config = ConfigDict(frozen=True)

    name: str
    outcome: str
    because: str
    ratio: tuple[float, float, float] | None
    """The speed of a promoted setting against plain decoding with both ends of its interval; None: not measured."""


class CellResult(BaseModel):
    """How a cell ended."""

    model_config = ConfigDict(frozen=True)

    exit_code: int
    outcome: str = ""
    """The outcome of the verdict; empty where there is none."""
    grade: str = ""
    workloads: tuple[CellWorkload, ...] = ()
    run: str = ""
    """The local run directory, where one was downloaded."""
    error: str = ""
    hint: str = ""


class TryAgainError(Exception):
    """The connection failed or the host was occupied: nothing was said about the system under test."""

    @property
    def result(self) -> CellResult:
        """Return how the cell ends if it is not tried again."""
        result: CellResult = self.args[0]
        return result


def certify_cell(task: CellTask, tell: Callable[[str], None]) -> CellResult:
    """Certify the cell on its host, or attach to its run; *tell* gets each line that the process prints.

    Dask starts a task again when it loses a worker: a run that was downloaded meanwhile is the answer.
    """
    run = task.run
    if RunDirectory(run).is_finished():
        with suppress(GatekeeperError, ValueError):  # a damaged one is downloaded again
            return _result_of(judge(run), run)
    code, error, hint = _certify(task, tell, resume=(run / MANIFEST).is_file())
    if code == ExitCode.BAD_INPUT and (run / MANIFEST).is_file():
        code, error, hint = _certify(task, tell, resume=False)  # its remote host has the unfinished run no more
    if RunDirectory(run).is_finished() and not error:
        verdict = judge(run)
        if code == verdict.exit_code:
            return _result_of(verdict, run)
    ended = code
    if code not in {ExitCode.BAD_INPUT, ExitCode.UNPROVEN}:
        code = ExitCode.INTERNAL_ERROR  # killed, interrupted, or with the code of a verdict that is not there
    result = CellResult(
        exit_code=code, run=str(run) if run.exists() else "", hint=hint,
        error=error or f"gatekeeper remote certify ended with exit code {ended}",
    )  # fmt: skip
    if code == ExitCode.UNPROVEN and not run.exists():
        time.sleep(task.pause_s)
        raise TryAgainError(result)
    return result


def _result_of(verdict: Verdict, run: Path) -> CellResult:
    workloads = []
    for workload in verdict.workloads:
        speed = speed_up(workload) if workload.outcome == "promoted" else None
        ratio = None if speed is None else (speed.center, speed.lo, speed.hi)
        part = CellWorkload(name=workload.name, outcome=workload.outcome, because=workload.because, ratio=ratio)
        workloads.append(part)
    return CellResult(
        exit_code=int(verdict.exit_code),
        outcome=verdict.outcome,
        grade=verdict.grade,
        workloads=tuple(workloads),
        run=str(run),
    )


def _certify(task: CellTask, tell: Callable[[str], None], *, resume: bool) -> tuple[int, str, str]:
    """Run `gatekeeper remote certify`; return its exit code, and its error with the hint, which it prints last."""
    words = ["remote", "certify", str(task.cell.path), "--on", task.cell.address, "--output", str(task.run)]
    words += [*task.options, *(["--resume"] if resume else [])]
    error, hint = list[str](), ""
    with subprocess.Popen(
        gatekeeper_words(*words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            text = line.rstrip("\n")
            if text.startswith(ERROR):
                error = [text.removeprefix(ERROR)]
            elif error and text.startswith(HINT):
                hint = text.removeprefix(HINT)
            elif error:
                error.append(text)
            else:
                tell(text)
    return process.returncode, "\n".join(error), hint
