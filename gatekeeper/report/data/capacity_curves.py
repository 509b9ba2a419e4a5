"""The capacity of a workload as a report shows it: in sentences, and latency by streams, a curve an arm."""

from collections.abc import Iterator
from dataclasses import dataclass

from gatekeeper.analysis.stats.stream_search import Reach
from gatekeeper.analysis.verdict.stream_capacity import ArmCapacity, Gain, MeasuredLatency, StreamCapacity
from gatekeeper.core.text import counted


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The latency of one arm with some streams."""

    streams: int
    latency: MeasuredLatency
    word: str
    """What is proven with so many."""


@dataclass(frozen=True, slots=True)
class CapacityCurves:
    """The objective that comes nearest to its bound, or farthest beyond it, in both arms."""

    metric: str
    bound: float
    arms: dict[str, tuple[CurvePoint, ...]]
    """`plain` and `candidate`, the fewest streams first."""


def curves(capacity: StreamCapacity) -> CapacityCurves | None:
    """Return the curves of the tightest objective; None where no latency was measured."""
    arms = {"plain": capacity.plain, "candidate": capacity.draft}
    levels = [level for arm in arms.values() if arm is not None for level in arm.levels]
    tightest = max(
        (latency for level in levels if (latency := level.tightest) is not None),
        key=lambda latency: latency.center / latency.bound,
        default=None,
    )
    if tightest is None:
        return None
    points = {arm: _points(measured, tightest.metric) for arm, measured in arms.items() if measured is not None}
    return CapacityCurves(tightest.metric, tightest.bound, points)


def _points(arm: ArmCapacity, metric: str) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(level.streams, latency, arm.word(level))
        for level in arm.levels
        for latency in level.latencies
        if latency.metric == metric
    )


def sentences(capacity: StreamCapacity) -> Iterator[str]:
    """Yield what is proven: of plain decoding, of the draft, and where one overtakes the other."""
    yield f"Plain decoding: {_kept(capacity.plain.reach, capacity.tried)}."
    if capacity.draft is not None:
        yield f"With the draft: {_kept(capacity.draft.reach, capacity.tried)}."
        yield _crossing(capacity.gain, capacity.draft.reach.least)
    if capacity.because is not None:
        yield f"{capacity.because}."


def _kept(reach: Reach, tried: int) -> str:
    """Write how many streams keep the objectives."""
    if reach.least == 0:
        proven = "no number of streams is proven to keep every objective"
        return proven if reach.most is None else f"{proven}, and more than {reach.most} break one"
    if reach.least == tried:
        return f"all {counted(tried, 'stream')} that were tried keep every objective"
    kept = f"up to {counted(reach.least, 'stream')} keep every objective"
    if reach.most is None:
        return f"{kept}; more are open"
    return f"{kept}, and no more" if reach.least == reach.most else f"{kept}, perhaps {reach.most}, and no more"


def _crossing(gain: Gain | None, kept: int) -> str:
    if gain is None:
        return "So no number of streams is proven to speculate, but for the soak's own."
    faster = f"The draft is proven faster with up to {counted(gain.reach.least, 'stream')}"
    if gain.reach.most is None:
        return f"{faster}." if gain.reach.least == kept else f"{faster}; with more it is open."
    overtaken = f"plain decoding overtakes it with {gain.reach.most + 1}"
    return f"{faster}; {overtaken}." if gain.reach.least else f"The draft is not proven faster; {overtaken}."
