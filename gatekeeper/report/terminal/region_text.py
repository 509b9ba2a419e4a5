"""A certified region as text: a map of each pair of axes, the conditions, and why points are not inside."""

from collections.abc import Iterator

from gatekeeper.analysis.verdict.certified_region import WORDS, CertifiedRegion
from gatekeeper.analysis.verdict.grown_conversations import GrownConversations
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.text import aligned, condition_value, counted, describe_point
from gatekeeper.core.verdict import Outcome
from gatekeeper.report.data.region_map import MARKS, RegionGrid, conditions, grids
from gatekeeper.report.phrases import end_of_gain

LEGEND = "= certified by the soak   + inside: proven   x outside: proven broken   ? open: plain decoding"


def render(verdict: Verdict) -> str:
    """Return the regions of all workloads, or why there are none."""
    workloads = [workload for workload in verdict.workloads if workload.region is not None]
    if not workloads:
        promoted = any(workload.outcome is WorkloadOutcome.PROMOTED for workload in verdict.workloads)
        reason = "the SLO has no [region], which docs/region.md describes" if promoted else "no workload was promoted"
        return f"no certified region: {reason}\n"
    parts = [line for workload in workloads for line in _workload(workload)]
    return "\n".join([*parts, LEGEND]) + "\n"


def _workload(workload: WorkloadVerdict) -> Iterator[str]:
    region = workload.region or CertifiedRegion((), (), ())
    yield f"Certified region of {workload.name}, {counted(region.answers, 'answer')}"
    yield ""
    if workload.conversations is not None:
        yield from (f"  {line}" for line in _conversation_lines(workload.conversations))
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


def _conversation_lines(grown: GrownConversations) -> Iterator[str]:
    """Return the conversations as lines of text, a line a length."""
    yield end_of_gain(grown)
    for context in grown.bins:
        word, length = WORDS[context.outcome], f"{context.least} to {counted(context.most, 'token')}"
        yield f"{word:<8} {length}: {context.because} ({context.turns} turns)"


def _grid(grid: RegionGrid) -> list[str]:
    """Return the lines of a grid: the values of one axis down, those of the other one across."""
    if grid.down is None:
        row = (
            f"{MARKS[cell]} {condition_value(value)}" for value, cell in zip(grid.columns, grid.cells[0], strict=True)
        )
        return ["   ".join((grid.across, *row))]
    head = [f"{grid.down} \\ {grid.across}", *(condition_value(value) for value in grid.columns)]
    rows = [
        [condition_value(value), *(MARKS[cell] for cell in cells)]
        for value, cells in zip(grid.rows, grid.cells, strict=True)
    ]
    return [line.rstrip() for line in aligned([head, *rows])]
