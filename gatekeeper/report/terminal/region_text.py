"""A certified region as text: a map of each pair of axes, the conditions, and why points are not inside."""

from collections.abc import Iterator

from gatekeeper.analysis.verdict.certified_region import CertifiedRegion
from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.core.text import aligned, counted, describe_point
from gatekeeper.core.verdict import Outcome
from gatekeeper.report.data.region_map import MARKS, RegionGrid, conditions, grids

LEGEND = "= certified by the soak   + inside: proven   x outside: proven broken   ? open: plain decoding"


def render(verdict: Verdict) -> str:
    """Return the regions of all workloads, or why there are none."""
    regions = {workload.name: workload.region for workload in verdict.workloads if workload.region is not None}
    if not regions:
        return "no certified region: the SLO has no [region], or no workload was promoted\n"
    parts = [line for name, region in regions.items() for line in _workload(name, region)]
    return "\n".join([*parts, LEGEND]) + "\n"


def _workload(name: str, region: CertifiedRegion) -> Iterator[str]:
    yield f"Certified region of {name}, {counted(region.answers, 'answer')}"
    yield ""
    for grid in grids(region):
        yield from (f"  {line}" for line in _grid(grid))
        yield ""
    yield from (f"  {line}" for line in conditions(region))
    for probe in region.points:
        if probe.outcome is not Outcome.PASS:
            yield f"  {probe.word} at {describe_point(dict(probe.point))}: {probe.because}"
    if region.soak_alone:
        yield f"  proven at the certified point alone: {', '.join(region.soak_alone)}"
    if region.because is not None:
        yield f"  {region.because}"
    yield ""


def _grid(grid: RegionGrid) -> list[str]:
    """Return the lines of a grid: the values of one axis down, those of the other one across."""
    if grid.down is None:
        row = (f"{MARKS[cell]} {value:g}" for value, cell in zip(grid.columns, grid.cells[0], strict=True))
        return ["   ".join((grid.across, *row))]
    head = [f"{grid.down} \\ {grid.across}", *(f"{value:g}" for value in grid.columns)]
    rows = [
        [f"{value:g}", *(MARKS[cell] for cell in cells)] for value, cells in zip(grid.rows, grid.cells, strict=True)
    ]
    return [line.rstrip() for line in aligned([head, *rows])]
