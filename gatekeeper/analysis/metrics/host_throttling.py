"""Throttled time: what the thermal sensors report, and whether a second source confirms it."""

from collections.abc import Sequence
from dataclasses import dataclass

from gatekeeper.analysis.metrics.host_series import (
    HostSamples,
    Point,
    Series,
    by_segment,
    finite,
    increase,
    medians,
)
from gatekeeper.core.records import HostSample
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
    """Return the seconds throttled. Zero counts only if a second source confirms it; see METHODOLOGY."""
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
    if events.points and not level.points:
        return _by_counter(host.series("throttle_total"), events)
    if missing := level.uncovered():
        return missing
    return fact(sum(point.lasts for point in level.points if point.value >= THROTTLED), level.seen)


def _by_counter(total: Series, events: Series) -> Estimate | Missing:
    count = increase(events)
    if isinstance(count, Missing) or (count.center == 0 and not total.points):
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
        found.append("plain decoding slowed down")
    return found + _sensors_against(host)


def _sensors_against(host: HostSamples) -> list[str]:
    """Return which other thermal sensors contradict a level that was never raised."""
    found = []
    differing = host.interval * sum(map(_sensors_differ, host.samples))
    if differing > SENSOR_LAG:
        found.append(f"notifyutil and powermetrics reported different thermal levels for {differing:.0f} s")
    if any(limit < 1.0 for limit in host.numbers("cpu_speed_limit")):
        found.append("pmset reported a CPU speed limit")
    return found


def _sensors_differ(sample: HostSample) -> bool:
    first, second = (finite(sample.values.get(f"thermal_level{end}")) for end in ("", "_powermetrics"))
    return first is not None and second is not None and (first >= THROTTLED) != (second >= THROTTLED)


def gpu_speed(host: HostSamples) -> GpuSpeed:
    """Compare the busy GPU's frequency and power, in medians of ten seconds, with the best minute of the same run.

    Frequency is also compared with earlier samples of the run; power is not, since other work takes other power.
    """
    steady, fell = [], []
    for name, least in LEAST_SHARE.items():
        parts = [_busy(part, name) for part in by_segment(host.samples).values()]
        earlier = host.earlier if name == "gpu_frequency" else ()
        before = [_busy(part, name) for part in by_segment(earlier).values()]
        blocks = [middle for part in (*parts, *before) for middle in _blocks(part)]
        if not blocks:
            continue
        lowest = least * max(blocks)
        windows = [middle for part in parts for middle in medians(part, WINDOW, least=5)]
        if any(middle < lowest for middle in windows):
            fell.append(name)
        elif windows and _throughout(host.samples, parts):
            steady.append(name)
    return GpuSpeed(tuple(steady), tuple(fell))


def _busy(samples: Sequence[HostSample], name: str) -> list[Point]:
    found = []
    for sample in samples:
        active, value = finite(sample.values.get("gpu_active")), finite(sample.values.get(name))
        if active is not None and value is not None and active >= BUSY:
            found.append(Point(sample.at_ns / 1e9, value, 0.0))
    return found


def _blocks(part: Sequence[Point]) -> list[float]:
    return medians(part, max(WINDOW, min(BLOCK, (part[-1].at - part[0].at) / 3)), least=5) if part else []


def _throughout(samples: Sequence[HostSample], parts: Sequence[Sequence[Point]]) -> bool:
    """Return whether there are busy readings in each third of the soak, each segment on its own clock."""
    busy = {point.at for part in parts for point in part}
    ordered = [sample for part in by_segment(samples).values() for sample in part]
    third = -(-len(ordered) // 3)
    thirds = [ordered[start : start + third] for start in range(0, len(ordered), third)] if third else []
    return len(thirds) == 3 and all(
        sum(sample.at_ns / 1e9 in busy for sample in part) >= min(MIN_BUSY_READINGS, len(part)) for part in thirds
    )
