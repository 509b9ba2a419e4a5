"""The page of a fleet: SLOs and hosts, each run, what gave no verdict, and whether hosts of one chip differ."""

from gatekeeper.fleet import fleet_report
from gatekeeper.fleet.answer import Fleet
from gatekeeper.report.html.markup import el, section, table
from gatekeeper.report.html.page import document, page_head


def render(fleet: Fleet) -> str:
    """Return the answer as one page that loads nothing."""
    times = el("p", f"Started {fleet.started}, ended {fleet.ended or 'not yet'}", class_="dim")
    head = page_head("fleet", fleet_report.headline(fleet), times)
    heads, rows = fleet_report.matrix(fleet, ratios=False)  # on a phone four hosts fit; the ratios follow by run
    wide, label = table(heads, rows, "plainly"), "SLOs and hosts"
    parts = [
        section(label, el("div", wide, class_="scroll", tabindex="0", role="region", aria_label=label)),
        section("Runs", table(fleet_report.COLUMNS, map(fleet_report.row, fleet.included), "plainly")),
    ]
    for title, lines in (
        ("Without a verdict", fleet_report.errors(fleet)),
        ("Hosts of one chip", fleet_report.remarks(fleet)),
    ):
        items = [el("li", line) for line in lines]
        parts += [section(title, el("ul", *items, class_="events"))] if items else []
    return document("gatekeeper: fleet", head, parts)
