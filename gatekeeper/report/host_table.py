"""A host sample as a table for a terminal: value, unit, source, status, and what it is used for."""

from collections.abc import Mapping

from gatekeeper.core.records import HostSample, Reading
from gatekeeper.core.text import align_columns
from gatekeeper.core.units import show

USES = {
    "memory_total": "what memory_headroom is a share of",
    "memory_headroom": "objective memory_headroom",
    "memory_wired": "wired memory that a killed server left behind",
    "memory_compressed": "memory in the compressor",
    "memory_uncompressed_demand": "growth that compression hides; for forecasts",
    "memory_pressure_level": "objective memory_pressure_critical (4 is critical)",
    "memory_counted": "cross-check of the page size against memory_total",
    "gpu_wired_limit": "explains a model that does not fit",
    "gpu_memory": "memory that the GPU uses now; falls while it is idle",
    "gpu_memory_allocated": "memory that programs allocated for the GPU, a loaded model too",
    "swap_used": "objective swap_growth",
    "swapin_bytes": "objective swapin_bytes; since boot here",
    "swapout_bytes": "objective swapout_bytes; since boot here",
    "oom_kills": "processes killed for memory since boot",
    "thermal_level": "objective throttle_time (throttled from 2 on, a Mac without a fan from 1 on)",
    "thermal_level_powermetrics": "second opinion on thermal_level",
    "throttle_total": "objective throttle_time on Linux; since boot here",
    "throttle_events": "objective throttle_time on Linux; since boot here",
    "gpu_power": "cross-check of throttling",
    "cpu_power": "explains package_power",
    "package_power": "objectives power_mean, energy_per_token",
    "system_power": "objectives system_power_mean, system_energy_per_token",
    "gpu_frequency": "cross-check of throttling",
    "gpu_active": "cross-check of throttling: whether the GPU is busy",
    "gpu_resets": "number of times the GPU reset itself",
    "fan_speed": "objective fan_variation; 0 is ambiguous",
    "subject_footprint": "objectives footprint_peak, footprint_growth",
    "background_cpu": "work of Spotlight, photo analysis and Time Machine",
    "power_source": "a soak that lost mains power is unproven",
    "power_mode": "low-power mode",
}
"""What each value is used for."""


def figure(reading: Reading) -> str:
    """Print a value for a person; a missing one is a dash, never a number."""
    if reading.value is None:
        return "-"
    if isinstance(reading.value, str):
        return reading.value
    if reading.unit == "Hz":
        return f"{reading.value / 1e6:.0f} MHz"
    return show(reading.value, reading.unit)


def table(sample: HostSample, lacks: Mapping[str, str]) -> str:
    """Return the sample as aligned rows; *lacks* holds, by source or value, what went wrong with it."""
    head = ("value", "", "unit", "source", "status", "used for")
    rows = [
        (
            name,
            figure(reading),
            reading.unit or "-",
            reading.source,
            reading.status,
            lacks.get(name) or (lacks.get(reading.source, "") if reading.status != "ok" else "") or USES.get(name, ""),
        )
        for name, reading in sample.values.items()
    ]
    cost = f"sampled {sample.at}, {sample.took_ns / 1e6:.1f} ms of CPU, {sample.late_ns / 1e6:.1f} ms late"
    return "\n".join([*align_columns([head, *rows], right=1), cost])
