"""The page of a fleet: its runs as the history shows them, failures first, SLOs by host, and whether hosts differ."""

from collections.abc import Iterator
from pathlib import PurePath

from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.text import counted
from gatekeeper.fleet import fleet_report
from gatekeeper.fleet.fleet_cell import FleetCell
from gatekeeper.fleet.fleet_json import WORST_FIRST, Fleet
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.html.markup import NONE, Markup, el, facts, join, note, section, table
from gatekeeper.report.html.page import document
from gatekeeper.report.html.page_parts import page_head, pill, run_link

HEADS = ("Run", "Outcome", "Speed against plain decoding", "Failed or open")
KINDS = {ExitCode.OK: "promoted", ExitCode.UNPROVEN: "unproven"}
"""The sign and the colour of the head; those of a failed fleet for every other exit code."""


def render(fleet: Fleet) -> str:
    """Return the answer as one page that loads nothing; it lies in the folder of the runs, to which it links."""
    hosts, slos, by_place = fleet_report.places(fleet)
    about = (
        ("Started", readable_time(fleet.started)),
        ("Ended", readable_time(fleet.ended) if fleet.ended else "not yet"),
        ("Covers", f"{counted(len(slos), 'SLO')} on {counted(len(hosts), 'host')}"),
        ("Exit code", f"{fleet.exit_code:d}"),
    )
    kind = "running" if fleet.ended is None else KINDS.get(fleet.exit_code, "failed")
    head = page_head("fleet", fleet_report.headline(fleet), facts(about, "facts"), kind=kind)
    parts = [section("Runs", table(HEADS, map(_row, sorted(fleet.cells, key=_order)), "nights"))]
    if len(hosts) > 1 and len(slos) > 1:
        rows = [(slo, *(_sign(by_place.get((slo, host))) for host in hosts)) for slo in slos]
        parts.append(section("SLOs and hosts", table(("SLO", *hosts), rows, "plainly")))
    if remarks := [el("li", line) for line in fleet_report.remarks(fleet)]:
        parts.append(section("Hosts of one chip", el("ul", *remarks, class_="events")))
    return document("gatekeeper: fleet", head, parts)


def _order(cell: FleetCell) -> tuple[bool, int]:
    """Order the worst first, what has not ended before what passed, and what is not run at the end."""
    code = ExitCode.UNPROVEN if cell.done is None else ExitCode(cell.done.exit_code)
    return cell.state == "excluded", WORST_FIRST.index(code)


def _row(cell: FleetCell) -> tuple[Markup, ...]:
    name = f"{cell.cell.slo} on {cell.cell.host}"
    run = PurePath(cell.done.run).name if cell.done is not None else ""
    title = run_link(run, name) if cell.verdict is not None else name
    return (
        join(el("strong", title), note(run) if run else None),
        join(_sign(cell), note("demo") if cell.is_demo else None),
        join(*map(note, fleet_report.speeds(cell))) or NONE,
        join(*map(note, _reasons(cell))) or NONE,
    )


def _sign(cell: FleetCell | None) -> Markup:
    if cell is None:
        return NONE
    outcome = fleet_report.outcome(cell)
    if outcome == "excluded":
        return pill(outcome, "not run", title="; ".join(cell.cell.excluded))
    return pill(outcome, kind="failed" if outcome == fleet_report.NO_VERDICT else "")


def _reasons(cell: FleetCell) -> Iterator[str]:
    """Yield why it was not run, gave no verdict, or does not speculate."""
    yield from cell.cell.excluded
    if cell.done is not None and cell.done.error:
        yield from filter(None, (" ".join(cell.done.error.split()), cell.done.hint))
    for name, workload in cell.workloads.items():
        may_be_off = workload.outcome == "graded_back" and not workload.required
        if workload.outcome != "promoted" and not may_be_off and workload.because:
            yield f"{name}: {workload.because}"
