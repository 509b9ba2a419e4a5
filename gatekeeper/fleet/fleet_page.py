"""The page of a fleet: one table of its runs, the worst first, each with a link to its report."""

from collections.abc import Iterator
from pathlib import PurePath

from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.text import counted
from gatekeeper.fleet.fleet_record import NO_VERDICT, WORST_FIRST, FleetCell, FleetRecord, describe_speeds, headline
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.html.markup import NONE, Markup, el, facts, join, note, section, table
from gatekeeper.report.html.page import document
from gatekeeper.report.html.page_parts import page_head, pill, run_link

HEADS = ("Run", "Outcome", "Speed against plain decoding", "Failed or open")
KINDS = {ExitCode.OK: "promoted", ExitCode.UNPROVEN: "unproven"}
"""The sign and the colour of the head; those of a failed fleet for every other exit code."""


def render(record: FleetRecord) -> str:
    """Return the answer as one page that loads nothing; it lies in the folder of the runs, to which it links."""
    slos, hosts = ({cell.slo for cell in record.cells}, {cell.host for cell in record.cells})
    about = (
        ("Started", readable_time(record.started)),
        ("Ended", readable_time(record.ended) if record.ended else "not yet"),
        ("Covers", f"{counted(len(slos), 'SLO')} on {counted(len(hosts), 'host')}"),
        ("Exit code", f"{record.exit_code:d}"),
    )
    kind = "running" if record.ended is None else KINDS.get(record.exit_code, "failed")
    head = page_head("fleet", headline(record), facts(about, "facts"), kind=kind)
    parts = [section("Runs", table(HEADS, map(_row, sorted(record.cells, key=_order)), "nights"))]
    if record.policies:
        policies = [el("li", f"{slo}: {policy}") for slo, policy in record.policies.items()]
        parts.append(section("One policy for all hosts", el("ul", *policies, class_="events")))
    return document("gatekeeper: fleet", head, parts)


def _order(cell: FleetCell) -> tuple[bool, int]:
    """Order the worst first, what has not ended before what passed, and what is not run at the end."""
    return bool(cell.excluded), WORST_FIRST.index(ExitCode(cell.exit_code))


def _row(cell: FleetCell) -> tuple[Markup, ...]:
    name = f"{cell.slo} on {cell.host}"
    run = PurePath(cell.result.run).name if cell.result is not None else ""
    title = run_link(run, name) if cell.workloads else name
    sign = pill(cell.outcome, "not run" if cell.excluded else "", kind="failed" if cell.outcome == NO_VERDICT else "")
    return (
        join(el("strong", title), note(run) if run else None),
        join(sign, note("demo") if cell.is_demo else None),
        join(*map(note, describe_speeds(cell))) or NONE,
        join(*map(note, _reasons(cell))) or NONE,
    )


def _reasons(cell: FleetCell) -> Iterator[str]:
    """Yield why it was not run, gave no verdict, or does not speculate."""
    yield from cell.excluded
    if cell.result is not None and cell.result.error:
        yield from filter(None, (" ".join(cell.result.error.split()), cell.result.hint))
    for workload in cell.workloads:
        if workload.outcome != "promoted" and workload.because:
            yield f"{workload.name}: {workload.because}"
