"""The evidence: what was lately seen, of bounded size, forgotten by age, by a change of the setting and by a sleep."""

import threading
from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime

from gatekeeper.core.clock import Clock
from gatekeeper.core.records import Generation, HostSample
from gatekeeper.deploy.watch.guards import Tally

ANSWERS = 2000
"""Most answers that are kept of a workload."""
PIECES = 100_000
"""Most arrivals that they may hold together: answers of a thousand tokens must not fill the memory."""
SAMPLES = 8_000
"""Most samples of the host: thirty megabytes. Who looks back for longer has to sample less often."""
TALLIES = 5_000


class Answers:
    """The answers of one workload."""

    def __init__(self, now_ns: int) -> None:
        self.since_ns = now_ns
        self._kept: deque[Generation] = deque()
        self._pieces = 0

    def add(self, one: Generation) -> None:
        """Keep one more; the oldest go where there are too many."""
        self._kept.append(one)
        self._pieces += len(one.answer.arrivals)
        while len(self._kept) > ANSWERS or (self._pieces > PIECES and len(self._kept) > 1):
            self._drop()

    def forget(self, now_ns: int) -> None:
        """Throw everything away: what comes now is of another setting, or of another time."""
        self._kept.clear()
        self._pieces, self.since_ns = 0, now_ns

    def of(self, now_ns: int, window: float) -> tuple[Generation, ...]:
        """Return what is not older than *window* seconds, and drop the rest."""
        while self._kept and (now_ns - self._kept[0].answer.ended_ns) / 1e9 > window:
            self._drop()
        return tuple(self._kept)

    def _drop(self) -> None:
        self._pieces -= len(self._kept.popleft().answer.arrivals)


class Host:
    """The samples of the host, which a thread of the sampler adds to, and the counters of the server."""

    def __init__(self) -> None:
        self._samples: deque[HostSample] = deque(maxlen=SAMPLES)
        self._tallies: deque[Tally] = deque(maxlen=TALLIES)
        self._lock = threading.Lock()
        self.segment = 0
        """Which unbroken stretch: nothing is compared across a sleep."""

    def sampled(self, sample: HostSample) -> None:
        """Keep one more sample."""
        with self._lock:
            self._samples.append(replace(sample, segment=self.segment))

    def counted(self, tally: Tally) -> None:
        """Keep what the server's counters gained."""
        self._tallies.append(tally)

    def forget(self) -> None:
        """Throw everything away after a sleep."""
        with self._lock:
            self._samples.clear()
        self._tallies.clear()
        self.segment += 1

    def samples(self, now_ns: int, window: float) -> tuple[HostSample, ...]:
        """Return the samples not older than *window* seconds, and drop the rest."""
        oldest = now_ns - round(window * 1e9)
        with self._lock:
            while self._samples and self._samples[0].at_ns < oldest:
                self._samples.popleft()
            return tuple(self._samples)

    def tallies(self, now_ns: int, window: float) -> tuple[Tally, ...]:
        """Return the counters' gains not older than *window* seconds, and drop the rest."""
        while self._tallies and (now_ns - self._tallies[0].at_ns) / 1e9 > window:
            self._tallies.popleft()
        return tuple(self._tallies)


LEAST_S = 2.0
"""Smaller corrections of the time of day are a time server's daily work."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks."""

    now_ns: int
    wall: datetime

    @classmethod
    def of(cls, clock: Clock) -> "Instant":
        """Read both clocks."""
        return cls(clock.now_ns(), clock.wall())


def gap(before: Instant, now: Instant, *, expected: float, interval: float) -> str | None:
    """Say what happened where more, or other, time went by than *expected* seconds; None where all is well.

    Durations are the monotonic clock's, which stands still while a host sleeps. Where the time of day went on without
    it, the host slept or somebody set the clock; the two can not be told apart, and nothing seen before counts.
    """
    passed = (now.now_ns - before.now_ns) / 1e9
    told = (now.wall - before.wall).total_seconds()
    much = max(2 * interval, LEAST_S)
    if told - passed > much:
        return f"the host slept, or its clock was set {told - passed:.0f} s forward"
    if passed - told > much:
        return f"the clock was set {passed - told:.0f} s back"
    if passed - expected > much:
        return f"the watch was held up for {passed - expected:.0f} s"
    return None
