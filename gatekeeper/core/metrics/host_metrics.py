"""The metrics of the host, one row each; how each is read from samples: `analysis/metrics/host/host_estimates.py`."""

from typing import Any

from gatekeeper.core.metrics.metric import Metric, Per, Sight

_MEMORY = "use a smaller or lighter draft, a shorter context, or close other apps"
_COOL = "cool the host, or lower the load; compare on a host that does not throttle"
_POWER = "use a lighter draft or a shorter draft length"
_COUNTER = "rise between samples with pressure, little memory free, or neither known"


def _host(name: str, unit: str, samples: str, description: str, *, higher: bool = False, **more: Any) -> Metric:
    return Metric(
        name=name,
        unit=unit,
        higher_is_better=higher,
        per=Per.HOST,
        needs=Sight.NOTHING,
        description=description,
        counted=True,
        population=False,
        samples=tuple(samples.split()),
        **({"minimum": 0.0} | more),
    )


def _power(name: str, unit: str, samples: str, description: str, formula: str) -> Metric:
    says = f"{description}; informational unless named"
    return _host(name, unit, samples, says, formula=formula, remedy=_POWER)


# fmt: off
HOST_METRICS: tuple[Metric, ...] = (
    _host(
        "memory_headroom", "B", "memory_headroom",
        "lowest memory that is available without swapping",
        higher=True,
        formula="min of the 10 s medians",
        remedy=_MEMORY, aliases=("free_memory", "memory"), watched=True,
    ),
    _host(
        "memory_pressure_critical", "s", "memory_pressure_level",
        "longest time of critical memory pressure",
        formula="longest run of critical samples",
        remedy=_MEMORY, aliases=("memory_pressure",), watched=True,
    ),
    _host(
        "throttle_time", "s", "thermal_level throttle_total throttle_events",
        "time thermally throttled",
        formula="time at thermal level 2 or more, 1 or more on a Mac without a fan",
        remedy=_COOL, aliases=("throttling",), watched=True,
    ),
    _host(
        "swapin_bytes", "B", "swapin_bytes",
        "bytes swapped in while memory was short",
        formula=_COUNTER, remedy=_MEMORY, aliases=("swapins",),
    ),
    _host(
        "swapout_bytes", "B", "swapout_bytes",
        "bytes swapped out while memory was short",
        formula=_COUNTER, remedy=_MEMORY, aliases=("swapouts",),
    ),
    _host(
        "swap_growth", "B", "swap_used",
        "growth of swap over the soak",
        formula="swap at the end - at the start; 0 if it ever fell",
        remedy=_MEMORY, aliases=("swap",), watched=True,
    ),
    _host(
        "footprint_peak", "B", "subject_footprint",
        "largest memory footprint of the system's processes",
        formula="max over samples",
        remedy=_MEMORY, aliases=("peak_memory", "peak_rss", "rss"),
    ),
    _host(
        "footprint_growth", "B/s", "subject_footprint",
        "slope of that footprint",
        formula="Theil-Sen slope",
        remedy="find and fix the leak; until then, restart the server regularly",
        minimum=None,
    ),
    _host(
        "fan_variation", "rpm", "fan_speed",
        "range of the fan speed; informational unless named",
        formula="largest - smallest",
        remedy=_COOL,
    ),
    _power("power_mean", "W", "package_power", "mean package power", "energy / time"),
    _power("energy_per_token", "J", "package_power", "package energy per output token", "energy / output tokens"),
    _power("system_power_mean", "W", "system_power", "mean power of the whole machine", "energy / time"),
    _power(
        "system_energy_per_token", "J", "system_power",
        "energy of the whole machine per output token",
        "energy / output tokens",
    ),
)
# fmt: on
