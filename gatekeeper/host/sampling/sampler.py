"""Samples the host: into the records of a run, or onto the terminal."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

from gatekeeper.core.clock import Clock, SystemClock, stamp
from gatekeeper.core.records import HostSample
from gatekeeper.core.system.system_names import this_platform
from gatekeeper.host.sampling.capabilities import value_hints
from gatekeeper.host.sampling.poller import Poller, platform_sources
from gatekeeper.host.sampling.reading_process import STARTS_TOOLS, ReadingProcess
from gatekeeper.host.sources import Source

SAMPLE_INTERVAL_S = 1.0
"""Seconds between two samples of the host. The manifest stores it, so a change here leaves stored runs valid."""


FIRST_READING_S = 20.0
"""Seconds that a simulated run waits for the first reading of each source: however busy the machine is, it has one."""


def _grace(interval: float) -> float:
    """Return the seconds a sample waits for its tools: a share of the interval, at most half a second."""
    return min(0.4 * interval, 0.5)


class Sampler:
    """Samples the host while it is entered: in a thread with monotonic deadlines, or at ticks of a virtual clock.

    `phase` and `segment` may be set while it runs; they are copied into the samples that follow.
    """

    def __init__(
        self,
        platform: str | None,
        *,
        clock: Clock,
        pids: Callable[[], Sequence[int]],
        record: Callable[[HostSample], None],
        interval: float = SAMPLE_INTERVAL_S,
        phase: str = "",
        sources: Sequence[Source] | None = None,
    ) -> None:
        self.phase = phase
        self.segment = 0
        self._interval = interval
        self._clock = clock
        self._record = record
        self._sources = platform_sources(platform, pids) if sources is None else sources
        self._platform = (platform or this_platform()) if sources is None else ""
        self._pids = pids
        self._fault: str | None = None
        self._thread: threading.Thread | None = None
        self._due_ns = 0
        self._stopping = threading.Event()

    @property
    def fault(self) -> str | None:
        """Return why sampling ended early, None while it runs."""
        thread = self._thread
        if self._fault is None and thread is not None and not thread.is_alive() and not self._stopping.is_set():
            return "the sampler's thread ended unexpectedly"
        return self._fault

    def __enter__(self) -> Self:
        self._stopping.clear()
        every: Any = getattr(self._clock, "every", None)
        if every is None:
            self._poller = self._real_poller()
            self._thread = threading.Thread(
                target=self._catch_fault, args=(self._run,), name="host sampler", daemon=True
            )
            self._thread.start()
        else:
            self._poller = poller = Poller(self._sources, interval=self._interval, gap=self._interval)
            poller.settle(streams=True, limit=FIRST_READING_S)
            self._tick()
            self._unhook = every(round(self._interval * 1e9), self._tick)
        return self

    def _real_poller(self) -> Poller | ReadingProcess:
        if self._platform in STARTS_TOOLS:
            return ReadingProcess(self._platform, self._pids, interval=self._interval)
        return Poller(self._sources, interval=self._interval)

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread is None:
            self._unhook()
        else:
            self._thread.join(10.0)
            if self._thread.is_alive():
                self._fault = "the sampler's thread did not end"
        self._poller.close()

    def _tick(self) -> None:
        if self._fault is None:
            self._catch_fault(self._take_virtual)

    def _take_virtual(self) -> None:
        """Take a sample of what was read last, which grows old in real time.

        The machine is read once in a real second, however many virtual ones pass meanwhile.
        """
        if (now := time.monotonic_ns()) >= self._due_ns:
            self._due_ns = now + round(self._interval * 1e9)
            self._poller.refresh(0.0)
        at, values = stamp(self._clock.wall()), self._poller.readings()
        self._record(HostSample(at, self._clock.now_ns(), values, self.phase, self.segment))

    def _catch_fault(self, sample: Callable[[], None]) -> None:
        try:
            sample()
        except Exception as error:  # noqa: BLE001  any error that ends the sampling is the fault, which the soak reports
            self._fault = f"{type(error).__name__}: {error}"

    def _take(self, grace: float, cost_from_ns: int, deadline_ns: int) -> None:
        began, wall = self._clock.now_ns(), self._clock.wall()
        self._poller.refresh(grace)
        values, late_ns = self._poller.readings(), max(0, began - deadline_ns)
        took_ns = self._poller.cost_ns() - cost_from_ns
        self._record(HostSample(stamp(wall), began, values, self.phase, self.segment, took_ns, late_ns))

    def _run(self) -> None:
        self._poller.settle(streams=False)
        interval, grace = round(self._interval * 1e9), _grace(self._interval)
        deadline, cost_from = self._clock.now_ns(), self._poller.cost_ns()
        while not self._stopping.wait(max(0, deadline - self._clock.now_ns()) / 1e9):
            # Missed intervals are skipped and show in the coverage; a burst of samples would hide them.
            deadline += max(0, self._clock.now_ns() - deadline) // interval * interval
            self._take(grace, cost_from, deadline)
            cost_from = self._poller.cost_ns()
            deadline += interval


def write_samples(
    samples: int,
    interval: float,
    platform: str | None,
    *,
    json_output: bool,
    write: Callable[[str], None],
    write_hint: Callable[[str], None],
    table: Callable[[HostSample, Mapping[str, str]], str],
) -> None:
    """Write *samples* samples; after the first one, hints for the missing values.

    *table* renders a sample and the last error of each source for the terminal. JSON is one object per line.
    """
    clock = SystemClock()
    with Poller(platform_sources(platform, tuple), interval=interval) as poller:
        poller.settle(streams=True)
        begin = time.monotonic()
        for number in range(samples):
            time.sleep(max(0.0, begin + number * interval - time.monotonic()))
            now, wall_time, cost_from = clock.now_ns(), stamp(clock.wall()), poller.cost_ns()
            poller.refresh(_grace(interval))
            sample = HostSample(wall_time, now, poller.readings(), took_ns=poller.cost_ns() - cost_from)
            values = {name: asdict(reading) for name, reading in sample.values.items()}
            document = {"at": wall_time, "values": values}
            write(json.dumps(document, allow_nan=False) if json_output else table(sample, poller.details()))
            if number == 0:
                for line in value_hints(platform, sample.values, poller.details()):
                    write_hint(line)
