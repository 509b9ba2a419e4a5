"""Throttled time: what the thermal sensors report, and whether a second source confirms it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gatekeeper.analysis.metrics.host_series import (
    HostSamples,
    Part,
    Series,
    increase,
    medians,
    readings,
)
from gatekeeper.core.verdict import Estimate, Missing, fact

NOMINAL = "the thermal sensors report no throttling"
THROTTLED = 2.0
"""Levels from "heavy" up are throttled; 1, "moderate", is degraded."""

BUSY = 0.95
"""Share of active time from which a GPU counts as fully busy, so that its power and frequency can be compared."""

LEAST_SHARE = {"gpu_frequency": 0.85, "gpu_power": 0.70}
"""Lowest share of the run's own best that counts as steady: power varies with the work, frequency with the heat."""

WINDOW = 10.0
"""Seconds of one median that is compared."""

BLOCK = 60.0
"""Seconds of one median that may be the reference."""

SENSOR_LAG = 10.0
"""Seconds for which two thermal sensors may differ: one lags behind the other."""

MIN_BUSY_READINGS = 10
"""Busy readings needed in each third of the soak: a GPU that was busy early shows nothing about the end."""


@dataclass(frozen=True, slots=True)
class GpuSpeed:
    """What the GPU's speed shows about throttling."""

    steady: tuple[str, ...]
    """Values that held throughout."""
    fell: tuple[str, ...]
    """Values that fell below their reference while the GPU was busy."""


def throttle_time(host: HostSamples) -> Estimate | Missing:
    """Return the seconds throttled. Zero counts only if a second source confirms it; see docs/host.md."""
    seconds = _by_sensors(host)
    if isinstance(seconds, Missing) or seconds.center > 0:
        return seconds
    if against := contradictions(host):
        return Missing(f"{NOMINAL}, but {'; '.join(against)}", seconds.n)
    if steady := gpu_speed(host).steady:
        return fact(0.0, seconds.n, f"confirmed by the GPU: {' and '.join(steady)} steady")
    if host.baseline_held:
        return fact(0.0, seconds.n, "confirmed by plain decoding, whose speed was steady")
    return Missing(
        f"{NOMINAL}, but nothing confirms it: that takes the frequency or power of a busy GPU, or baseline requests at "
        "a steady speed",
        seconds.n,
    )


def throttle_time_by_sensors(host: HostSamples) -> Estimate | Missing:
    """Return the seconds throttled as the sensors alone report them, in production.

    There a second source is rare: a GPU is seldom busy all the time, and other work needs other power. The guards on
    speed catch what throttling costs; sensors that contradict each other count as missing data.
    """
    seconds = _by_sensors(host)
    if isinstance(seconds, Missing) or seconds.center > 0:
        return seconds
    if against := _sensors_against(host):
        return Missing(f"{NOMINAL}, but {'; '.join(against)}", seconds.n)
    return fact(0.0, seconds.n, "by the thermal sensors alone")


def _by_sensors(host: HostSamples) -> Estimate | Missing:
    """Return the seconds throttled by the thermal level where there is one, else by the kernel's counters."""
    level, events = host.series("thermal_level"), host.series("throttle_events")
    if events.segments and not level.segments:
        return _by_counter(host.series("throttle_total"), events)
    if missing := level.uncovered():
        return missing
    return fact(float(sum(level.lasts[level.values >= THROTTLED].tolist())), level.seen)


def _by_counter(total: Series, events: Series) -> Estimate | Missing:
    count = increase(events)
    if isinstance(count, Missing) or (count.center == 0 and not total.segments):
        return count
    seconds = increase(total)
    if isinstance(seconds, Missing):
        return Missing(f"{count.center:g} throttle events of unknown length: {seconds.because}", count.n)
    # An event that is too short for the clock still counts.
    return seconds if seconds.center > 0 or count.center == 0 else fact(1e-3 * count.center, count.n)


def contradictions(host: HostSamples) -> list[str]:
    """Return what contradicts a thermal level that was never raised."""
    found = [f"{name} fell while the GPU was busy" for name in gpu_speed(host).fell]
    if host.baseline_held is False:
        found.append("plain decoding changed its speed")
    return found + _sensors_against(host)


def _sensors_against(host: HostSamples) -> list[str]:
    """Return which other thermal sensors contradict a level that was never raised."""
    found = []
    first, second = (readings(host.columns, f"thermal_level{end}").numbers for end in ("", "_powermetrics"))
    both = np.isfinite(first) & np.isfinite(second)
    differing = host.interval * int(np.sum(((first >= THROTTLED) != (second >= THROTTLED)) & both))
    if differing > SENSOR_LAG:
        found.append(f"notifyutil and powermetrics reported different thermal levels for {differing:.0f} s")
    if any(limit < 1.0 for limit in host.numbers("cpu_speed_limit")):
        found.append("pmset reported a CPU speed limit")
    return found


def gpu_speed(host: HostSamples) -> GpuSpeed:
    """Compare the busy GPU's frequency and power, in medians of ten seconds, with the best minute of the same run.

    Frequency is also compared with earlier samples of the run; power is not, since other work takes other power.
    """
    steady, fell = [], []
    for name, least in LEAST_SHARE.items():
        parts = _busy(host, name)
        before = _busy(HostSamples(host.earlier, host.interval), name) if name == "gpu_frequency" else []
        blocks = [middle for part in (*parts, *before) for middle in _blocks(part)]
        if not blocks:
            continue
        lowest = least * max(blocks)
        windows = [middle for part in parts for middle in medians(part, WINDOW, least=5)]
        if any(middle < lowest for middle in windows):
            fell.append(name)
        elif windows and _throughout(host, parts):
            steady.append(name)
    return GpuSpeed(tuple(steady), tuple(fell))


def _busy(host: HostSamples, name: str) -> list[Part]:
    """Return the readings of *name* while the GPU was busy, by segment; a segment without any is left out."""
    active, values = (readings(host.columns, one).numbers for one in ("gpu_active", name))
    at = np.array(host.columns.at_ns, dtype=np.int64) / 1e9
    busy = (active >= BUSY) & np.isfinite(values)
    parts = [places[busy[places]] for places in host.segments().values()]
    return [Part(at[some], values[some], np.zeros(len(some))) for some in parts if len(some)]


def _blocks(part: Part) -> list[float]:
    return medians(part, max(WINDOW, min(BLOCK, float(part.at[-1] - part.at[0]) / 3)), least=5)


def _throughout(host: HostSamples, parts: Sequence[Part]) -> bool:
    """Return whether there are busy readings in each third of the soak, each segment on its own clock."""
    at = np.array(host.columns.at_ns, dtype=np.int64) / 1e9
    busy = np.isin(at[np.concatenate(list(host.segments().values()))], np.concatenate([part.at for part in parts]))
    third = -(-len(busy) // 3)
    thirds = [busy[start : start + third] for start in range(0, len(busy), third)]
    return len(thirds) == 3 and all(part.sum() >= min(MIN_BUSY_READINGS, len(part)) for part in thirds)
