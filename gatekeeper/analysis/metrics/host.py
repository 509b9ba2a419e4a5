"""Estimates of the host metrics from the samples of one soak."""

from collections.abc import Callable

import numpy as np

from gatekeeper.analysis.metrics.host_series import (
    HostSamples,
    Series,
    decrease,
    increase,
    longest,
    medians,
    readings,
)
from gatekeeper.analysis.metrics.host_throttling import throttle_time
from gatekeeper.analysis.stats.trend import slope
from gatekeeper.core.metrics import ALL, BY_NAME
from gatekeeper.core.verdict import Estimate, Missing, fact

CRITICAL = 4.0
"""The pressure level that the system calls critical."""

HEADROOM_WINDOW = 10.0
"""Seconds of one median of headroom: a dip shorter than half of it does not count."""

TOOL_DIFFERENCE = 0.15
"""Two tools that differ more about the share of memory in use disagree about the page size."""


def estimates(host: HostSamples, *, tokens: int | None, level: float, seed: int) -> dict[str, Estimate | Missing]:
    """Return every host metric of one soak with *tokens* output tokens, None where that is unknown."""
    found = {name: estimate(name, host) for name in _READ} | {
        "throttle_time": throttle_time(host),
        "footprint_growth": _slope(host.series("subject_footprint"), level, seed),
        "energy_per_token": _energy(host.series("package_power"), tokens),
    }
    return {metric.name: found[metric.name] for metric in ALL if metric.host}


def estimate(name: str, host: HostSamples) -> Estimate | Missing:
    """Return a metric that needs one sampled value, over the time of the samples."""
    if name == "memory_headroom" and (contradicted := memory_contradiction(host)):
        return Missing(contradicted)
    return _READ[name](host.series(BY_NAME[name].samples[0]))


def memory_contradiction(host: HostSamples) -> str:
    """Describe vm_stat and memory_pressure disagreeing about the memory in use; empty where they agree."""
    names = ("memory_free_share", "memory_wired", "memory_compressed", "memory_total")
    share, wired, compressed, total = (readings(host.columns, name).numbers for name in names)
    total = np.where(total == 0, np.nan, total)
    gaps = np.abs(share - (1 - (wired + compressed) / total))
    gaps = np.sort(gaps[~np.isnan(gaps)])
    if not len(gaps) or gaps[len(gaps) // 2] <= TOOL_DIFFERENCE:
        return ""
    return "vm_stat and memory_pressure disagree about the memory in use (wrong page size, or Rosetta)"


def _headroom(headroom: Series) -> Estimate | Missing:
    """Return the lowest median of ten seconds, over all segments."""
    lows = [median for part in headroom.segments for median in medians(part, HEADROOM_WINDOW)]
    return headroom.uncovered() or fact(min(lows), headroom.seen)


def _pressure(level: Series) -> Estimate | Missing:
    """Return the longest continuous time of critical pressure in seconds."""
    return level.uncovered() or fact(max(longest(part, at_least=CRITICAL) for part in level.segments), level.seen)


def _swap_growth(swap: Series) -> Estimate | Missing:
    """Return the sum of last minus first of each segment; 0 if swap ever fell, because then it is not a leak."""
    fell = not swap.uncovered() and decrease(swap)
    return fact(0.0, swap.seen, "swap fell at least once") if fell else increase(swap)


def _peak(footprint: Series) -> Estimate | Missing:
    return footprint.uncovered() or fact(float(footprint.values.max()), footprint.seen)


def _slope(footprint: Series, level: float, seed: int) -> Estimate | Missing:
    """Return the Theil-Sen slope over the last segment, because a resumed run has a new process."""
    if missing := footprint.uncovered():
        return missing
    last = footprint.segments[-1]
    found = slope(last.at.tolist(), last.values.tolist(), level=level, seed=seed)
    return found or Missing(f"{footprint.name}: too few readings for a slope: {len(last.at)}", len(last.at))


def _range(fan: Series) -> Estimate | Missing:
    return fan.uncovered() or fact(float(fan.values.max() - fan.values.min()), fan.seen)


def _power(power: Series) -> Estimate | Missing:
    """Return the mean over time: each reading counts for the seconds until the next one."""
    if missing := power.uncovered():
        return missing
    seconds = sum(power.lasts.tolist())
    return fact(_joules(power) / seconds, power.seen) if seconds > 0 else Missing("no time passed", power.seen)


def _energy(power: Series, tokens: int | None) -> Estimate | Missing:
    if missing := power.uncovered():
        return missing
    if not tokens:
        return Missing("the number of output tokens is unknown" if tokens is None else "no tokens were generated")
    return fact(_joules(power) / tokens, power.seen)


def _joules(power: Series) -> float:
    return float(sum((power.values * power.lasts).tolist()))


_READ: dict[str, Callable[[Series], Estimate | Missing]] = {
    "memory_headroom": _headroom,
    "memory_pressure_critical": _pressure,
    "swapin_bytes": increase,
    "swapout_bytes": increase,
    "swap_growth": _swap_growth,
    "footprint_peak": _peak,
    "fan_variation": _range,
    "power_mean": _power,
}
