"""Which host metrics can be measured on this host, and what to do about the others."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from gatekeeper.core.metrics import ALL
from gatekeeper.core.records import Reading
from gatekeeper.host.macos import powermetrics
from gatekeeper.host.platforms import platform_sources, this_platform
from gatekeeper.host.poller import Poller
from gatekeeper.host.sources import LEFT_OUT

METRIC_VALUES = {metric.name: metric.samples for metric in ALL if metric.host}
"""The values each host metric can be computed from; one of them is enough."""

_SUDO = (
    f"allow powermetrics with this line in `sudo visudo -f /etc/sudoers.d/gatekeeper`: {powermetrics.sudoers_line()}"
)
_MACMON = "`brew install macmon`, which needs no root"
_ENERGY = "the energy counter cannot be read: `sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj`"

HINTS: dict[tuple[str, str], str] = {
    ("macos", "memory_headroom"): "vm_stat is part of macOS: put /usr/bin on PATH",
    ("macos", "memory_pressure_level"): "sysctl is part of macOS: put /usr/sbin on PATH",
    ("macos", "swapin_bytes"): "vm_stat is part of macOS: put /usr/bin on PATH",
    ("macos", "swapout_bytes"): "vm_stat is part of macOS: put /usr/bin on PATH",
    ("macos", "swap_used"): "sysctl is part of macOS: put /usr/sbin on PATH",
    ("macos", "subject_footprint"): "run gatekeeper as the user who owns the server's processes",
    ("macos", "thermal_level"): f"notifyutil is part of macOS: put /usr/bin on PATH; or {_SUDO}",
    ("macos", "fan_speed"): "`brew install macmon` (0.8 or newer); some Macs have no fan",
    ("macos", "package_power"): f"{_MACMON}; or {_SUDO}",
    ("macos", "system_power"): _MACMON,
    ("linux", "memory_pressure_level"): "boot the kernel with psi=1 (CONFIG_PSI)",
    ("linux", "subject_footprint"): "run gatekeeper as the user who owns the server's processes",
    ("linux", "thermal_level"): "/sys has no thermal_throttle counters: they need an Intel processor, not virtual",
    ("linux", "fan_speed"): "/sys/class/hwmon lists no fan: load the board's sensor module, or leave out the objective",
    ("linux", "package_power"): _ENERGY,
}
"""What to do about a missing value, by platform and value."""

_NO_COUNTER = "this machine has no energy counter: /sys/class/powercap lists none"
_WHOLE_MACHINE = "bound the power of the whole machine instead: system_power_mean, system_energy_per_token"
NO_SOURCE = "this platform has no source for it"

_READY = 3.0
"""Seconds to wait for the first reading of a stream: powermetrics takes more than one."""


def unavailable_metrics(platform: str | None = None) -> Mapping[str, str]:
    """Return, for each host metric that cannot be measured here now, the reason and the fix."""
    return survey(platform)[1]


def survey(platform: str | None = None) -> tuple[Mapping[str, Reading], Mapping[str, str]]:
    """Return the newest reading of every value, and what `unavailable_metrics` returns."""
    name = platform or this_platform()
    # Our own process stands in for the server, which is not started yet.
    with Poller(platform_sources(platform, lambda: [os.getpid()]), interval=1.0) as panel:
        panel.settle(streams=True, limit=_READY)
        panel.refresh(0.5)
        readings, details = panel.readings(), panel.details()
    lacks = {}
    for metric in (metric.name for metric in ALL if metric.host):
        needed = [readings[value] for value in METRIC_VALUES[metric]]
        if not any(_servable(reading) for reading in needed):
            lacks[metric] = _why(name, METRIC_VALUES[metric][0], needed[0], details)
    return MappingProxyType(readings), MappingProxyType(lacks)


def _servable(reading: Reading) -> bool:
    # A mean power needs two readings: after one it is stale, and the source can be read.
    return reading.status == "ok" or (reading.status == "stale" and reading.source == "powercap")


def _why(platform: str, value: str, reading: Reading, details: Mapping[str, str]) -> str:
    detail = details.get(value) or details.get(reading.source, "")
    return f"{value} is {reading.status}{f' ({detail})' if detail else ''}: {_hint(platform, value, detail)}"


def _hint(platform: str, value: str, detail: str = "") -> str:
    """Return what to do about a missing value; no permission helps for a file that does not exist, or a dead counter.

    *detail* is the last error of the value or of its source.
    """
    if value == "package_power" and detail.endswith(LEFT_OUT):
        return _WHOLE_MACHINE
    if (platform, value) == ("linux", "package_power") and not any(_POWERCAP.glob("intel-rapl:*/energy_uj")):
        return _NO_COUNTER
    return HINTS.get((platform, value), NO_SOURCE)


_POWERCAP = Path("/sys/class/powercap")


def metric_hint(metric: str) -> str:
    """Return the command or permission that makes a host metric measurable here."""
    return _hint(this_platform(), METRIC_VALUES[metric][0])


def value_hints(platform: str | None, readings: Mapping[str, Reading], details: Mapping[str, str]) -> list[str]:
    """Return the hints for missing values, each hint once with all its values."""
    name = platform or this_platform()
    advice: dict[str, list[str]] = {}
    for value, reading in readings.items():
        # `gatekeeper host` starts no server, so its footprint is always missing.
        if (
            reading.status != "ok"
            and value != "subject_footprint"
            and (name, value) in HINTS
            and (hint := _hint(name, value, details.get(value) or details.get(reading.source, "")))
        ):
            advice.setdefault(hint, []).append(value)
    complaints = [
        f"no permission to run {source}: {detail}" for source, detail in details.items() if "password" in detail
    ]
    return complaints + [f"{', '.join(values)}: {hint}" for hint, values in advice.items()]
