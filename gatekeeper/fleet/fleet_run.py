"""`gatekeeper fleet certify`: look, choose the cells, run them, and keep fleet.json true after each."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError
from gatekeeper.core.system.file_lock import FileLock, LockHeldError
from gatekeeper.core.system.run_directory import new_run_id
from gatekeeper.fleet import dispatch, fleet_json, fleet_page, fleet_report
from gatekeeper.fleet.cell_task import Done, FleetOptions, Task
from gatekeeper.fleet.cells import Cell, cells_to_run, look_at_hosts, pair_slos_with_hosts, read_hosts, read_slos
from gatekeeper.fleet.fleet_cell import CellState, FleetCell, ended_cell
from gatekeeper.fleet.fleet_json import Fleet
from gatekeeper.fleet.host_pairs import compare_hosts

LOCK = ".fleet.lock"
MARK = ".fleet-mark-"
RESTS = 19.0
"""So many times as long as the last writing of fleet.json took, none follows."""


def certify_fleet(
    slos: Sequence[Path],
    hosts: Path,
    runs: Path,
    *,
    options: FleetOptions,
    only: Sequence[str] = (),
    retries: int = 2,
    scheduler: str | None = None,
    report: dispatch.Report = lambda _name, _change, _detail: None,
    begin: Callable[[Sequence[Cell]], None] = lambda _cells: None,
) -> Fleet:
    """Certify every SLO on every host that it fits; return the answer, which is also written to *runs*.

    An unfinished fleet in *runs* with the same SLOs is continued: what ended stays, what runs is attached to. A part
    of a fleet that has ended is certified in place: those of its cells that have no verdict, or else all it names.
    """
    entries = read_slos(slos)
    remotes = read_hosts(hosts, only)
    report("", "looking", {"hosts": len(remotes)})
    with _locked(runs):
        cells = pair_slos_with_hosts(entries, look_at_hosts(remotes))
        if not cells_to_run(cells):
            reasons = "; ".join(f"{cell.name}: {cell.excluded[0]}" for cell in cells)
            raise HostLacksError(f"no host takes any of these SLOs: {reasons}", hint="gatekeeper fleet plan shows more")
        earlier = _continued(runs, cells)
        done_by_cell = {cell.name: cell.done for cell in earlier.cells if cell.done is not None}
        begin(cells)
        file = FleetFile(runs, cells, earlier)

        def note(name: str, change: str, detail: Mapping[str, Any]) -> None:
            if change == CellState.DONE:
                file.take(Done(**detail))
            report(name, change, detail)

        def task_of(cell: Cell) -> Task:
            slo, folder = str(cell.path.resolve()), str(runs.resolve())
            return Task(cell.name, slo, cell.address, folder, since=earlier.since, options=options)

        for done in done_by_cell.values():
            report(done.cell, CellState.DONE, done.document())
        if remaining := [cell for cell in cells_to_run(cells) if cell.name not in done_by_cell]:
            with _mark(runs) as mark:
                dispatch.run(remaining, task_of, note, retries=retries, scheduler=scheduler, mark=str(mark))
        fleet = file.end(stamp(SystemClock().wall()))
        (runs / "fleet.html").write_text(fleet_page.render(fleet), "utf-8")
        (runs / "fleet.md").write_text(fleet_report.markdown(fleet), "utf-8")
        return fleet


@contextmanager
def _locked(runs: Path) -> Iterator[None]:
    """Hold the folder of runs; raise HostLacksError where another fleet does."""
    runs.mkdir(parents=True, exist_ok=True)
    lock = FileLock(runs / LOCK, remove=True)
    try:
        lock.acquire("fleet")
    except LockHeldError:
        message = f"another `fleet certify` uses {runs}"
        raise HostLacksError(message, hint="wait for it, or use another --runs") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _mark(runs: Path) -> Iterator[Path]:
    """Put a file of a new name into the folder, by which a worker elsewhere shows that it sees the same folder."""
    for old_mark in runs.glob(f"{MARK}*"):  # of a controller that was killed; this one has the lock
        old_mark.unlink(missing_ok=True)
    mark = runs.resolve() / f"{MARK}{new_run_id('', SystemClock().wall()).strip('-')}"
    mark.touch()
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


class FleetFile:
    """fleet.json, written anew when a cell has ended; what was read of a run stays in memory.

    Thousands of cells take a while to write: then a twentieth of the time goes into it, and the file is that much late.
    What a killed controller had not written is found again by the runs that were downloaded.
    """

    def __init__(self, runs: Path, cells: Sequence[Cell], earlier: "Earlier") -> None:
        self._runs, self._started = runs, earlier.started
        now = {cell.name: cell for cell in cells}
        self._cells = {cell.name: cell for cell in earlier.kept} | {name: FleetCell(cell) for name, cell in now.items()}
        for cell in earlier.cells:
            if cell.done is not None:
                self._cells[cell.name] = ended_cell(now[cell.name], cell.done)
        self._lock, self._rest_until, self._ended = threading.Lock(), 0.0, False
        self._later: threading.Timer | None = None
        self._write()

    def take(self, done: Done) -> None:
        """Take in how a cell ended."""
        cell = ended_cell(self._cells[done.cell].cell, done)
        with self._lock:
            self._cells[done.cell] = cell
            wait = self._rest_until - time.monotonic()
            if self._later is not None:
                return
            if wait > 0:
                self._later = threading.Timer(wait, self._write_late)
                self._later.daemon = True
                self._later.start()
            else:
                self._write()

    def end(self, ended: str) -> Fleet:
        """Return the answer, to which the comparison of hosts of one chip is added."""
        with self._lock:
            if self._later is not None:
                self._later.cancel()
            return self._write(ended)

    def _write_late(self) -> None:
        with self._lock, suppress(GatekeeperError):  # the next write raises it where it ends the fleet
            if self._later is not None and not self._ended:
                self._later = None
                self._write()

    def _write(self, ended: str | None = None) -> Fleet:
        begun = time.monotonic()
        cells = tuple(self._cells.values())
        fleet = Fleet(self._started, ended, cells, () if ended is None else compare_hosts(cells))
        fleet_json.write(self._runs, fleet)
        self._rest_until, self._ended = time.monotonic() + RESTS * (time.monotonic() - begun), ended is not None
        return fleet


@dataclass(frozen=True, slots=True)
class Earlier:
    """What of an earlier fleet in the same folder is kept."""

    started: str
    since: str
    """Runs of its cells that started since then are theirs."""
    cells: tuple[FleetCell, ...] = ()
    """Those of the cells to run that have a verdict."""
    kept: tuple[FleetCell, ...] = ()
    """All its cells in their order, where only some of them are certified again."""


def _continued(runs: Path, cells: Sequence[Cell]) -> Earlier:
    """Return what is kept of the fleet in *runs*: of an unfinished one of the same SLOs, or of one with more cells."""
    before = fleet_json.read(runs)
    now = stamp(SystemClock().wall())
    if before is None:
        return Earlier(now, now)
    names = {cell.name for cell in cells}
    common = [cell for cell in before.cells if cell.name in names]
    # A cell without a verdict is tried again: the reason may be gone.
    judged = tuple(cell for cell in common if cell.done is not None and cell.done.outcome)
    if before.ended is None:
        if not common:
            raise InputError(f"{runs} holds an unfinished fleet of other SLOs", hint="use another --runs")
        return Earlier(before.started, before.started, judged)
    if names < {cell.name for cell in before.cells}:
        lost = any(cell.state == "done" and cell not in judged for cell in common)
        since, answered = (before.started, judged) if lost else (now, ())
        return Earlier(before.started, since, answered, before.cells)
    (runs / fleet_json.FILE).rename(runs / f"fleet-{new_run_id('', SystemClock().wall()).strip('-')}.json")
    return Earlier(now, now)
