"""Other programs that use the processor: who makes a measurement noisy, and how much."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

import psutil

from gatekeeper.core.units import show_bytes

MEASURED_S = 0.5
NAMED = 3
"""Programs that are named: the busiest ones."""
HOLDERS = 5
"""Programs that are named where memory is short."""
LEAST_CORES = 0.05
BUSY_CORES, BUSY_SHARE = 0.5, 0.1
"""The machine is busy above both: half a core, and a tenth of its cores.

Decoding on a Mac keeps the GPU and one core busy; what others use beyond a tenth of the rest shows in its times.
"""


@dataclass(frozen=True, slots=True)
class OtherPrograms:
    """What other programs use of this machine."""

    cores: float
    """That all of them use together."""
    of: int
    """Cores of the machine."""
    busiest: tuple[tuple[str, float], ...]
    """Names and cores, the busiest first, without those that hardly run; programs of other users may be hidden."""

    @property
    def busy(self) -> bool:
        """Return whether they use so much that times are noisy."""
        return self.cores > max(BUSY_CORES, BUSY_SHARE * self.of)

    def __str__(self) -> str:
        """Return it in words: `other programs use 1.6 of 10 cores: Chrome Helper 1.2, mds 0.3`."""
        names = ", ".join(f"{name} {cores:.1f}" for name, cores in self.busiest)
        return f"other programs use {self.cores:.1f} of {self.of} cores{f': {names}' if names else ''}"


def other_programs(seconds: float = MEASURED_S) -> OtherPrograms:
    """Watch all processes for some *seconds*, but this one, those that it started and those that started it."""
    own = _own()
    before, busy_before, begun = dict(_used(own)), _busy_seconds(), time.monotonic()
    own_before = _seconds_of(own)
    time.sleep(seconds)
    lasted, busy = time.monotonic() - begun, _busy_seconds() - busy_before - (_seconds_of(own) - own_before)
    by_name: dict[str, float] = {}
    for (pid, name), used in _used(own):
        by_name[name] = by_name.get(name, 0.0) + max(0.0, used - before.get((pid, name), used)) / lasted
    busiest = sorted(((name, used) for name, used in by_name.items() if used >= LEAST_CORES), key=itemgetter(1))
    cores = max(busy / lasted, sum(by_name.values()))
    return OtherPrograms(max(0.0, cores), psutil.cpu_count() or 1, tuple(busiest[: -NAMED - 1 : -1]))


def memory_holders() -> str:
    """Write which programs hold most memory: `Chrome Helper 4.1 GB, Xcode 2.2 GB`, as far as they may be read."""
    by_name: dict[str, float] = {}
    own = _own()
    for process in psutil.process_iter():
        try:
            if process.pid not in own:
                by_name[process.name()] = by_name.get(process.name(), 0.0) + process.memory_info().rss
        except psutil.Error:
            continue
    most = sorted(by_name.items(), key=itemgetter(1), reverse=True)[:HOLDERS]
    return ", ".join(f"{name} {show_bytes(held)}" for name, held in most)


def _own() -> frozenset[int]:
    this = psutil.Process()
    return frozenset(process.pid for process in (this, *this.parents(), *this.children(recursive=True)))


def _used(own: frozenset[int]) -> Iterator[tuple[tuple[int, str], float]]:
    """Yield pid and name of each other process that may be read, with its seconds of the processor."""
    for process in psutil.process_iter():
        try:
            if process.pid not in own:
                yield (process.pid, process.name()), _seconds(process)
        except psutil.Error:
            continue


def _seconds_of(pids: frozenset[int]) -> float:
    seconds = 0.0
    for pid in pids:
        try:
            seconds += _seconds(psutil.Process(pid))
        except psutil.Error:
            continue
    return seconds


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy_seconds() -> float:
    """Return the seconds of all cores that were not idle; a system may hide the times of other users' processes."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - sum(getattr(times, name, 0.0) for name in ("iowait", "guest", "guest_nice")))
