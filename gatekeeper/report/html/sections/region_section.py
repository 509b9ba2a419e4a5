"""The certified region on the page: a map of each pair of axes, the conditions, and every probed point."""

from gatekeeper.analysis.verdict.certified_region import CertifiedRegion
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.text import condition_value, describe_point
from gatekeeper.report.data.region_map import RegionGrid, conditions, grids
from gatekeeper.report.html.markup import Markup, el, join, note, section, table
from gatekeeper.report.html.page_parts import pill

KINDS = {"certified": "promoted", "inside": "promoted", "outside": "failed", "open": "unproven"}
"""The outcomes of a run whose sign and colour they have."""
ABOUT = (
    "Around the point that was soaked, both arms answered the same canaries at further points. Inside: every objective "
    "is proven there. Outside: one is proven broken. Open: neither. Drafting is on inside; elsewhere decoding is plain."
)


def regions(verdict: Verdict) -> Markup | None:
    """Return the section; None where no workload has a region."""
    blocks = [
        _workload(workload.name, workload.region) for workload in verdict.workloads if workload.region is not None
    ]
    return section("Certified region", *blocks, about=ABOUT) if blocks else None


def _workload(name: str, region: CertifiedRegion) -> Markup:
    heads = ("Point", "Outcome", "Because", "Answers")
    rows = [
        (describe_point(dict(probe.point)), _pill(probe.word), probe.because, str(probe.answers))
        for probe in region.points
    ]
    alone = region.soak_alone
    return join(
        el("h3", name),
        el("p", "; ".join(conditions(region)).replace("<=", "≤")),
        *(_grid(grid) for grid in grids(region)),
        el("details", el("summary", "Probed points"), table(heads, rows, "probes")) if rows else None,
        note(f"Proven at the certified point alone: {', '.join(alone)}") if alone else None,
        el("p", region.because) if region.because is not None else None,
    )


def _grid(grid: RegionGrid) -> Markup:
    """Return the table of two axes: the values of one across, those of the other down; of a single axis its row."""
    values = [el("th", condition_value(value), scope="col") for value in grid.columns]
    across = el("th", grid.across, scope="colgroup", colspan=len(values))
    heads = [el("tr", across), el("tr", *values)]
    if grid.down:
        heads[0] = el("tr", el("th", grid.down, scope="col", rowspan=2), across)
    rows = []
    for value, cells in zip(grid.rows, grid.cells, strict=True):
        head = el("th", condition_value(value), scope="row") if grid.down else None
        rows.append(el("tr", head, *(el("td", _pill(cell)) for cell in cells)))
    map_of_axes = el("table", el("thead", *heads), el("tbody", *rows), class_="region")
    label = f"{grid.across}{f' and {grid.down}' if grid.down else ''}: what is certified"
    return el("div", map_of_axes, class_="scroll", tabindex="0", role="region", aria_label=label)


def _pill(outcome: str) -> Markup:
    return pill(KINDS[outcome], outcome)
