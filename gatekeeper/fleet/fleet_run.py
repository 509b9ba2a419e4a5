"""`gatekeeper fleet certify`: look, choose the cells, run them, and keep fleet.json true after each."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError
from gatekeeper.core.system.files import FileLock, LockHeldError
from gatekeeper.core.system.run_directory import new_run_id
from gatekeeper.fleet import answer, dispatch
from gatekeeper.fleet.cells import Cell, cells, look, read_hosts, read_slos, taken
from gatekeeper.fleet.task import Done, Task
from gatekeeper.report import fleet_report

Report = Callable[[str, str, Mapping[str, Any]], None]
LOCK = ".fleet.lock"
MARK = ".fleet-mark-"
RESTS = 19.0
"""So many times as long as the last writing of fleet.json took, none follows."""


def certify(
    slos: Sequence[Path],
    hosts: Path,
    runs: Path,
    *,
    only: Sequence[str] = (),
    retries: int = 2,
    scheduler: str | None = None,
    options: Mapping[str, Any] | None = None,
    report: Report = lambda _name, _what, _detail: None,
    begin: Callable[[Sequence[Cell]], None] = lambda _cells: None,
) -> dict[str, Any]:
    """Certify every SLO on every host that it fits; return fleet.json, which is also written to *runs*.

    An unfinished fleet in *runs* with the same SLOs is continued: what ended stays, what runs is attached to.
    """
    entered = read_slos(slos)
    remotes = read_hosts(hosts, only)
    report("", "looking", {"hosts": len(remotes)})
    lock = FileLock(runs / LOCK, remove=True)
    runs.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire("fleet")
    except LockHeldError:
        message = f"another `fleet certify` uses {runs}"
        raise HostLacksError(message, hint="wait for it, or use another --runs") from None
    try:
        found = cells(entered, look(remotes, entered))
        if not taken(found):
            reasons = "; ".join(f"{one.name}: {one.excluded[0]}" for one in found)
            raise HostLacksError(f"no host takes any of these SLOs: {reasons}", hint="gatekeeper fleet plan shows more")
        started, done = _continued(runs, found)
        begin(found)

        kept = Kept(runs, found, started, done.values())

        def note(name: str, what: str, detail: Mapping[str, Any]) -> None:
            if what == "done":
                kept.take(Done(**detail))
            report(name, what, detail)

        for one in done.values():
            report(one.cell, "done", one.document())
        left = [one for one in taken(found) if one.name not in done]
        given = dict(options or {})

        def task_of(cell: Cell) -> Task:
            return Task(
                cell.name,
                str(cell.path.resolve()),
                cell.host,
                str(hosts.resolve()),
                str(runs.resolve()),
                started,
                **given,
            )

        if left:
            with _mark(runs) as mark:
                given = given | ({"mark": str(mark)} if scheduler else {})
                dispatch.run(left, task_of, note, retries=retries, scheduler=scheduler, mark=str(mark))
        fleet = kept.end(stamp(SystemClock().wall()))
        (runs / "fleet.html").write_text(fleet_report.html(fleet), "utf-8")
        (runs / "fleet.md").write_text(fleet_report.markdown(fleet), "utf-8")
        return fleet
    finally:
        lock.release()


@contextmanager
def _mark(runs: Path) -> Iterator[Path]:
    """Put a file of a new name into the folder, by which a worker elsewhere shows that it sees the same folder."""
    for left in runs.glob(f"{MARK}*"):  # of a controller that was killed; this one has the lock
        left.unlink(missing_ok=True)
    mark = runs.resolve() / f"{MARK}{new_run_id('', SystemClock().wall()).strip('-')}"
    mark.touch()
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


class Kept:
    """fleet.json, written anew when a cell has ended; what was read of a run stays in memory.

    Thousands of cells take a while to write: then a twentieth of the time goes into it, and the file is that much late.
    What a killed controller had not written is found again by the runs that were downloaded.
    """

    def __init__(self, runs: Path, cells: Sequence[Cell], started: str, done: Iterable[Done]) -> None:
        self._runs, self._started = runs, started
        self._cells = {one.name: one for one in cells}
        self._documents = {one.name: answer.cell_document(one, None) for one in cells}
        for one in done:
            self._documents[one.cell] = answer.cell_document(self._cells[one.cell], one)
        self._lock, self._rest_until, self._ended = threading.Lock(), 0.0, False
        self._later: threading.Timer | None = None
        self._write(None)

    def take(self, done: Done) -> None:
        """Take in how a cell ended."""
        document = answer.cell_document(self._cells[done.cell], done)
        with self._lock:
            self._documents[done.cell] = document
            wait = self._rest_until - time.monotonic()
            if self._later is not None:
                return
            if wait > 0:
                self._later = threading.Timer(wait, self._write_late)
                self._later.daemon = True
                self._later.start()
            else:
                self._write(None)

    def end(self, ended: str) -> dict[str, Any]:
        """Return fleet.json, to which the comparison of hosts of one chip is added."""
        with self._lock:
            if self._later is not None:
                self._later.cancel()
            return self._write(ended)

    def _write_late(self) -> None:
        with self._lock, suppress(GatekeeperError):  # the next write raises it where it ends the fleet
            if self._later is not None and not self._ended:
                self._later = None
                self._write(None)

    def _write(self, ended: str | None) -> dict[str, Any]:
        begun = time.monotonic()
        fleet = answer.document(list(self._documents.values()), self._started, ended)
        answer.write(self._runs, fleet)
        self._rest_until, self._ended = time.monotonic() + RESTS * (time.monotonic() - begun), ended is not None
        return fleet


def _continued(runs: Path, found: Sequence[Cell]) -> tuple[str, dict[str, Done]]:
    """Return when the fleet started, and the cells that have ended: those of an unfinished fleet of the same SLOs."""
    before = answer.read(runs)
    now = stamp(SystemClock().wall())
    if before is None:
        return now, {}
    if before["ended"] is not None:
        kept = runs / f"fleet-{new_run_id('', SystemClock().wall()).strip('-')}.json"
        (runs / answer.FILE).rename(kept)
        return now, {}
    names = {one.name for one in found}
    ours = {str(one["name"]) for one in before["cells"]}
    if not ours & names:
        raise InputError(f"{runs} holds an unfinished fleet of other SLOs", hint="use another --runs")
    fields = Done.__dataclass_fields__
    ended = [one for one in before["cells"] if one["state"] == "done" and one["name"] in names]
    kept_ones = {
        str(one["name"]): Done(**({key: one[key] for key in fields if key in one} | {"cell": one["name"]}))
        for one in ended
    }
    # A cell without a verdict is tried again: the reason may be gone.
    return str(before["started"]), {name: one for name, one in kept_ones.items() if one.outcome}
