"""`gatekeeper fleet certify`: look, choose the cells, run them, and keep fleet.json true after each."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import HostLacksError, InputError
from gatekeeper.core.system.files import FileLock, LockHeldError
from gatekeeper.core.system.run_directory import new_run_id
from gatekeeper.fleet import answer, dispatch
from gatekeeper.fleet.cells import Cell, cells, look, read_hosts, read_slos, taken
from gatekeeper.fleet.task import Done, Task
from gatekeeper.report import fleet_report

Report = Callable[[str, str, Mapping[str, Any]], None]
LOCK = ".fleet.lock"


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

        def keep(ended: str | None) -> dict[str, Any]:
            documents = [answer.cell_document(one, done.get(one.name)) for one in found]
            fleet = answer.document(documents, started, ended)
            answer.write(runs, fleet)
            return fleet

        def note(name: str, what: str, detail: Mapping[str, Any]) -> None:
            if what == "done":
                done[name] = Done(**detail)
                keep(None)
            report(name, what, detail)

        for one in done.values():
            report(one.cell, "done", one.document())
        keep(None)
        left = [one for one in taken(found) if one.name not in done]
        given = options or {}

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
            dispatch.run(left, task_of, note, retries=retries, scheduler=scheduler)
        fleet = keep(stamp(SystemClock().wall()))
        (runs / "fleet.html").write_text(fleet_report.html(fleet), "utf-8")
        (runs / "fleet.md").write_text(fleet_report.markdown(fleet), "utf-8")
        return fleet
    finally:
        lock.release()


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
