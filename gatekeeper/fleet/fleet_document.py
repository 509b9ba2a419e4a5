"""The answer of a fleet for people: its runs, the worst first, with the reasons of those without a verdict."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from gatekeeper.analysis.verdict.run_verdict import outcome_words
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.text import show_count
from gatekeeper.core.units import show_ratio
from gatekeeper.fleet.fleet_record import NO_VERDICT, WORST_FIRST, FleetCell, FleetRecord
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.outcome_signs import write_as_words
from gatekeeper.report.shown_document import (
    Content,
    Document,
    Facts,
    Listing,
    Node,
    Remarks,
    RunLink,
    Section,
    Sign,
    Strong,
    Table,
)

HEADS = ("Run", "Outcome", "Speed against plain decoding", "Failed or open")
KINDS = {ExitCode.OK: "promoted", ExitCode.UNPROVEN: "unproven"}
"""The sign and the colour of the headline; those of a failed fleet for every other exit code."""


def fleet_document(record: FleetRecord, following: Sequence[Node] = ()) -> Document:
    """Return the answer, which lies in the folder of the runs, so that it links to their reports; then *following*."""
    slos, hosts = ({cell.slo for cell in record.cells}, {cell.host for cell in record.cells})
    facts = Facts(
        (
            ("Started", readable_time(record.started)),
            ("Ended", readable_time(record.ended) if record.ended else "not yet"),
            ("Covers", f"{show_count(len(slos), 'SLO')} on {show_count(len(hosts), 'host')}"),
            ("Exit code", f"{record.exit_code:d}"),
        )
    )
    cells = [_row(cell) for cell in sorted(record.cells, key=_order)]
    sections = [Section("Runs", (Table(HEADS, cells, "nights"),))]
    if record.policies:
        policies = Listing([f"{slo}: {policy}" for slo, policy in record.policies.items()])
        sections.append(Section("One policy for all hosts", (policies,)))
    outcome = "running" if record.ended is None else KINDS.get(record.exit_code, "failed")
    return Document("fleet", _headline(record), (facts, *sections, *following), outcome=outcome)


def _headline(record: FleetRecord) -> str:
    """Return the answer in one sentence."""
    outcomes = [cell.outcome for cell in record.included]
    parts = [f"{outcomes.count(word)} {write_as_words(word)}" for word in dict.fromkeys(outcomes)]
    return f"{show_count(len(outcomes), 'run')}: {', '.join(parts)} (exit code {record.exit_code:d})"


def _order(cell: FleetCell) -> tuple[bool, int]:
    """Order the worst first, what has not ended before what passed, and what is not run at the end."""
    return bool(cell.excluded), WORST_FIRST.index(ExitCode(cell.exit_code))


def _row(cell: FleetCell) -> tuple[Content, ...]:
    name = f"{cell.slo} on {cell.host}"
    run = PurePath(cell.result.run).name if cell.result is not None else ""
    ended = "not run" if cell.excluded else outcome_words(cell.outcome, [work.outcome for work in cell.workloads])
    sign = Sign(cell.outcome, ended, "failed" if cell.outcome == NO_VERDICT else "")
    return (
        RunLink(name, run) if cell.workloads else Strong(name),
        (sign, Remarks(("demo",))) if cell.is_demo else sign,
        Remarks(tuple(_speeds(cell))),
        Remarks(tuple(_reasons(cell))),
    )


def _speeds(cell: FleetCell) -> Iterator[str]:
    """Yield the speed of each workload against plain decoding, or its outcome where it does not speculate."""
    for workload in cell.workloads:
        speed = write_as_words(workload.outcome) if workload.ratio is None else show_ratio(*workload.ratio)
        yield f"{workload.name} {speed}"


def _reasons(cell: FleetCell) -> Iterator[str]:
    """Yield why it was not run, gave no verdict, or does not speculate."""
    yield from cell.excluded
    if cell.result is not None and cell.result.error:
        yield from filter(None, (" ".join(cell.result.error.split()), cell.result.hint))
    for workload in cell.workloads:
        if workload.outcome != "promoted" and workload.because:
            yield f"{workload.name}: {workload.because}"
