"""Recent answers, host samples and counters of a watch, in bounded memory: the evidence of its guards."""

import threading
from collections import deque
from dataclasses import dataclass, replace

from gatekeeper.core.records import Generation, HostSample
from gatekeeper.live.running.deployed_server import CounterGain

MAX_ANSWERS = 2000
"""Most answers kept per workload."""
MAX_ARRIVALS = 100_000
"""Most arrivals they may hold together, so that long answers do not fill the memory."""
MAX_SAMPLES = 8_000
"""Most host samples, 30 MB. A longer window needs a longer interval."""
MAX_COUNTER_GAINS = 5_000


@dataclass(frozen=True, slots=True)
class GuardEvidence:
    """The recent evidence of one workload, as far back as the longest guard window, the oldest first."""

    now_ns: int
    """Monotonic, as every instant here."""
    since_ns: int
    """Start of the evidence: the last change of the setting, the start of the watch, or the end of a sleep."""
    answers: tuple[Generation, ...] = ()
    """Answers of both arms, each with its requested setting; a paired answer and its baseline share a pair."""
    samples: tuple[HostSample, ...] = ()
    counter_gains: tuple[CounterGain, ...] = ()
    """Gains of the whole server: they decide for a route only through the lowest acceptance bound of all routes."""


class RecentAnswers:
    """The answers of one workload."""

    def __init__(self, now_ns: int) -> None:
        self.since_ns = now_ns
        self._kept: deque[Generation] = deque()
        self._arrivals = 0

    def add(self, generation: Generation) -> None:
        """Keep one more; drop the oldest where there are too many."""
        self._kept.append(generation)
        self._arrivals += len(generation.answer.arrivals)
        while len(self._kept) > MAX_ANSWERS or (self._arrivals > MAX_ARRIVALS and len(self._kept) > 1):
            self._drop()

    def forget(self, now_ns: int) -> None:
        """Drop everything, after a change of the setting or a gap in time."""
        self._kept.clear()
        self._arrivals, self.since_ns = 0, now_ns

    def within(self, now_ns: int, window: float) -> tuple[Generation, ...]:
        """Return the answers not older than *window* seconds, and drop the rest."""
        while self._kept and (now_ns - self._kept[0].answer.ended_ns) / 1e9 > window:
            self._drop()
        return tuple(self._kept)

    def _drop(self) -> None:
        self._arrivals -= len(self._kept.popleft().answer.arrivals)


class RecentHost:
    """The host samples, added by the sampler's thread, and the gains of the server's counters."""

    def __init__(self) -> None:
        self._samples: deque[HostSample] = deque(maxlen=MAX_SAMPLES)
        self._gains: deque[CounterGain] = deque(maxlen=MAX_COUNTER_GAINS)
        self._lock = threading.Lock()
        self.segment = 0
        """Number of the stretch between two sleeps; nothing is compared across a sleep."""

    def add_sample(self, sample: HostSample) -> None:
        """Keep one more sample."""
        with self._lock:
            self._samples.append(replace(sample, segment=self.segment))

    def add_gain(self, gain: CounterGain) -> None:
        """Keep one more gain of the server's counters."""
        self._gains.append(gain)

    def forget(self) -> None:
        """Drop everything after a sleep."""
        with self._lock:
            self._samples.clear()
        self._gains.clear()
        self.segment += 1

    def samples(self, now_ns: int, window: float) -> tuple[HostSample, ...]:
        """Return the samples not older than *window* seconds, and drop the rest."""
        oldest = now_ns - round(window * 1e9)
        with self._lock:
            while self._samples and self._samples[0].at_ns < oldest:
                self._samples.popleft()
            return tuple(self._samples)

    def counter_gains(self, now_ns: int, window: float) -> tuple[CounterGain, ...]:
        """Return the counters' gains not older than *window* seconds, and drop the rest."""
        while self._gains and (now_ns - self._gains[0].at_ns) / 1e9 > window:
            self._gains.popleft()
        return tuple(self._gains)
