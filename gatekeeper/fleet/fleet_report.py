"""A fleet's answer as text, Markdown and one HTML page: outcomes by SLO and host, and whether like hosts differ."""

from collections.abc import Iterator

from gatekeeper.core.text import aligned, counted
from gatekeeper.core.units import show_bytes, show_seconds
from gatekeeper.fleet.answer import Fleet
from gatekeeper.fleet.fleet_cell import CellWorkload, FleetCell
from gatekeeper.fleet.fleet_plan import FleetPlan, PlannedHost
from gatekeeper.fleet.host_pairs import RatioContrast
from gatekeeper.report.html.markup import Markup, el, join, section, table

SIGNS = {"promoted": "✓", "graded_back": "▽", "failed": "✗", "unproven": "?"}
STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:0 auto;padding:2rem 1rem}"
    "h1,li{overflow-wrap:anywhere}h1{font-size:1.5rem}h2{font-size:1.2rem}h2 a{color:inherit;text-decoration:none}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.4rem .6rem;"
    "border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}.scroll{overflow-x:auto}"
)

COLUMNS = ("SLO", "host", "outcome", "against plain decoding")


def plan_text(plan: FleetPlan) -> str:
    """Return the plan of a fleet: its hosts, its cells, and why the others are not run."""
    hosts = [("host", "chip", "memory", "os", "free disk", "needed", "time", "")]
    hosts += [_host_row(name, host) for name, host in plan.hosts.items()]
    runs = [cell for cell in plan.cells if not cell.excluded]
    rows = [("SLO", "host", "expected", "needs")]
    rows += [(cell.slo, cell.host, show_seconds(round(cell.seconds)), ", ".join(cell.needs)) for cell in runs]
    lines = [*aligned(hosts), "", *aligned(rows), ""]
    lines += [f"not on {cell.host}: {cell.slo}: {'; '.join(cell.excluded)}" for cell in plan.cells if cell.excluded]
    longest, total = show_seconds(round(plan.expected_s)), show_seconds(round(plan.expected_host_s))
    lines.append(f"{counted(len(runs), 'run')}, about {longest} with all hosts at once, {total} of host time")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _host_row(name: str, host: PlannedHost) -> tuple[str, str, str, str, str, str, str, str]:
    look = host.look
    memory, disk = look.facts.get("memory_bytes"), (show_bytes(look.free_bytes), show_bytes(host.needed_bytes))
    remarks = [
        look.error,
        f"busy: {look.running}" if look.running else "",
        "too little free disk" if host.has_enough_disk is False else "",
    ]
    return (
        name,
        look.facts.get("chip") or "-",
        show_bytes(memory) if memory else "-",
        look.facts.get("os") or "-",
        *(disk if not look.error else ("-", "-")),
        show_seconds(round(host.expected_s)),
        "; ".join(filter(None, remarks)),
    )


def headline(fleet: Fleet) -> str:
    """Return the answer in one sentence."""
    outcomes = [_outcome(cell) for cell in fleet.included]
    parts = [f"{outcomes.count(word)} {word.replace('_', ' ')}" for word in dict.fromkeys(outcomes)]
    return f"{counted(len(outcomes), 'run')}: {', '.join(parts)} (exit code {fleet.exit_code:d})"


def text(fleet: Fleet) -> str:
    """Return the answer for a terminal."""
    rows = [COLUMNS, *map(_row, fleet.included)]
    remarks = [*_errors(fleet), *_remarks(fleet)]
    return "\n".join([*aligned(rows), *([""] if remarks else []), *remarks, "", headline(fleet)]) + "\n"


def markdown(fleet: Fleet) -> str:
    """Return the answer for a job's page: one row an SLO, one column a host."""
    from gatekeeper.report.markdown import plain  # noqa: PLC0415 (it needs numpy, which most commands do not)
    from gatekeeper.report.markdown import table as markdown_table  # noqa: PLC0415

    heads, rows = _matrix(fleet)
    cells = [tuple(plain(cell) for cell in row) for row in rows]
    blocks = [f"### {plain(headline(fleet))}", markdown_table(tuple(plain(head) for head in heads), cells)]
    remarks = [f"- {plain(remark)}" for remark in (*_errors(fleet), *_remarks(fleet))]
    return "\n\n".join([*blocks, *(["\n".join(remarks)] if remarks else [])]) + "\n"


def html(fleet: Fleet) -> str:
    """Return the answer as one page that loads nothing."""
    heads, rows = _matrix(fleet, ratios=False)  # on a phone four hosts fit; the ratios follow by run
    remarks = [el("li", remark) for remark in _remarks(fleet)]
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", "gatekeeper: fleet"),
        el("style", Markup(STYLE)),
    )
    matrix = el("div", table(heads, rows, "fleet"), **{"class": "scroll"})
    runs = el("div", table(COLUMNS, [_row(cell) for cell in fleet.included], "cells"), **{"class": "scroll"})
    errors = [el("li", error) for error in _errors(fleet)]
    body = el(
        "body",
        el("h1", headline(fleet)),
        el("p", f"Started {fleet.started}, ended {fleet.ended or 'not yet'}"),
        section("SLOs and hosts", matrix),
        section("Runs", runs),
        section("Without a verdict", el("ul", join(*errors))) if errors else None,
        section("Hosts of one chip", el("ul", join(*remarks))) if remarks else None,
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _outcome(cell: FleetCell) -> str:
    return cell.state if cell.done is None else cell.done.outcome or "no verdict"


def _ratios(cell: FleetCell) -> str:
    return "; ".join(f"{name} {_ratio(workload)}" for name, workload in cell.workloads.items())


def _ratio(workload: CellWorkload) -> str:
    ratio = workload.speed_up
    if workload.outcome != "promoted" or ratio is None:
        return workload.outcome.replace("_", " ")
    return f"{ratio.center:.2f}x [{ratio.lo:.2f}, {ratio.hi:.2f}]"


def _row(cell: FleetCell) -> tuple[str, str, str, str]:
    demo = " (demo)" if cell.verdict is not None and cell.verdict.grade == "demo" else ""
    return cell.cell.slo, cell.cell.host, _outcome(cell).replace("_", " ") + demo, _ratios(cell)


def _matrix(fleet: Fleet, *, ratios: bool = True) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    hosts = list(dict.fromkeys(cell.cell.host for cell in fleet.cells))
    slos = list(dict.fromkeys(cell.cell.slo for cell in fleet.cells))
    by_place = {(cell.cell.slo, cell.cell.host): cell for cell in fleet.cells}
    rows = [(slo, *(_sign(by_place.get((slo, host)), ratios=ratios) for host in hosts)) for slo in slos]
    return ("SLO", *hosts), rows


def _sign(cell: FleetCell | None, *, ratios: bool) -> str:
    if cell is None or cell.state == "excluded":
        return "-"
    outcome, figures = _outcome(cell), _ratios(cell) if ratios else ""
    sign = SIGNS.get(outcome, "…" if cell.state == "open" else "!")
    return f"{sign} {outcome.replace('_', ' ')}{f': {figures}' if figures else ''}"


def _errors(fleet: Fleet) -> Iterator[str]:
    """Yield why a run gave no verdict, once for all hosts with the same reason."""
    names: dict[str, list[str]] = {}
    for cell in fleet.cells:
        if cell.done is not None and cell.done.error:
            reason = "; ".join(filter(None, (" ".join(cell.done.error.split()), cell.done.hint)))
            names.setdefault(reason, []).append(cell.name)
    for reason, cells in names.items():
        yield f"{', '.join(cells)}: {reason}"


def _remarks(fleet: Fleet) -> Iterator[str]:
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
