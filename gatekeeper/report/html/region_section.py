"""The certified region on the page: a map of each pair of axes, the conditions, and every probed point."""

from gatekeeper.analysis.verdict.certified_region import CertifiedRegion
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.text import describe_point
from gatekeeper.report.data.region_map import RegionGrid, conditions, grids
from gatekeeper.report.html.markup import Markup, el, join, note, section, table

KINDS = {"certified": "promoted", "inside": "promoted", "outside": "failed", "open": "unproven"}
"""The colours of the outcomes, by the class of a pill."""
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
        el("p", "; ".join(conditions(region))),
        *(_grid(grid) for grid in grids(region)),
        el("details", el("summary", "Probed points"), table(heads, rows, "probes")) if rows else None,
        note(f"Proven at the certified point alone: {', '.join(alone)}") if alone else None,
        el("p", region.because) if region.because is not None else None,
    )


def _grid(grid: RegionGrid) -> Markup:
    heads = (f"{grid.down} \\ {grid.across}" if grid.down else grid.across, *(f"{value:g}" for value in grid.columns))
    rows = [
        (f"{value:g}" if grid.down else "", *(_pill(cell) for cell in cells))
        for value, cells in zip(grid.rows, grid.cells, strict=True)
    ]
    return table(heads, rows, "region")


def _pill(outcome: str) -> Markup:
    return el("span", outcome, class_=f"pill {KINDS[outcome]}")
