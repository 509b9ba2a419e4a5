"""A fleet's answer as text and Markdown: outcomes by SLO and host, and whether like hosts differ."""

from collections.abc import Iterator, Mapping

from gatekeeper.analysis.verdict.run_verdict import outcome_words
from gatekeeper.core.text import aligned, counted
from gatekeeper.core.units import show_bytes, show_seconds
from gatekeeper.fleet.fleet_cell import CellWorkload, FleetCell
from gatekeeper.fleet.fleet_json import Fleet
from gatekeeper.fleet.fleet_plan import FleetPlan, PlannedHost
from gatekeeper.fleet.host_pairs import RatioContrast
from gatekeeper.report.phrases import GLYPHS, spaced

COLUMNS = ("SLO", "host", "outcome", "against plain decoding")
NO_VERDICT = "no_verdict"
"""Said of a run that ended without an outcome."""


def plan_text(plan: FleetPlan) -> str:
    """Return the plan of a fleet: its hosts, its cells, and why the others are not run."""
    hosts = [("host", "chip", "memory", "os", "time", "")]
    hosts += [_host_row(name, host) for name, host in plan.hosts.items()]
    silent = plan.unanswered
    runs = [cell for cell in plan.cells if not cell.excluded and cell.host not in silent]
    rows = [("SLO", "host", "expected", "needs")]
    rows += [(cell.slo, cell.host, show_seconds(round(cell.seconds)), ", ".join(cell.needs)) for cell in runs]
    lines = [*aligned(hosts), "", *(aligned(rows) if runs else ["no run can begin"]), ""]
    lines += [f"not on {cell.host}: {cell.slo}: {'; '.join(cell.excluded)}" for cell in plan.cells if cell.excluded]
    longest, total = show_seconds(round(plan.expected_s)), show_seconds(round(plan.expected_host_s))
    lines.append(f"{counted(len(runs), 'run')}, about {longest} with all hosts at once, {total} of host time")
    if silent:
        answer = f"no answer from {', '.join(silent)}: each SLO stays unproven there"
        lines.append(f"{answer}; reach {'it' if len(silent) == 1 else 'them'}, or name the other hosts with --only")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _host_row(name: str, host: PlannedHost) -> tuple[str, str, str, str, str, str]:
    look = host.look
    memory = look.facts.get("memory_bytes")
    return (
        name,
        look.facts.get("chip") or "-",
        show_bytes(memory) if memory else "-",
        look.facts.get("os") or "-",
        "-" if look.error else show_seconds(round(host.expected_s)),
        look.error or (f"busy: {look.running}" if look.running else ""),
    )


def headline(fleet: Fleet) -> str:
    """Return the answer in one sentence."""
    outcomes = [outcome(cell) for cell in fleet.included]
    parts = [f"{outcomes.count(word)} {spaced(word)}" for word in dict.fromkeys(outcomes)]
    return f"{counted(len(outcomes), 'run')}: {', '.join(parts)}"


def _last_line(fleet: Fleet) -> str:
    return f"{headline(fleet)} (exit code {fleet.exit_code:d})"


def text(fleet: Fleet) -> str:
    """Return the answer for a terminal."""
    rows = [COLUMNS, *map(_row, fleet.included)]
    notes = [*errors(fleet), *remarks(fleet)]
    return "\n".join([*aligned(rows), *([""] if notes else []), *notes, "", _last_line(fleet)]) + "\n"


def markdown(fleet: Fleet) -> str:
    """Return the answer for a job's page: one row an SLO, one column a host."""
    from gatekeeper.report.markdown import plain, table  # noqa: PLC0415 (it needs numpy, which most commands do not)

    heads, rows = _matrix(fleet)
    cells = [tuple(plain(cell) for cell in row) for row in rows]
    blocks = [f"### {plain(_last_line(fleet))}", table(tuple(plain(head) for head in heads), cells)]
    notes = [f"- {plain(line)}" for line in (*errors(fleet), *remarks(fleet))]
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else [])]) + "\n"


def outcome(cell: FleetCell) -> str:
    """Return the outcome of a run; `no_verdict` where it ended without one, `open` or `excluded` before."""
    return cell.state if cell.done is None else cell.done.outcome or NO_VERDICT


def _ended(cell: FleetCell) -> str:
    return outcome_words(outcome(cell), [workload.outcome for workload in cell.workloads.values()])


def speeds(cell: FleetCell) -> list[str]:
    """Return the speed of each workload against plain decoding, or its outcome where it does not speculate."""
    return [f"{name} {_ratio(workload)}" for name, workload in cell.workloads.items()]


def _ratio(workload: CellWorkload) -> str:
    ratio = workload.speed_up
    if workload.outcome != "promoted" or ratio is None:
        return spaced(workload.outcome)
    return f"{ratio.center:.2f}x [{ratio.lo:.2f}, {ratio.hi:.2f}]"


def _row(cell: FleetCell) -> tuple[str, str, str, str]:
    demo = " (demo)" if cell.is_demo else ""
    return cell.cell.slo, cell.cell.host, _ended(cell) + demo, "; ".join(speeds(cell))


Places = Mapping[tuple[str, str], FleetCell]
"""The cells by their SLO and host."""


def places(fleet: Fleet) -> tuple[list[str], list[str], Places]:
    """Return the hosts, the SLOs, and the cell of each SLO on each host where there is one."""
    hosts = list(dict.fromkeys(cell.cell.host for cell in fleet.cells))
    slos = list(dict.fromkeys(cell.cell.slo for cell in fleet.cells))
    return hosts, slos, {(cell.cell.slo, cell.cell.host): cell for cell in fleet.cells}


def _matrix(fleet: Fleet) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and a row for each SLO, with a cell for each host."""
    hosts, slos, by_place = places(fleet)
    return ("SLO", *hosts), [(slo, *(_sign(by_place.get((slo, host))) for host in hosts)) for slo in slos]


def _sign(cell: FleetCell | None) -> str:
    if cell is None or cell.state == "excluded":
        return "-"
    word, figures = outcome(cell), "; ".join(speeds(cell))
    sign = GLYPHS.get(word, "…" if cell.state == "open" else "!")
    return f"{sign} {_ended(cell)}{f': {figures}' if figures else ''}"


def errors(fleet: Fleet) -> Iterator[str]:
    """Yield why a run gave no verdict, once for all hosts with the same reason."""
    names: dict[str, list[str]] = {}
    for cell in fleet.cells:
        if cell.done is not None and cell.done.error:
            reason = "; ".join(filter(None, (" ".join(cell.done.error.split()), cell.done.hint)))
            names.setdefault(reason, []).append(cell.name)
    for reason, cells in names.items():
        yield f"{', '.join(cells)}: {reason}"


def remarks(fleet: Fleet) -> Iterator[str]:
    """Yield whether hosts of one chip differ, and in what."""
    for pair in fleet.alike:
        hosts = " and ".join(pair.hosts)
        for name, contrast in pair.workloads.items():
            yield f"{pair.slo}, {name}: {hosts} ({pair.chip}): {_contrast(contrast)}"
        if pair.differences:
            yield f"{pair.slo}: {hosts} differ in {'; '.join(pair.differences)}"


def _contrast(contrast: RatioContrast) -> str:
    if contrast.quotient is None:
        return f"{contrast.says}: {contrast.because}"
    return f"{contrast.says}: {contrast.quotient:.2f}x apart [{contrast.lo:.2f}, {contrast.hi:.2f}]"
