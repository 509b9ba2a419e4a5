"""Throttling: what the host's sensors say of it, and whether a second witness agrees."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gatekeeper.analysis.metrics.host_series import Point, Series, Spans, by_segment, finite, medians, series
from gatekeeper.core.records import HostSample
from gatekeeper.core.verdict import Estimate, Missing, fact

THROTTLED = 2.0
"""Levels from "heavy" up are throttled; 1, "moderate", is degraded."""

BUSY = 0.95
"""Share of active time from which a GPU is taken for fully busy, so that its power and frequency can be compared."""

LEAST_SHARE = {"gpu_frequency": 0.85, "gpu_power": 0.70}
"""How far each may fall below the run's own baseline: power varies with the work, frequency with the heat."""

WINDOW = 10.0
"""Seconds of one median that is compared."""

BLOCK = 60.0
"""Seconds of one median that may be the baseline."""

SENSOR_LAG = 10.0
"""Seconds for which two thermal sensors may differ: one follows the other."""

MIN_BUSY_READINGS = 10
"""Busy readings needed in each third of the soak: a witness who left early saw nothing."""


@dataclass(frozen=True, slots=True)
class GpuSpeed:
    """What the GPU's own speed says beside the thermal sensors."""

    steady: tuple[str, ...]
    """Values that held throughout."""
    fell: tuple[str, ...]
    """Values that fell below their baseline while the GPU was busy."""


def throttle_time(
    samples: Sequence[HostSample],
    *,
    interval: float,
    spans: Spans | None,
    sentinels_held: bool | None,
    earlier: Sequence[HostSample] = (),
) -> Estimate | Missing:
    """Return the seconds throttled. Zero is believed only with a second witness that held steady; see METHODOLOGY."""
    seconds = _told(samples, interval=interval, spans=spans)
    if isinstance(seconds, Missing) or seconds.center > 0:
        return seconds
    if against := contradictions(samples, sentinels_held, interval=interval, earlier=earlier):
        return Missing("the thermal sensors say nominal, but " + "; ".join(against), seconds.n)
    witness = gpu_speed(samples, earlier=earlier)
    if witness.steady:
        return fact(0.0, seconds.n, f"second witness: {' and '.join(witness.steady)} held steady")
    if sentinels_held:
        return fact(0.0, seconds.n, "second witness: the sentinels held their speed")
    return Missing(
        "a thermal zero needs a second witness: frequency or power of a busy GPU, or sentinels that held their speed",
        seconds.n,
    )


def throttle_time_by_sensors(
    samples: Sequence[HostSample], *, interval: float, spans: Spans | None
) -> Estimate | Missing:
    """Return the seconds throttled by the sensors' own word, in production.

    There no witness stands beside them: a GPU is seldom busy throughout, and other work takes other power. What
    throttling costs is guarded by the speed; here sensors that contradict each other are missing evidence.
    """
    seconds = _told(samples, interval=interval, spans=spans)
    if isinstance(seconds, Missing) or seconds.center > 0:
        return seconds
    if against := _sensors_against(samples, interval):
        return Missing("the thermal sensors say nominal, but " + "; ".join(against), seconds.n)
    return fact(0.0, seconds.n, "by the thermal sensors alone")


def _told(samples: Sequence[HostSample], *, interval: float, spans: Spans | None) -> Estimate | Missing:
    """Return the seconds throttled as the sensors tell them, by level where there is one, else by counters."""
    level = series(samples, "thermal_level", interval=interval, spans=spans)
    total = series(samples, "throttle_total", interval=interval, spans=spans)
    events = series(samples, "throttle_events", interval=interval, spans=spans)
    return _by_level(level) if level.points or not events.points else _by_counter(total, events)


def _by_level(level: Series) -> Estimate | Missing:
    if missing := level.uncovered():
        return missing
    return fact(sum(point.lasts for point in level.points if point.value >= THROTTLED), level.seen)


def _by_counter(total: Series, events: Series) -> Estimate | Missing:
    counted = delta(events)
    if isinstance(counted, Missing) or (counted.center == 0 and not total.points):
        return counted
    seconds = delta(total)
    if isinstance(seconds, Missing):
        return Missing(
            f"{counted.center:g} throttle events, and no clock of their length: {seconds.because}", counted.n
        )
    # An event too short for the clock's grain is an event all the same.
    return seconds if seconds.center > 0 or counted.center == 0 else fact(1e-3 * counted.center, counted.n)


def delta(counter: Series) -> Estimate | Missing:
    """Return how far a cumulative counter moved within the segments, from the soak's own start."""
    if missing := counter.uncovered():
        return missing
    if fell := backwards(counter):
        return Missing(f"{counter.name} {fell}", counter.seen)
    return fact(sum(part[-1].value - part[0].value for part in counter.segments), counter.seen)


def backwards(counter: Series) -> str:
    """Say where a cumulative counter fell within a segment; empty where it never did."""
    for part in counter.segments:
        for before, after in pairwise(part):
            if after.value < before.value:
                moved = f"from {before.value:.0f} to {after.value:.0f}"
                return f"went backwards, {moved}: a restart, or a counter that wrapped"
    return ""


def contradictions(
    samples: Sequence[HostSample],
    sentinels_held: bool | None,
    *,
    interval: float,
    earlier: Sequence[HostSample] = (),
) -> list[str]:
    """Return what speaks against a thermal level that was never raised."""
    found = [f"{name} of a busy GPU fell below its own baseline" for name in gpu_speed(samples, earlier=earlier).fell]
    if sentinels_held is False:
        found.append("the sentinels slowed down")
    return found + _sensors_against(samples, interval)


def _sensors_against(samples: Sequence[HostSample], interval: float) -> list[str]:
    """Return which other sensors of heat speak against a level that was never raised."""
    found = []
    differing = _differing(samples, interval)
    if differing > SENSOR_LAG:
        found.append(f"notifyutil and powermetrics told different thermal levels for {differing:.0f} s")
    limits = [finite(sample.values.get("cpu_speed_limit")) for sample in samples]
    if any(limit is not None and limit < 1.0 for limit in limits):
        found.append("pmset told of a CPU speed limit")
    return found


def _differing(samples: Sequence[HostSample], interval: float) -> float:
    count = 0
    for sample in samples:
        first, second = (finite(sample.values.get(f"thermal_level{end}")) for end in ("", "_powermetrics"))
        if first is not None and second is not None:
            count += (first >= THROTTLED) != (second >= THROTTLED)
    return count * interval


def gpu_speed(samples: Sequence[HostSample], *, earlier: Sequence[HostSample] = ()) -> GpuSpeed:
    """Compare the busy GPU's frequency and power, in medians of ten seconds, with the best minute of the same run.

    Frequency is also compared with *earlier* samples of the run; power is not, since other work takes other power.
    """
    steady, fell = [], []
    for name, least in LEAST_SHARE.items():
        parts = [_busy(part, name) for part in by_segment(samples).values()]
        before = [_busy(part, name) for part in by_segment(earlier).values()] if name == "gpu_frequency" else []
        blocks = [median for part in (*parts, *before) for median in _blocks(part)]
        if not blocks:
            continue
        baseline = max(blocks)
        windows = [median for part in parts for median in medians(part, WINDOW, least=5)]
        if any(median < least * baseline for median in windows):
            fell.append(name)
        elif windows and _throughout(samples, parts):
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
    """Tell whether the busy readings reach from the soak's beginning to its end, each segment on its own clock."""
    busy = {point.at for part in parts for point in part}
    ordered = [sample for part in by_segment(samples).values() for sample in part]
    third = -(-len(ordered) // 3)
    thirds = [ordered[start : start + third] for start in range(0, len(ordered), third)] if third else []
    return len(thirds) == 3 and all(
        sum(sample.at_ns / 1e9 in busy for sample in part) >= min(MIN_BUSY_READINGS, len(part)) for part in thirds
    )
