"""The sampler: one sample of the host each interval, written before the next, its own lateness and cost recorded."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.records import HostSample
from gatekeeper.host.platforms import sources as sources_of
from gatekeeper.host.poller import Panel
from gatekeeper.host.sources import Source

SAMPLE_INTERVAL_S = 1.0
"""How often the host is sampled. A run freezes it in its manifest: a change here spoils no stored run."""
GRACE_SHARE, GRACE_MOST = 0.4, 0.5
"""A sample waits for its tools for a share of the interval, and never longer than half a second."""


class Sampler:
    """Samples the host from entering to leaving: a thread with monotonic deadlines, or the ticks of a virtual clock.

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
        self.latest: HostSample | None = None
        self.interval = interval
        self._clock = clock
        self._record = record
        self._sources = sources_of(platform, pids) if sources is None else sources
        self._grace = GRACE_MOST
        self._fault: str | None = None
        self._panel: Panel | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._wanted = threading.Event()
        self._extra: HostSample | None = None
        self._answered = threading.Event()
        self._unhook: Callable[[], None] | None = None

    @property
    def fault(self) -> str | None:
        """Say why no more samples come, None while they do."""
        thread = self._thread
        if self._fault is None and thread is not None and not thread.is_alive() and not self._stopping.is_set():
            return "the sampler's thread ended"
        return self._fault

    def __enter__(self) -> Self:
        self._stopping.clear()
        every: Any = getattr(self._clock, "every", None)
        self._panel = Panel(self._sources, interval=self.interval, gap=0.0 if every is None else self.interval)
        self._grace = min(GRACE_SHARE * self.interval, GRACE_MOST) if every is None else 0.0
        if every is not None:
            self._panel.settle(streams=False)
            self._tick()
            self._unhook = every(round(self.interval * 1e9), self._tick)
        else:
            self._thread = threading.Thread(target=self._run, name="host sampler", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sampling and close every source."""
        self._stopping.set()
        panel = self._panel
        if self._unhook is not None:
            self._unhook()
        if self._thread is not None and panel is not None:
            panel.wake()
            self._thread.join(10.0)
            if self._thread.is_alive():
                self._fault = "the sampler's thread did not end"
                return
        if panel is not None:
            panel.__exit__()
        self._panel = self._thread = self._unhook = None

    def sample(self) -> HostSample:
        """Take one sample now, beside the schedule; it is returned, not recorded."""
        if self._panel is None:
            with Panel(self._sources, interval=self.interval) as panel:
                panel.settle(streams=True)
                return self._take(panel, None, time.thread_time_ns())
        if self._thread is None or threading.current_thread() is self._thread:
            return self._take(self._panel, None, time.thread_time_ns())
        self._answered.clear()
        self._wanted.set()
        self._panel.wake()
        while not self._answered.wait(0.1):
            if self.fault is not None or not self._thread.is_alive():
                raise RuntimeError(f"no sample: {self.fault or 'the sampler has stopped'}")
        assert self._extra is not None
        return self._extra

    def _take(self, panel: Panel, deadline_ns: int | None, cost_from_ns: int) -> HostSample:
        began, wall = self._clock.now_ns(), self._clock.wall()
        panel.refresh(self._grace)
        return HostSample(
            at=stamp(wall),
            at_ns=began,
            values=panel.readings(),
            phase=self.phase,
            segment=self.segment,
            took_ns=time.thread_time_ns() - cost_from_ns,
            late_ns=max(0, began - deadline_ns) if deadline_ns is not None else 0,
        )

    def _keep(self, sample: HostSample) -> None:
        self.latest = sample
        self._record(sample)

    def _tick(self) -> None:
        panel = self._panel
        if panel is None or self._fault is not None:
            return
        try:
            self._keep(self._take(panel, None, time.thread_time_ns()))
        except Exception as error:  # noqa: BLE001  whatever ended the sampling is the fault, and the soak must hear of it
            self._fault = f"{type(error).__name__}: {error}"

    def _run(self) -> None:
        panel = self._panel
        assert panel is not None
        try:
            panel.settle(streams=False)
            self._follow(panel)
        except Exception as error:  # noqa: BLE001  see _tick
            self._fault = f"{type(error).__name__}: {error}"

    def _follow(self, panel: Panel) -> None:
        interval = round(self.interval * 1e9)
        deadline, cost_from = self._clock.now_ns(), time.thread_time_ns()
        while not self._stopping.is_set():
            left = deadline - self._clock.now_ns()
            if left > 0:
                panel.wait(left / 1e9)
            if self._wanted.is_set():
                self._wanted.clear()
                self._extra = self._take(panel, None, time.thread_time_ns())
                self._answered.set()
            late = self._clock.now_ns() - deadline
            if late < 0 or self._stopping.is_set():
                continue
            # Whole missed intervals are a gap that the coverage sees; they are not made up for by a burst.
            deadline += late // interval * interval
            self._keep(self._take(panel, deadline, cost_from))
            cost_from = time.thread_time_ns()
            deadline += interval
