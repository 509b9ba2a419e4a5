"""What is done for one cell: `gatekeeper remote certify` as a process, which Dask may repeat at any time."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.system.run_directory import MANIFEST, RunDirectory
from gatekeeper.run.stored.judge import judge

Tell = Callable[[str, dict[str, Any]], None]
"""Takes the kind and the detail of an event."""


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """How every cell of a fleet is certified."""

    patience_s: float = 600.0
    send_env: tuple[str, ...] = ()
    baseline: str | None = None
    """As of `remote certify`."""


@dataclass(frozen=True, slots=True)
class Task:
    """One cell, as a worker needs it."""

    cell: str
    slo: str
    host: str
    """Its ssh address."""
    runs: str
    """Where the runs are downloaded to."""
    since: str
    """When the fleet started: a run of this cell that was downloaded since then is its answer."""
    options: FleetOptions = FleetOptions()
    pause_s: float = 0.0
    """Wait so long before the try."""
    mark: str = ""
    """A file of the controller in the folder of runs: a worker that does not see it shares no folder with it."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a cell ended."""

    cell: str
    exit_code: int
    outcome: str = ""
    """Of the verdict; empty where there is none."""
    run: str = ""
    """The local run directory, where one was downloaded."""
    error: str = ""
    hint: str = ""
    again: bool = False
    """The connection failed or the host was occupied: nothing was said about the system under test."""

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


def certify_cell(task: Task, tell: Tell = lambda _kind, _detail: None) -> Done:
    """Certify the cell on its host, or attach to its run; whatever fails is in the answer.

    Dask starts a task again when it loses a worker: a run that was downloaded meanwhile is the answer.
    """
    time.sleep(task.pause_s)
    out = _run_directory(task)
    if RunDirectory(out).is_finished():
        with suppress(GatekeeperError, ValueError):  # a damaged one is downloaded again
            verdict = judge(out)
            return Done(task.cell, int(verdict.exit_code), verdict.outcome, str(out))
    code, error, hint = _run(_words(task, out, resume=(out / MANIFEST).is_file()), tell)
    if code == ExitCode.BAD_INPUT and (out / MANIFEST).is_file():
        code, error, hint = _run(_words(task, out, resume=False), tell)  # it is there no more
    if RunDirectory(out).is_finished() and not error:
        verdict = judge(out)
        return Done(task.cell, code, verdict.outcome, str(out))
    again = code == ExitCode.UNPROVEN and not out.exists()
    code = code if code not in {ExitCode.OK, ExitCode.OBJECTIVE_FAILED} else int(ExitCode.INTERNAL_ERROR)
    run = str(out) if out.exists() else ""
    error = error or f"gatekeeper remote certify ended with exit code {code}"
    return Done(task.cell, code, run=run, error=error, hint=hint, again=again)


def _run_directory(task: Task) -> Path:
    """Return where the run of a cell goes: the same place in every try of its fleet."""
    began = re.sub("[^0-9TZ]", "", task.since.partition(".")[0])
    return Path(task.runs) / f"{began}-{re.sub('[^A-Za-z0-9._-]', '-', task.cell)}"


def _words(task: Task, out: Path, *, resume: bool) -> list[str]:
    options = task.options
    words = ["remote", "certify", task.slo, "--on", task.host, "--output", str(out)]
    words += ["--patience", f"{options.patience_s:g} s"]
    words += [word for name in options.send_env for word in ("--send-env", name)]
    words += ["--baseline", options.baseline] if options.baseline is not None else []
    return [sys.executable, "-m", "gatekeeper", *words, *(["--resume"] if resume else [])]


def _run(words: list[str], tell: Tell) -> tuple[int, str, str]:
    """Run the command and tell its lines; return its exit code, and its error with the hint, which come last."""
    error, hint = list[str](), ""
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            text = line.rstrip("\n")
            if text.startswith(ERROR):
                error = [text.removeprefix(ERROR)]
            elif error and text.startswith(HINT):
                hint = text.removeprefix(HINT)
            elif error:
                error.append(text)
            elif text.startswith(NOTE):
                about, _, message = text.removeprefix(NOTE).partition(": ")
                tell("warning", {"about": about, "because": message})
            else:
                tell("progress", {"stage": text, "left": None})
    return process.returncode, "\n".join(error), hint


ERROR, HINT, NOTE = "gatekeeper: ", "  hint: ", "note: "
"""How the lines of an error, its hint and a remark begin on stderr."""
