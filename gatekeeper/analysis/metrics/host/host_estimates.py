"""Estimates of the host metrics from the samples of one soak."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gatekeeper.analysis.metrics.host import host_throttling
from gatekeeper.analysis.metrics.host.host_series import (
    COVERAGE,
    MOST_WATTS,
    Floats,
    HostSamples,
    Series,
    decrease,
    increase,
    longest,
    medians,
    readings,
    stuck,
)
from gatekeeper.analysis.stats.slopes import slope
from gatekeeper.core.judgement import Estimate, Missing, fact
from gatekeeper.core.metrics import ALL, BY_NAME
from gatekeeper.core.records.host_columns import HostColumns
from gatekeeper.core.units import show

SWAPPED = ("swapin_bytes", "swapout_bytes")
CRITICAL = 4.0
"""The pressure level that the system calls critical."""
HEADROOM_WINDOW = 10.0
"""Seconds of one median of headroom: a dip shorter than half of it does not count."""
LEAST_WATTS = 0.2
"""Less than the smallest Mac draws with a busy GPU, which takes some watts: the unit is another one."""
ABOVE_IDLE = 1.1
"""Times its lowest idle values that a power reaches while the GPU is busy: screen and memory take power at rest."""
LEAST_OF_PARTS = 0.9
"""Share of its parts' sum below which a power contradicts them."""
_POWERS = {"power_mean": "package_power", "system_power_mean": "system_power"}
WARNING = 2.0
"""The pressure level that the system calls a warning."""
SHORT = 1 / 8
"""Memory is short while less than this share of it can be had."""


def estimates(host: HostSamples, *, tokens: int | None, level: float) -> dict[str, Estimate | Missing]:
    """Return every host metric of one soak with *tokens* output tokens, None where that is unknown."""
    by_name = {name: estimate(name, host) for name in (*_READ, *_POWERS, *SWAPPED)} | {
        "throttle_time": host_throttling.throttle_time(host),
        "footprint_growth": _slope(host.series("subject_footprint"), level),
        "energy_per_token": _energy(host, "package_power", tokens),
        "system_energy_per_token": _energy(host, "system_power", tokens),
    }
    return {metric.name: by_name[metric.name] for metric in ALL if metric.host}


def estimate(name: str, host: HostSamples) -> Estimate | Missing:
    """Return a metric that needs one sampled value, over the time of the samples."""
    if name in _POWERS:
        return _power(host, _POWERS[name])
    if name in SWAPPED:
        return under_pressure(name, host)
    return _READ[name](host.series(BY_NAME[name].samples[0]))


def _headroom(headroom: Series) -> Estimate | Missing:
    """Return the lowest median of ten seconds, over all segments."""
    lows = [median for part in headroom.segments for median in medians(part, HEADROOM_WINDOW)]
    return headroom.check_coverage() or fact(min(lows), headroom.count)


def _pressure(level: Series) -> Estimate | Missing:
    """Return the longest continuous time of critical pressure in seconds."""
    return level.check_coverage() or fact(max(longest(part, at_least=CRITICAL) for part in level.segments), level.count)


def _swap_growth(swap: Series) -> Estimate | Missing:
    """Return the sum of last minus first of each segment; 0 if swap ever fell, because then it is not a leak."""
    fell = not swap.check_coverage() and decrease(swap)
    return fact(0.0, swap.count, "swap fell at least once") if fell else increase(swap)


def _peak(footprint: Series) -> Estimate | Missing:
    return footprint.check_coverage() or fact(float(footprint.values.max()), footprint.count)


def _slope(footprint: Series, level: float) -> Estimate | Missing:
    """Return the Theil-Sen slope over the last process: a resumed run has a new one, stretches of a soak share one."""
    if missing := footprint.check_coverage():
        return missing
    last = footprint.join_stretches()
    footprint_slope = slope(last.at, last.values, level=level)
    return footprint_slope or Missing(f"{footprint.name}: too few readings for a slope: {len(last.at)}", len(last.at))


def _range(fan: Series) -> Estimate | Missing:
    return fan.check_coverage() or fact(float(fan.values.max() - fan.values.min()), fan.count)


def _power(host: HostSamples, name: str) -> Estimate | Missing:
    """Return the mean over time: each reading counts for the seconds until the next one."""
    power = host.series(name)
    if missing := check_power(host, power):
        return missing
    seconds = sum(power.lasts.tolist())
    if seconds <= 0:
        return Missing("no time passed", power.count)
    return fact(_joules(power) / seconds, power.count, power_note(power))


def _energy(host: HostSamples, name: str, tokens: int | None) -> Estimate | Missing:
    power = host.series(name)
    if missing := check_power(host, power):
        return missing
    if not tokens:
        return Missing("the number of output tokens is unknown" if tokens is None else "no tokens were generated")
    return fact(_joules(power) / tokens, power.count, power_note(power))


def check_power(host: HostSamples, power: Series) -> Missing | None:
    """Return why the power is not known; None where it is. A machine that takes samples draws more than 0 W."""
    if missing := power.check_coverage():
        sources = " and ".join(_other_powers(host)) if power.name == "package_power" else ""
        counters = f": {sources} reads other powers, but one of the package's is missing, or 0 W under load"
        return Missing(f"{missing.because}{counters if sources else ''}", missing.n)
    if defect := next(_power_defects(host, power), ""):
        return Missing(f"{power.name}: {defect}", power.count)
    return None


def _power_defects(host: HostSamples, power: Series) -> Iterator[str]:
    """Describe why a power cannot be what the machine drew; nothing where it can."""
    for wrong, words in (
        (power.values <= 0, "0 W, which no running machine draws: its counter does not work"),
        (power.values > MOST_WATTS, f"above {MOST_WATTS:g} W, which no computer draws"),
    ):
        if wrong.sum() > (1 - COVERAGE) * power.count:
            yield f"{wrong.sum()} of {power.count} readings by {power.source} are {words}"
    parts = host.new_readings(power.name, power.source)
    still, every = sum(stuck(part, host.interval) for part in parts), sum(map(len, parts))
    if still > (1 - COVERAGE) * every:
        yield f"{still} of {every} readings by {power.source} hardly change: its counter does not work"
    busy, idle = (_powers_at(host, power, busy=busy) for busy in (True, False))
    if len(busy) >= host_throttling.MIN_BUSY_READINGS:
        middle = float(np.median(busy))
        if middle < LEAST_WATTS:
            yield f"{power.source} reads {middle:.2g} W while the GPU is busy, which no GPU draws"
        if len(idle) >= host_throttling.MIN_IDLE_READINGS and middle <= ABOVE_IDLE * float(np.quantile(idle, 0.1)):
            yield f"{power.source} reads no more than while the GPU was idle"
    cpu = readings(host.columns, "cpu_power").of_source(power.source)
    if power.name == "package_power" and np.sum(cpu == 0) > (1 - COVERAGE) * power.count:
        yield f"{power.source} reads 0 W for the CPU, so the package is the GPU alone"
    parts_power, values = _parts(host, power), readings(host.columns, power.name).of_source(power.source)
    compared = np.isfinite(parts_power) & np.isfinite(values)
    lower = int(np.sum(values[compared] < LEAST_OF_PARTS * parts_power[compared]))
    # The package's parts are read at the same instant as itself, those of the system by another tool.
    if lower > ((1 - COVERAGE) if power.name == "package_power" else 0.5) * compared.sum():
        yield f"{lower} of {compared.sum()} readings by {power.source} are lower than those of a part of it"


def _powers_at(host: HostSamples, power: Series, *, busy: bool) -> Floats:
    """Return the readings of *power* while the GPU was *busy*, or idle: then those outside the soak, too."""
    powers = []
    for columns in (host.columns,) if busy else (host.columns, HostColumns.of(host.outside)):
        active, values = readings(columns, "gpu_active").numbers, readings(columns, power.name).of_source(power.source)
        powers.append(
            values[(active >= host_throttling.BUSY if busy else active <= host_throttling.IDLE) & np.isfinite(values)]
        )
    return np.concatenate(powers)


def _parts(host: HostSamples, power: Series) -> Floats:
    """Return what is a part of *power*: of the package its CPU and GPU, of the system its package; NaN if unknown."""
    if power.name == "system_power":
        return readings(host.columns, "package_power").numbers
    cpu, gpu = (readings(host.columns, name).of_source(power.source) for name in ("cpu_power", "gpu_power"))
    cpu_and_gpu: Floats = np.where(np.isfinite(cpu) | np.isfinite(gpu), np.nan_to_num(cpu) + np.nan_to_num(gpu), np.nan)
    return cpu_and_gpu


def _other_powers(host: HostSamples) -> list[str]:
    """Return the sources that read another power in samples without a package power."""
    layouts = host.columns.layouts
    without = [layout for layout in layouts if (slot := layout.get("package_power")) and slot.status != "ok"]
    slots = [layout.get(name) for layout in without for name in ("cpu_power", "gpu_power", "system_power")]
    return sorted({slot.source for slot in slots if slot is not None and slot.status == "ok"})


def power_note(power: Series) -> str:
    """Name the tool: two of them leave out different parts of the machine."""
    return f"{power.name.replace('_', ' ')} by {power.source}"


def _joules(power: Series) -> float:
    return float(sum((power.values * power.lasts).tolist()))


_READ: dict[str, Callable[[Series], Estimate | Missing]] = {
    "memory_headroom": _headroom,
    "memory_pressure_critical": _pressure,
    "swap_growth": _swap_growth,
    "footprint_peak": _peak,
    "fan_variation": _range,
}


def under_pressure(name: str, host: HostSamples) -> Estimate | Missing:
    """Return how far the counter of swap *name* rose while memory was short, or nothing shows that it was not.

    A healthy system moves cold pages of idle programs too: macOS 26 wrote 650 MB and read 672 MB in one burst with
    28 GB reclaimable.
    """
    counter = host.series(name)
    whole = increase(counter)
    if isinstance(whole, Missing) or whole.center == 0:
        return whole
    pressed = sum(_sum_pressed_rises(name, host))
    if pressed == whole.center:
        return whole
    rest = f"{show(whole.center - pressed, 'B')} more without any pressure, with memory to spare"
    return replace(whole, center=pressed, lo=pressed, hi=pressed, notes=(*whole.notes, rest))


def _sum_pressed_rises(name: str, host: HostSamples) -> list[float]:
    """Return, by segment, the sum of the rises between two samples of which one shows pressure, or does not tell."""
    columns = host.columns
    counts, level = readings(columns, name).numbers, readings(columns, "memory_pressure_level").numbers
    free, total = readings(columns, "memory_headroom").numbers, readings(columns, "memory_total").numbers
    at_ease = (level < WARNING) & (free >= SHORT * total)  # what is not known is not at ease
    rises = []
    for places in host.segments().values():
        known = places[np.isfinite(counts[places])]
        short = ~(at_ease[known][1:] & at_ease[known][:-1])
        rises.append(float(np.diff(counts[known])[short].sum()))
    return rises
