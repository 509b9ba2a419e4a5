"""A capacity as text: what is proven, and every probe of both arms."""

from collections.abc import Iterator

from gatekeeper.analysis.verdict.run_verdict import Verdict
from gatekeeper.analysis.verdict.stream_capacity import StreamCapacity
from gatekeeper.core.text import aligned, counted
from gatekeeper.core.units import show
from gatekeeper.report.data.capacity_curves import sentences


def render(verdict: Verdict) -> str:
    """Return the capacities of all workloads; empty where none was measured."""
    measured = ((workload.name, workload.capacity) for workload in verdict.workloads)
    return "".join(
        f"{line}\n" for name, capacity in measured if capacity is not None for line in _workload(name, capacity)
    )


def _workload(name: str, capacity: StreamCapacity) -> Iterator[str]:
    yield f"Capacity of {name}, {counted(capacity.answers, 'answer')}"
    yield ""
    yield from (f"  {sentence}" for sentence in sentences(capacity))
    yield ""
    arms = {"plain": capacity.plain, "draft": capacity.draft}
    rows = [
        [
            arm,
            str(level.streams),
            measured.word(level),
            show(level.speed, "tok/s") if level.speed is not None else "",
            level.because,
        ]
        for arm, measured in arms.items()
        if measured is not None
        for level in measured.levels
    ]
    yield from (f"  {line.rstrip()}" for line in aligned([["arm", "streams", "", "all streams", ""], *rows]))
