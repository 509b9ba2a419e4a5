"""The region: probes around what was promoted, at the end of a run, which say how far each route reaches."""

from collections.abc import Iterator

from gatekeeper.analysis.passes.definition import FinalPass, RunAhead
from gatekeeper.analysis.plan.region_points import Point, box_corners, certified_point, directions, point_plan
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.core.records import Generation, Tie

REGION = "region.jsonl"
"""The answers at all points of all workloads."""
REGION_TIES = "region-ties.jsonl"
"""The near-ties of greedy answers at these points."""


def _forecast(run: RunAhead) -> Iterator[float]:
    """Count the first look at every value of each axis, and at the corners of the box: as if all were inside."""
    slo, plan, canaries = run.costs.slo, run.plan, run.costs.canaries
    if plan.fixed or not slo.region.axes:
        return
    for name, knobs in run.settings.items():
        if not speculates(knobs):
            continue
        ways = directions(slo, certified_point(slo, knobs, canaries[name], None))
        along: list[Point] = [((way.axis, value),) for way in ways for value in way.values[-way.most_probes :]]
        for point in (*along, *box_corners({way: len(way.values) for way in ways})):
            shares = plan.shares_process
            planned = point_plan(slo, name, knobs, canaries[name], point, seed=plan.seed, shares=shares)
            for request in (request for block in planned.blocks(0, plan.seed) for request in block):
                yield run.costs.answering(name, request.canary, request.setting) / planned.streams


PASS = FinalPass(
    name="region",
    title="region, if one look decides each point",
    files={REGION: Generation, REGION_TIES: Tie},
    forecast=_forecast,
    is_planned=lambda slo: bool(slo.region.axes),
)
