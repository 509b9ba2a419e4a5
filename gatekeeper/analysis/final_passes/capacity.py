"""The capacity: probes of each arm with more and more streams, at the end of a run, until its objectives are broken."""

from collections.abc import Iterator
from dataclasses import replace

from gatekeeper.analysis.final_passes.final_pass import FinalPass, Routes, each_workload
from gatekeeper.analysis.passes.soak_pass import RunAhead
from gatekeeper.analysis.plan.capacity_levels import CAPACITY, latency_objectives, stream_level
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.analysis.verdict.run_verdict import SETTLED, Verdict, WorkloadVerdict
from gatekeeper.core.records import Generation, Setting

FULL_PROBES = 2
"""That a search without noise needs, at most: the last that keeps the objectives, and the one after it."""


def _forecast(run: RunAhead) -> Iterator[float]:
    """Count short probes with twice the streams each time, up to the most that are tried, and full ones there."""
    slo, most = run.costs.slo, run.costs.slo.capacity.streams
    if run.plan.fixed or most is None:
        return
    for name, route in run.settings.items():
        tried = [*(2**power for power in range(most.bit_length()) if 2**power < most), most]
        probes: list[tuple[int, float | None]] = [(streams, None) for streams in tried]
        probes += [(most, (1 - slo.confidence) / 2**number) for number in range(1, FULL_PROBES + 1)]
        for arm in ("plain", "candidate") if speculates(route) else ("plain",):
            for streams, error in probes if latency_objectives(slo, name, arm) else ():
                level = stream_level(slo, name, route, run.costs.canaries[name], arm, streams, seed=run.plan.seed)
                for request in level.requests(streams + level.answers_needed(error)):
                    yield run.costs.answering(name, request.canary, request.setting) / streams


def _lacks(case: Case, verdict: Verdict, routes: Routes) -> list[tuple[str, Setting]]:
    """Return the workloads whose capacity may be measured, each with its setting."""
    return [(workload.name, routes[workload.name]) for workload in verdict.workloads if _has_capacity(case, workload)]


def _has_capacity(case: Case, workload: WorkloadVerdict) -> bool:
    return case.slo.capacity.streams is not None and workload.outcome in SETTLED


def _judge(case: Case, workload: WorkloadVerdict, route: Setting) -> WorkloadVerdict:
    """Add the capacity of a settled workload."""
    if not _has_capacity(case, workload):
        return workload
    from gatekeeper.analysis.final_passes.explored_capacity import LevelCache, explore  # noqa: PLC0415 (few runs have one)
    from gatekeeper.analysis.verdict.stream_capacity import StreamCapacity  # noqa: PLC0415 (as above)

    explored = explore(case, workload.name, route, LevelCache())
    return replace(workload, capacity=explored) if isinstance(explored, StreamCapacity) else workload


PASS = FinalPass(
    name="capacity",
    title="capacity, if every number of streams keeps the objectives, each at the speed of one",
    about="the capacity",
    files={CAPACITY: Generation},
    forecast=_forecast,
    lacks=_lacks,
    judge=each_workload(_judge),
    is_planned=lambda slo, _: slo.capacity.streams is not None,
)
