"""Throttled time: what the thermal sensors report, and whether a second source confirms it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gatekeeper.analysis.metrics.host.host_series import (
    COVERAGE,
    MOST_WATTS,
    Floats,
    HostSamples,
    Part,
    Series,
    increase,
    medians,
    missing_status,
    readings,
    stuck,
)
from gatekeeper.core.judgement import Estimate, Missing, fact
from gatekeeper.core.records.host_columns import HostColumns

NOMINAL = "the thermal sensors report no throttling"
FANLESS = frozenset({
    "Mac14,2", "Mac14,15", "Mac15,12", "Mac15,13", "Mac16,12", "Mac16,13", "Mac17,3", "Mac17,4", "Mac17,5",
})  # fmt: skip
"""MacBook Air M2 to M5, and MacBook Neo; earlier ones say so in their name, later ones are not known here."""
FANLESS_THROTTLED = 1.0
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
IDLE = 0.1
"""Share of active time up to which a GPU counts as idle: drawing a desktop takes a few per cent."""
MIN_IDLE_READINGS = 3
"""Readings whose median is the idle value: one alone may still hold the power of the second before."""
ABOVE_IDLE = {"gpu_frequency": 1.0, "gpu_power": 2.0}
"""Times the idle value that a busy GPU exceeds: at work its power is tens of times as high, its frequency higher."""
POWER = "gpu_power"
"""The sensor without which nothing is confirmed: on some chips gpu_frequency is the requested one, heat or not."""


@dataclass(frozen=True, slots=True)
class GpuSpeed:
    """What the GPU's speed shows about throttling."""

    steady: tuple[str, ...]
    """Values that held throughout, of sensors that work."""
    fell: tuple[str, ...]
    """Values that fell below their reference while the GPU was busy."""
    unusable: tuple[str, ...] = ()
    """Why a sensor confirms nothing, although its value did not fall."""


def throttle_time(host: HostSamples) -> Estimate | Missing:
    """Return the seconds throttled. Zero counts only if a second source confirms it; see docs/host.md."""
    seconds = _by_sensors(host)
    if isinstance(seconds, Missing) or seconds.center > 0:
        return seconds
    if against := contradictions(host):
        return Missing(f"{NOMINAL}, but {'; '.join(against)}", seconds.n)
    speed = gpu_speed(host)
    if speed.steady:
        return fact(0.0, seconds.n, f"confirmed by the GPU: {' and '.join(speed.steady)} steady")
    if host.baseline_held:
        return fact(0.0, seconds.n, "confirmed by plain decoding, whose speed was steady")
    unusable = f" ({'; '.join(speed.unusable)})" if speed.unusable else ""
    return Missing(
        f"{NOMINAL}, but nothing confirms it{unusable}: that takes the power of a busy GPU, or baseline requests at a "
        "steady speed",
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
    if missing := level.check_coverage():
        return missing
    throttled = level.values >= throttled_from(fanless=host.fanless)
    return fact(float(sum(level.lasts[throttled].tolist())), level.count)


def is_fanless(machine: object) -> bool:
    """Return whether a Mac of this model identifier has no fan: `MacBookAir10,1`, `Mac16,12`."""
    return isinstance(machine, str) and (machine.startswith("MacBookAir") or machine in FANLESS)


def throttled_from(*, fanless: bool) -> float:
    """Return the thermal level from which a host counts as throttled: 1 on a Mac without a fan, else 2.

    A MacBook Air M4 read prompts at 253 to 272 tok/s at level 0, and at 105 to 212 at levels 1 and 2.
    """
    return FANLESS_THROTTLED if fanless else THROTTLED


def _by_counter(total: Series, events: Series) -> Estimate | Missing:
    count = increase(events)
    if isinstance(count, Missing) or (count.center == 0 and not total.segments):
        return count
    seconds = increase(total)
    if isinstance(seconds, Missing):
        return Missing(f"{count.center:.0f} throttle events of unknown length: {seconds.because}", count.n)
    # An event that is too short for the clock still counts.
    return seconds if seconds.center > 0 or count.center == 0 else fact(1e-3 * count.center, count.n)


def contradictions(host: HostSamples) -> list[str]:
    """Return what contradicts a thermal level that was never raised."""
    signs = [f"{name} fell while the GPU was busy" for name in gpu_speed(host).fell]
    if host.baseline_held is False:
        signs.append("plain decoding changed its speed")
    return signs + _sensors_against(host)


def _sensors_against(host: HostSamples) -> list[str]:
    """Return how the other thermal sensor contradicts a level that was never raised."""
    first, second = (readings(host.columns, f"thermal_level{end}").numbers for end in ("", "_powermetrics"))
    readable = np.isfinite(first) & np.isfinite(second)
    differing = host.interval * int(np.sum(((first >= THROTTLED) != (second >= THROTTLED)) & readable))
    if differing > SENSOR_LAG:
        return [f"macOS and powermetrics reported different thermal levels for {differing:.0f} s"]
    return []


def gpu_speed(host: HostSamples) -> GpuSpeed:
    """Compare the busy GPU's frequency and power, in medians of ten seconds, with the best minute of the same run.

    Frequency is also compared with earlier samples of the run; power is not, since other work takes other power.
    A sensor must work to confirm anything: see `_defects`.
    """
    steady, fell, unusable = [], [], []
    for name, least in LEAST_SHARE.items():
        defect = next(_defects(host, name), "")
        if defect:
            unusable.append(defect)
        parts = _busy(host, name)
        earlier = HostSamples(host.earlier, host.interval)
        before = _busy(earlier, name) if name == "gpu_frequency" else []
        blocks = [middle for part in (*parts, *before) for middle in _blocks(part)]
        if not blocks:
            continue
        lowest = least * max(blocks)
        windows = [middle for part in parts for middle in medians(part, WINDOW, least=5)]
        if any(middle < lowest for middle in windows):
            fell.append(name)
        elif not defect and windows and _throughout(host, parts):
            steady.append(name)
        elif not defect:
            unusable.append(f"{name}: fewer than {MIN_BUSY_READINGS} readings of a busy GPU in a third of the soak")
    if POWER not in steady:
        unusable += [f"{name} alone may be what was requested, not what ran" for name in steady]
        steady = []
    return GpuSpeed(tuple(steady), tuple(fell), tuple(unusable))


def _defects(host: HostSamples, name: str) -> Iterator[str]:
    """Describe why a GPU sensor measures nothing; none where it works, or where the GPU was not busy.

    One that works is above 0 and clearly above its own idle value while the GPU is busy, below what any computer draws,
    and keeps changing. An idle value that is not known leaves it open whether the sensor follows the GPU.
    """
    active, sensor = readings(host.columns, "gpu_active").numbers, readings(host.columns, name)
    busy = active >= BUSY
    if busy.any() and not np.isfinite(sensor.numbers[busy]).any():
        status = " or ".join(sorted({missing_status(sensor.slots[place]) for place in np.unique(sensor.layout[busy])}))
        yield f"{name}: {status} in all {np.sum(busy)} samples of a busy GPU"
    busy &= np.isfinite(sensor.numbers)
    if not busy.any():
        return
    sources = sorted({slot.source for place in np.unique(sensor.layout[busy]) if (slot := sensor.slots[place])})
    label, values = f"{name} by {' and '.join(sources)}", sensor.numbers[busy]
    if len(sources) > 1:
        yield f"{label}: two sources may measure different things"
    zeros = int(np.sum(values <= 0))
    if zeros > (1 - COVERAGE) * len(values):
        yield f"{label}: it read 0 in {zeros} of {len(values)} samples of a busy GPU"
    if name == POWER and values.max() > MOST_WATTS:
        yield f"{label}: it read {values.max():.3g} W, which no computer draws"
    if len(np.unique(values)) < 2 or any(stuck(part.values, host.interval) for part in _busy(host, name)):
        yield f"{label}: it did not change within a minute"
    idle = np.concatenate([_idle(columns, name) for columns in (host.columns, HostColumns.of(host.outside))])
    if len(idle) < MIN_IDLE_READINGS:
        yield f"{label}: the run has no reading of an idle GPU to compare with"
    elif np.median(values) <= ABOVE_IDLE[name] * np.median(idle):
        yield f"{label}: no higher than while the GPU was idle"


def _idle(columns: HostColumns, name: str) -> Floats:
    active, values = (readings(columns, sensor).numbers for sensor in ("gpu_active", name))
    return values[(active <= IDLE) & np.isfinite(values)]


def _busy(host: HostSamples, name: str) -> list[Part]:
    """Return the readings of *name* while the GPU was busy, by segment; a segment without any is left out.

    A busy GPU at 0 W or 0 Hz is a sensor that failed, so it did not fall either.
    """
    active, values = (readings(host.columns, sensor).numbers for sensor in ("gpu_active", name))
    at = np.array(host.columns.at_ns, dtype=np.int64) / 1e9
    busy = (active >= BUSY) & (values > 0)
    places = [segment[busy[segment]] for segment in host.segments().values()]
    return [Part(at[place], values[place], np.zeros(len(place))) for place in places if len(place)]


def _blocks(part: Part) -> list[float]:
    return medians(part, max(WINDOW, min(BLOCK, float(part.at[-1] - part.at[0]) / 3)), least=5)


def _throughout(host: HostSamples, parts: Sequence[Part]) -> bool:
    """Return whether there are busy readings in each third of the soak, each segment on its own clock."""
    at = np.array(host.columns.at_ns, dtype=np.int64) / 1e9
    busy = np.isin(at[np.concatenate(list(host.segments().values()))], np.concatenate([part.at for part in parts]))
    third = -(-len(busy) // 3)
    thirds = [busy[start : start + third] for start in range(0, len(busy), third)]
    return len(thirds) == 3 and all(part.sum() >= min(MIN_BUSY_READINGS, len(part)) for part in thirds)
