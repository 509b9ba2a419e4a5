"""The values of a host sample: their names and units, and what it means when one is missing."""

import math
from enum import StrEnum


class Lack(StrEnum):
    """Why a value is missing; never written as zero."""

    DENIED = "denied"
    """The host has it and refuses it."""
    PARSE_ERROR = "parse_error"
    """The source spoke, and not in the grammar we know."""
    STALE = "stale"
    """The source has not answered in time."""
    ABSENT = "absent"
    """This host has no such source."""


Found = dict[str, float | str | Lack]
"""What one reading of one source yields, by value name, in base units."""

UNITS: dict[str, str] = {
    "memory_total": "B",
    "memory_headroom": "B",
    "memory_wired": "B",
    "memory_compressed": "B",
    "memory_uncompressed_demand": "B",
    "memory_pressure_level": "1",
    "memory_free_share": "1",
    "gpu_wired_limit": "B",
    "gpu_memory": "B",
    "swap_used": "B",
    "swapin_bytes": "B",
    "swapout_bytes": "B",
    "oom_kills": "1",
    "thermal_level": "1",
    "thermal_level_powermetrics": "1",
    "throttle_total": "s",
    "throttle_events": "1",
    "cpu_speed_limit": "1",
    "gpu_power": "W",
    "cpu_power": "W",
    "package_power": "W",
    "system_power": "W",
    "gpu_frequency": "Hz",
    "gpu_active": "1",
    "gpu_resets": "1",
    "fan_speed": "rpm",
    "subject_footprint": "B",
    "background_cpu": "1",
    "power_source": "",
    "power_mode": "",
}
"""Every value a sample holds, always all of them; the table's order."""


def number(value: object, *, least: float = 0.0, most: float = math.inf) -> float | Lack:
    """Return *value* as a finite number within its possible range, or a parse error."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Lack.PARSE_ERROR
    try:
        found = float(value)
    except OverflowError:
        return Lack.PARSE_ERROR
    return found if math.isfinite(found) and least <= found <= most else Lack.PARSE_ERROR


def scaled(value: float | Lack, factor: float) -> float | Lack:
    """Return *value* in another unit; a lack stays one."""
    return value if isinstance(value, Lack) else value * factor
