"""The memory of the host over a stretch of time: its headroom, its pressure and its swap."""

from collections.abc import Sequence

from gatekeeper.analysis.metrics.host_series import Series, Spans, finite, longest, medians, series
from gatekeeper.analysis.metrics.host_throttling import backwards
from gatekeeper.core.records import HostSample
from gatekeeper.core.verdict import Estimate, Missing, fact

CRITICAL = 4.0
"""The pressure level that the host itself calls critical."""

HEADROOM_WINDOW = 10.0
"""Seconds of one median of headroom: a dip shorter than half of it is not a floor."""

TOOL_DIFFERENCE = 0.15
"""How far two tools may differ about the share of memory in use before one of them is wrong about the page size."""


def estimate(
    name: str, samples: Sequence[HostSample], *, interval: float, spans: Spans | None = None
) -> Estimate | Missing:
    """Return one metric of the memory, over whatever stretch the samples are of."""
    if name == "memory_headroom" and (contradicted := contradiction(samples)):
        return Missing(contradicted)
    sampled, read = _READ[name]
    return read(series(samples, sampled, interval=interval, spans=spans))


def _headroom(headroom: Series) -> Estimate | Missing:
    """Lowest median of ten seconds, over all segments."""
    lows = [median for part in headroom.segments for median in medians(part, HEADROOM_WINDOW)]
    return headroom.uncovered() or fact(min(lows), headroom.seen)


def _pressure(level: Series) -> Estimate | Missing:
    """Longest continuous run of critical pressure in seconds."""
    return level.uncovered() or fact(max(longest(part, at_least=CRITICAL) for part in level.segments), level.seen)


def _growth(swap: Series) -> Estimate | Missing:
    """Sum of last minus first of each segment if swap never fell, else 0: swap that falls again is not a leak."""
    if missing := swap.uncovered():
        return missing
    if backwards(swap):
        return fact(0.0, swap.seen, "swap fell at least once")
    return fact(sum(part[-1].value - part[0].value for part in swap.segments), swap.seen)


_READ = {
    "memory_headroom": ("memory_headroom", _headroom),
    "memory_pressure_critical": ("memory_pressure_level", _pressure),
    "swap_growth": ("swap_used", _growth),
}
"""The sampled value of each metric of the memory, and what is read off it."""

METRICS = tuple(_READ)


def contradiction(samples: Sequence[HostSample]) -> str:
    """Say that vm_stat and memory_pressure disagree about the memory in use, as under a wrong page size; else empty."""
    gaps = []
    for sample in samples:
        names = ("memory_free_share", "memory_wired", "memory_compressed", "memory_total")
        share, wired, compressed, total = (finite(sample.values.get(name)) for name in names)
        if share is not None and wired is not None and compressed is not None and total:
            gaps.append(abs(share - (1 - (wired + compressed) / total)))
    if not gaps or sorted(gaps)[len(gaps) // 2] <= TOOL_DIFFERENCE:
        return ""
    return "vm_stat and memory_pressure disagree about the memory in use: a wrong page size, or Rosetta"
