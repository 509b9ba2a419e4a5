"""`gatekeeper fleet certify`: choose the cells, run them, and write the answer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.errors import HostLacksError
from gatekeeper.core.system.file_lock import FileLock, LockHeldError
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.text import show_count
from gatekeeper.fleet import dispatch
from gatekeeper.fleet.cell_task import PAUSE_S, CellResult, CellTask
from gatekeeper.fleet.cells import Cell, cells_to_run, find_cells
from gatekeeper.fleet.common_policy import write_common_policies
from gatekeeper.fleet.fleet_document import fleet_document
from gatekeeper.fleet.fleet_record import FILE, FleetCell, FleetRecord, read_record, write_record
from gatekeeper.report.document_markdown import render_markdown
from gatekeeper.report.html.document_page import render_page
from gatekeeper.report.outcome_signs import write_as_words

LOCK = ".fleet.lock"


def certify_fleet(
    slos: Sequence[Path],
    hosts: Path,
    runs: Path,
    *,
    only: Sequence[str],
    options: Sequence[str],
    retries: int,
    resume: bool,
    scheduler: str | None,
    say: Callable[[str], None],
) -> FleetRecord:
    """Certify every SLO on every host that it fits; return the answer, which is also written to *runs*.

    *options* are further ones of `gatekeeper remote certify`. A fleet that was killed is continued, as one that ended
    is with *resume*: what has a verdict stays, what runs is attached to.
    """
    runs = runs.resolve()
    with _lock(runs):
        cells, looks = find_cells(slos, hosts, only)
        included = cells_to_run(cells)
        if not included:
            reasons = "; ".join(f"{cell.name}: {cell.excluded[0]}" for cell in cells)
            raise HostLacksError(f"no host takes any of these SLOs: {reasons}", hint="gatekeeper fleet plan shows more")
        for cell in cells:
            if cell.excluded:
                say(f"{cell.name}: not run: {'; '.join(cell.excluded)}")
        say(f"{show_count(len(included), 'run')} on {show_count(len(looks), 'host')}")
        record = FleetRecord(started=_find_start(runs, cells, resume=resume), cells=_with_results(cells, {}))
        write_record(runs, record)
        pause_s = PAUSE_S if retries else 0.0
        tasks = [CellTask(cell, runs, record.started, tuple(options), pause_s) for cell in included]
        results: dict[str, CellResult] = {}

        def end(name: str, result: CellResult) -> None:
            results[name] = result
            because = f": {result.error}" if result.error else ""
            say(f"{name}: {write_as_words(result.outcome) or 'no verdict'} (exit code {result.exit_code}){because}")

        dispatch.run_cells(tasks, lambda name, line: say(f"{name}: {line}"), end, retries=retries, scheduler=scheduler)
        ended = _with_results(cells, results)
        policies = write_common_policies(runs, [cell for cell in ended if not cell.excluded])
        now = stamp(SystemClock().wall())
        record = FleetRecord(started=record.started, ended=now, cells=ended, policies=policies)
        write_record(runs, record)
        document = fleet_document(record)
        write_atomically(runs / "fleet.html", render_page(document))
        write_atomically(runs / "fleet.md", render_markdown(document))
        return record


def _with_results(cells: Sequence[Cell], results: dict[str, CellResult]) -> tuple[FleetCell, ...]:
    return tuple(FleetCell(**dict(cell), result=results.get(cell.name)) for cell in cells)


@contextmanager
def _lock(runs: Path) -> Iterator[None]:
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


def _find_start(runs: Path, cells: Sequence[Cell], *, resume: bool) -> str:
    """Return when the fleet started: that of the one in *runs* where it is continued, else now.

    The run of a cell is named after it, so a run of an earlier fleet is no answer to this one.
    """
    now = stamp(SystemClock().wall())
    earlier = read_record(runs)
    if earlier is None:
        return now
    is_same = {cell.name for cell in earlier.cells} == {cell.name for cell in cells}
    if resume or (earlier.ended is None and is_same):
        return earlier.started
    (runs / FILE).rename(runs / f"fleet-{earlier.started.replace(':', '')}.json")
    return now
