"""A fleet's answer as text, Markdown and one HTML page: outcomes by SLO and host, and whether like hosts differ."""

from collections.abc import Iterator, Mapping
from typing import Any

from gatekeeper.core.text import aligned, counted
from gatekeeper.core.units import show_bytes, show_seconds
from gatekeeper.report.html.markup import Markup, el, join, section, table

SIGNS = {"promoted": "✓", "graded_back": "▽", "failed": "✗", "unproven": "?"}
STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:0 auto;padding:2rem 1rem}"
    "h1,li{overflow-wrap:anywhere}h1{font-size:1.5rem}h2{font-size:1.2rem}h2 a{color:inherit;text-decoration:none}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.4rem .6rem;"
    "border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}.scroll{overflow-x:auto}"
)

Document = Mapping[str, Any]


def plan_text(plan: Document) -> str:
    """Return the plan of a fleet: its hosts, its cells, and why the others are not run."""
    hosts: list[tuple[str, ...]] = [("host", "chip", "memory", "os", "free disk", "needed", "time", "")]
    for name, one in plan["hosts"].items():
        memory = show_bytes(one["memory_bytes"]) if one["memory_bytes"] else "-"
        disk = (show_bytes(one["free_bytes"]), show_bytes(one["needs_bytes"]))
        facts = (one["chip"] or "-", memory, one["os"] or "-", *(disk if not one["error"] else ("-", "-")))
        remarks = [one["error"], f"busy: {one['running']}" if one["running"] else ""]
        remarks.append("too little free disk" if one["enough_disk"] is False else "")
        hosts.append((name, *facts, show_seconds(one["expected_seconds"]), "; ".join(filter(None, remarks))))
    cells = [one for one in plan["cells"] if not one["excluded"]]
    rows: list[tuple[str, ...]] = [("SLO", "host", "expected", "needs")]
    rows += [(one["slo"], one["host"], show_seconds(one["expected_seconds"]), ", ".join(one["needs"])) for one in cells]
    lines = [*aligned(hosts), "", *aligned(rows)]
    lines += [""] + [
        f"not on {one['host']}: {one['slo']}: {'; '.join(one['excluded'])}" for one in plan["cells"] if one["excluded"]
    ]
    longest, whole = show_seconds(plan["expected_seconds"]), show_seconds(plan["expected_host_seconds"])
    lines.append(f"{counted(len(cells), 'run')}, about {longest} with all hosts at once, {whole} of host time")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def headline(fleet: Document) -> str:
    """Return the answer in one sentence."""
    taken = [one for one in fleet["cells"] if one["state"] != "excluded"]
    outcomes = [_outcome(one) for one in taken]
    parts = [f"{outcomes.count(word)} {word.replace('_', ' ')}" for word in dict.fromkeys(outcomes)]
    return f"{counted(len(taken), 'run')}: {', '.join(parts)} (exit code {fleet['exit_code']})"


def text(fleet: Document) -> str:
    """Return the answer for a terminal."""
    rows: list[tuple[str, ...]] = [("SLO", "host", "outcome", "against plain decoding")]
    rows += [_row(one) for one in fleet["cells"] if one["state"] != "excluded"]
    remarks = [*_errors(fleet), *_remarks(fleet)]
    return "\n".join([*aligned(rows), *([""] if remarks else []), *remarks, "", headline(fleet)]) + "\n"


def markdown(fleet: Document) -> str:
    """Return the answer for a job's page: one row an SLO, one column a host."""
    from gatekeeper.report.markdown import plain  # noqa: PLC0415 (it needs numpy, which most commands do not)
    from gatekeeper.report.markdown import table as markdown_table  # noqa: PLC0415

    heads, rows = _matrix(fleet)
    cells = [tuple(plain(cell) for cell in row) for row in rows]
    blocks = [f"### {plain(headline(fleet))}", markdown_table(tuple(plain(head) for head in heads), cells)]
    remarks = [f"- {plain(one)}" for one in (*_errors(fleet), *_remarks(fleet))]
    return "\n\n".join([*blocks, *(["\n".join(remarks)] if remarks else [])]) + "\n"


def html(fleet: Document) -> str:
    """Return the answer as one page that loads nothing."""
    heads, rows = _matrix(fleet, ratios=False)  # on a phone four hosts fit; the ratios follow by run
    remarks = [el("li", one) for one in _remarks(fleet)]
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
    own = [_row(one) for one in fleet["cells"] if one["state"] != "excluded"]
    each = el("div", table(("SLO", "host", "outcome", "against plain decoding"), own, "cells"), **{"class": "scroll"})
    errors = [el("li", one) for one in _errors(fleet)]
    body = el(
        "body",
        el("h1", headline(fleet)),
        el("p", f"Started {fleet['started']}, ended {fleet['ended'] or 'not yet'}"),
        section("SLOs and hosts", matrix),
        section("Runs", each),
        section("Without a verdict", el("ul", join(*errors))) if errors else None,
        section("Hosts of one chip", el("ul", join(*remarks))) if remarks else None,
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _outcome(cell: Document) -> str:
    if cell["state"] != "done":
        return str(cell["state"])
    return str(cell["outcome"] or "no verdict")


def _ratios(cell: Document) -> str:
    parts = []
    for name, one in cell.get("workloads", {}).items():
        ratio = one["ratio"]
        shown = f"{ratio['center']:.2f}x [{ratio['lo']:.2f}, {ratio['hi']:.2f}]" if ratio else one["outcome"]
        parts.append(f"{name} {shown if one['outcome'] == 'promoted' else one['outcome'].replace('_', ' ')}")
    return "; ".join(parts)


def _row(cell: Document) -> tuple[str, ...]:
    demo = " (demo)" if cell.get("grade") == "demo" else ""
    return cell["slo"], cell["host"], _outcome(cell).replace("_", " ") + demo, _ratios(cell)


def _matrix(fleet: Document, *, ratios: bool = True) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    hosts = list(dict.fromkeys(str(one["host"]) for one in fleet["cells"]))
    slos = list(dict.fromkeys(str(one["slo"]) for one in fleet["cells"]))
    found = {(one["slo"], one["host"]): one for one in fleet["cells"]}
    rows = [(slo, *(_shown(found.get((slo, host)), ratios=ratios) for host in hosts)) for slo in slos]
    return ("SLO", *hosts), rows


def _shown(cell: Document | None, *, ratios: bool) -> str:
    if cell is None or cell["state"] == "excluded":
        return "-"
    outcome = _outcome(cell)
    found = _ratios(cell) if ratios else ""
    sign = SIGNS.get(outcome, "…" if cell["state"] == "open" else "!")
    return f"{sign} {outcome.replace('_', ' ')}{f': {found}' if found else ''}"


def _errors(fleet: Document) -> Iterator[str]:
    """Yield why a run gave no verdict, once for all hosts with the same reason."""
    names: dict[str, list[str]] = {}
    for one in fleet["cells"]:
        if one.get("error"):
            reason = "; ".join(filter(None, (" ".join(one["error"].split()), one["hint"])))
            names.setdefault(reason, []).append(one["name"])
    for reason, own in names.items():
        yield f"{', '.join(own)}: {reason}"


def _remarks(fleet: Document) -> Iterator[str]:
    for one in fleet["alike"]:
        pair = " and ".join(one["hosts"])
        for name, seen in one["workloads"].items():
            yield f"{one['slo']}, {name}: {pair} ({one['chip']}): {_contrast(seen)}"
        if one["differences"]:
            yield f"{one['slo']}: {pair} differ in {'; '.join(one['differences'])}"


def _contrast(seen: Document) -> str:
    if "quotient" not in seen:
        return f"{seen['says']}: {seen['because']}"
    return f"{seen['says']}: {seen['quotient']:.2f}x apart [{seen['lo']:.2f}, {seen['hi']:.2f}]"
