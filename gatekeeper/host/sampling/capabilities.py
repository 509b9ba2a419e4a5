"""Which host metrics can be measured on this host, and what to do about the others."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from gatekeeper.core.metrics import ALL
from gatekeeper.core.records import Reading
from gatekeeper.core.system.system_names import this_platform
from gatekeeper.host.macos import powermetrics, vm_stat
from gatekeeper.host.sampling.poller import LEFT_OUT, WRONG_PAGES, Poller, platform_sources

METRIC_VALUES = {metric.name: metric.samples for metric in ALL if metric.samples}
"""The values each metric of samples can be computed from; one of them is enough."""

_SUDO = (
    f"allow powermetrics with this line in `sudo visudo -f /etc/sudoers.d/gatekeeper`: {powermetrics.sudoers_line()}"
)
_MACMON = "`brew install macmon`, which needs no root"
_ENERGY = "the energy counter cannot be read: `sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj`"

_SEND_IT = "attach the file of `gatekeeper selftest` to an issue, which shows what each source gave"
_ON_PATH = "vm_stat is part of macOS: put /usr/bin on PATH"
_OWNER = "run gatekeeper as the user who owns the server's processes"

HINTS: dict[tuple[str, str], str] = {
    **dict.fromkeys((("macos", value) for value in vm_stat.PROVIDES), _ON_PATH),
    **dict.fromkeys((("macos", value) for value in ("memory_pressure_level", "swap_used", "thermal_level")), _SEND_IT),
    ("macos", "fan_speed"): "`brew install macmon` (0.8 or newer); some Macs have no fan",
    ("macos", "package_power"): _MACMON,
    ("macos", "system_power"): _MACMON,
    ("macos", "subject_footprint"): _OWNER,
    ("linux", "memory_pressure_level"): "boot the kernel with psi=1 (CONFIG_PSI)",
    ("linux", "subject_footprint"): _OWNER,
    ("linux", "thermal_level"): "/sys has no thermal_throttle counters: they need an Intel processor, not virtual",
    ("linux", "fan_speed"): "/sys/class/hwmon lists no fan: load the board's sensor module, or leave out the objective",
    ("linux", "package_power"): _ENERGY,
}
"""What to do about a missing value, by platform and value; powermetrics, which has some of them too, needs _SUDO."""

_NO_COUNTER = "this machine has no energy counter: /sys/class/powercap lists none"
_WHOLE_MACHINE = "bound the power of the whole machine instead: system_power_mean, system_energy_per_token"
_NATIVE = "use a Python for this processor, not one that Rosetta translates, and the tools that macOS ships"
NO_SOURCE = "this platform has no source for it"

_READY = 3.0
"""Seconds to wait for the first reading of a stream: powermetrics takes more than one."""


def survey(platform: str | None = None) -> tuple[Mapping[str, Reading], Mapping[str, str]]:
    """Return the newest reading of every value, and by metric of samples that cannot be measured here now the fix."""
    name = platform or this_platform()
    # Our own process stands in for the server, which is not started yet.
    with Poller(platform_sources(platform, lambda: [os.getpid()]), interval=1.0) as panel:
        panel.settle(streams=True, limit=_READY)
        panel.refresh(0.5)
        readings, details = panel.readings(), panel.details()
    lacks = {}
    for metric, values in METRIC_VALUES.items():
        needed = [readings[value] for value in values]
        if not any(_servable(reading) for reading in needed):
            lacks[metric] = _why(name, values[0], readings, details)
    return MappingProxyType(readings), MappingProxyType(lacks)


def _servable(reading: Reading) -> bool:
    # A mean power needs two readings: after one it is stale, and the source can be read.
    return reading.status == "ok" or (reading.status == "stale" and reading.source == "powercap")


def _why(platform: str, value: str, readings: Mapping[str, Reading], details: Mapping[str, str]) -> str:
    reading = readings[value]
    detail = details.get(value) or details.get(reading.source, "")
    return f"{value} is {reading.status}{f' ({detail})' if detail else ''}: {_hint(platform, value, readings, detail)}"


def _hint(platform: str, value: str, readings: Mapping[str, Reading], detail: str) -> str:
    """Return what to do about a missing value; no permission helps for a file that does not exist, or a dead counter.

    *detail* holds the last error of the value or of its source.
    """
    if value == "package_power" and LEFT_OUT in detail:
        return _WHOLE_MACHINE
    if WRONG_PAGES in detail:
        return _NATIVE
    if (platform, value) == ("linux", "package_power") and not any(_POWERCAP.glob("intel-rapl:*/energy_uj")):
        return _NO_COUNTER
    hint = HINTS.get((platform, value), NO_SOURCE)
    return _mac_hint(value, hint, readings, detail) if platform == "macos" else hint


def _mac_hint(value: str, hint: str, readings: Mapping[str, Reading], detail: str) -> str:
    program = {_MACMON: "macmon", _ON_PATH: "vm_stat"}.get(hint)
    if program and shutil.which(program):
        hint = f"{program} is on PATH, but gives none here: {_WHOLE_MACHINE if value == 'package_power' else _SEND_IT}"
    runs = any(reading.status == "ok" and reading.source == powermetrics.STREAM.name for reading in readings.values())
    if value in powermetrics.PROVIDES and powermetrics.LACKS_SAMPLER not in detail and not runs:
        return f"{hint}; or {_SUDO}"
    return hint


_POWERCAP = Path("/sys/class/powercap")


def metric_hint(metric: str, readings: Mapping[str, Reading], reason: str) -> str:
    """Return the command or permission that makes a host metric measurable here; *reason* says why it is not."""
    return _hint(this_platform(), METRIC_VALUES[metric][0], readings, reason)


def value_hints(platform: str | None, readings: Mapping[str, Reading], details: Mapping[str, str]) -> list[str]:
    """Return the hints for missing values, each hint once with all its values."""
    name = platform or this_platform()
    advice: dict[str, list[str]] = {}
    for value, reading in readings.items():
        # `gatekeeper doctor` starts no server, so its footprint is always missing.
        if (
            reading.status != "ok"
            and value != "subject_footprint"
            and (name, value) in HINTS
            and (hint := _hint(name, value, readings, details.get(value) or details.get(reading.source, "")))
        ):
            advice.setdefault(hint, []).append(value)
    complaints = [f"no permission: {detail}" for detail in details.values() if "password" in detail]
    return complaints + [f"{', '.join(values)}: {hint}" for hint, values in advice.items()]
