"""Other programs that use the processor: who makes a measurement noisy, and how much.

The system counts the processor time of each process, so two looks show what was used between them, and nothing has to
run while requests are timed.
"""

import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter

import psutil

from gatekeeper.core.system.system_names import is_real_mac
from gatekeeper.core.text import one_line
from gatekeeper.core.units import show_bytes
from gatekeeper.host import tool_commands
from gatekeeper.host.macos import ps, system_calls

MEASURED_S = 0.5
NAMED = 3
"""Programs that are named: the busiest ones."""
MUCH = 1e8
"""Bytes; what holds less is not worth closing."""
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
        return self.in_words("use")

    def in_words(self, verb: str) -> str:
        """Return it in words, for a stretch of time that is over with the *verb* `used`."""
        names = ", ".join(f"{name} {cores:.1f}" for name, cores in self.busiest)
        return f"other programs {verb} {self.cores:.1f} of {self.of} cores{f': {names}' if names else ''}"


@dataclass(frozen=True, slots=True)
class ProcessorUse:
    """The seconds of the processor that were used until an instant, by this run and by others."""

    at_s: float
    all_s: float
    """Time of all cores that were not idle; a system may hide the times of other users' processes, but not this sum."""
    own_s: float
    own: frozenset[int]
    """Pids of this process, those that it started and those that started it."""
    by_process: Mapping[int, tuple[str, float]]
    """Name and seconds of each process that may be read, by its pid."""


def processor_use() -> ProcessorUse:
    """Look at all processes now; on a Mac `ps` reads them, because it may read those of other users."""
    this, by_process = psutil.Process(), _by_process()
    started = this.children(recursive=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = frozenset(process.pid for process in (this, *this.parents(), *started))
    own_s = sum(by_process[pid][1] for pid in own if pid in by_process) + ended.ru_utime + ended.ru_stime
    own_s += sum(map(_seconds_of_ended, started))
    return ProcessorUse(time.monotonic(), _all_seconds(), own_s, own, by_process)


def used_between(before: ProcessorUse, after: ProcessorUse) -> OtherPrograms:
    """Return what other programs used between two looks; one that ran only in between counts without its name."""
    lasted = after.at_s - before.at_s
    by_name: dict[str, float] = {}
    for pid, (name, seconds) in after.by_process.items():
        earlier = before.by_process.get(pid, ("", 0.0))[1]
        if pid not in before.own | after.own and seconds > earlier:
            by_name[name] = by_name.get(name, 0.0) + (seconds - earlier) / lasted
    busiest = sorted(((name, used) for name, used in by_name.items() if used >= LEAST_CORES), key=itemgetter(1))
    others = (after.all_s - before.all_s - (after.own_s - before.own_s)) / lasted
    cores = max(0.0, others, sum(by_name.values()))
    return OtherPrograms(cores, psutil.cpu_count() or 1, tuple(busiest[: -NAMED - 1 : -1]))


def other_programs(seconds: float = MEASURED_S) -> OtherPrograms:
    """Watch all processes for some *seconds*, but this one, those that it started and those that started it."""
    before = processor_use()
    time.sleep(seconds)
    return used_between(before, processor_use())


def held_by(process: psutil.Process) -> float:
    """Return the bytes that a process holds: its footprint on a Mac, where the GPU's memory is not resident."""
    library = system_calls.load_library()
    if library is not None:
        return float(system_calls.footprint_of(library, process.pid))
    return float(process.memory_info().rss)


def memory_holders() -> str:
    """Write which programs hold most memory: `Chrome Helper 4.1 GB, Xcode 2.2 GB`; `no program that may be read`."""
    by_name: dict[str, float] = {}
    this = psutil.Process()
    own = {process.pid for process in (this, *this.parents(), *this.children(recursive=True))}
    for process in psutil.process_iter():
        try:
            if process.pid not in own:
                name = one_line(process.name())  # another user chose it
                by_name[name] = by_name.get(name, 0.0) + held_by(process)
        except (psutil.Error, OSError):
            continue
    most = sorted(((name, held) for name, held in by_name.items() if held >= MUCH), key=itemgetter(1), reverse=True)
    return ", ".join(f"{name} {show_bytes(held)}" for name, held in most[:HOLDERS]) or "no program that may be read"


def _by_process() -> dict[int, tuple[str, float]]:
    output = tool_commands.run(ps.TIMES) if is_real_mac() else None
    by_process = ps.processor_seconds(output.out.decode("utf-8", "replace")) if output is not None else {}
    if by_process:
        return by_process
    for process in psutil.process_iter():
        try:
            times = process.cpu_times()
            by_process[process.pid] = one_line(process.name()), float(times.user + times.system)
        except psutil.Error:
            continue
    return by_process


def _seconds_of_ended(process: psutil.Process) -> float:
    """Return the seconds of what *process* started and that has ended; a Mac does not tell it: 0."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.children_user + times.children_system)


def _all_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - sum(getattr(times, name, 0.0) for name in ("iowait", "guest", "guest_nice")))
