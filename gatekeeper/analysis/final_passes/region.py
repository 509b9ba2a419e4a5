"""The region: probes around what was promoted, at the end of a run, which say how far each route reaches."""

from collections.abc import Iterator
from dataclasses import replace

from gatekeeper.analysis.final_passes.final_pass import FinalPass, Routes, each_workload
from gatekeeper.analysis.passes.soak_pass import RunAhead
from gatekeeper.analysis.plan.region_points import (
    REGION,
    REGION_TIES,
    Point,
    box_corners,
    certified_point,
    directions,
    point_plan,
)
from gatekeeper.analysis.plan.settings import PLAIN, speculates
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadVerdict
from gatekeeper.core.records import Generation, Setting, Tie


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


def _lacks(case: Case, verdict: Verdict, routes: Routes) -> list[tuple[str, Setting, int | None]]:
    """Return the promoted workloads whose region may be explored: name, setting and longest certified prompt."""
    return [
        (workload.name, routes[workload.name], workload.measured.longest_prompt)
        for workload in (verdict.workloads if case.slo.region.axes else ())
        if speculates(routes.get(workload.name, PLAIN))
    ]


def _judge(case: Case, workload: WorkloadVerdict, route: Setting) -> WorkloadVerdict:
    """Add the region of a promoted workload."""
    if not speculates(route) or not case.slo.region.axes:
        return workload
    from gatekeeper.analysis.final_passes.explored_region import certified_region  # noqa: PLC0415 (few runs have one)

    return replace(workload, region=certified_region(case, workload.name, route, workload.measured.longest_prompt))


PASS = FinalPass(
    name="region",
    title="region, if one look decides each point",
    about="the region",
    files={REGION: Generation, REGION_TIES: Tie},
    forecast=_forecast,
    lacks=_lacks,
    judge=each_workload(_judge),
    is_planned=lambda slo, _: bool(slo.region.axes),
)
