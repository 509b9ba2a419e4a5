"""Power from the chip's energy counters (IOReport), without root, where the package zeus-apple-silicon is installed."""

import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gatekeeper.host.sources import MOST_POWER, DirectSource, Status, Values, number

MODULE = "zeus_apple_silicon"
COUNTERS = {
    "cpu_power": ("cpu_total_mj",),
    "gpu_power": ("gpu_mj",),
    "package_power": ("cpu_total_mj", "gpu_mj", "ane_mj"),
}
"""The counters, in millijoules since the process began to read them, whose sum is a value; package: as powermetrics."""
LEAST_NS = 100_000_000
"""Two readings that are closer together would turn the counters' millijoules into a coarse power."""


class EnergyCounters(DirectSource):
    """The mean power between two readings; a counter that this chip lacks is absent."""

    name = "zeus"
    provides = tuple(COUNTERS)

    def __init__(self) -> None:
        self._monitor: Any = None
        self._last: tuple[int, Any] | None = None

    def read(self) -> Values:
        """Return the mean power since the last reading; stale for the first one and where a counter fell."""
        try:
            if self._monitor is None:
                self._monitor = import_module(MODULE).AppleEnergyMonitor()
            now, energy = time.monotonic_ns(), self._monitor.get_cumulative_energy()
        except (ImportError, RuntimeError) as error:
            raise OSError(str(error)) from error
        last = self._last
        if last is not None and now - last[0] < LEAST_NS:
            return dict.fromkeys(self.provides, Status.STALE)
        self._last = (now, energy)
        if last is None:
            return dict.fromkeys(self.provides, Status.STALE)
        return {name: _power(names, last[1], energy, now - last[0]) for name, names in COUNTERS.items()}


def _power(names: tuple[str, ...], before: Any, after: Any, nanoseconds: int) -> float | Status:
    total = 0.0
    for name in names:
        old, new = getattr(before, name, None), getattr(after, name, None)
        if old is None or new is None:
            return Status.ABSENT
        if new < old:
            return Status.STALE
        total += new - old
    return number(total * 1e6 / nanoseconds, most=MOST_POWER)  # millijoules in nanoseconds


def sources() -> list[EnergyCounters]:
    """Return the source, if its package is installed."""
    return [EnergyCounters()] if find_spec(MODULE) is not None else []
