"""The panel: all sources of a host at work in one thread, and the newest reading of each value."""

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from gatekeeper.host.seat import LocalSeat, StreamSeat, seat
from gatekeeper.host.source import Source
from gatekeeper.host.values import UNITS, Lack
from gatekeeper.terms.records import Reading

_TELLING = (Lack.DENIED, Lack.PARSE_ERROR, Lack.STALE, Lack.ABSENT)
"""Which lack is reported when several sources lack a value: the one a person can do most about."""


class Panel:
    """Opens the sources, keeps their newest readings, and closes what it started.

    Times here are the machine's own: a tool takes real time even where the run's clock is virtual. There *gap* is the
    least real time between two runs of a tool, so that ten virtual minutes are not thousands of processes.
    """

    def __init__(self, sources: Sequence[Source], *, interval: float, gap: float = 0.0) -> None:
        self._seats = [seat(source, interval, gap) for source in sources]
        self._givers = {name: [one for one in self._seats if name in one.gives] for name in UNITS}
        self._selector = selectors.DefaultSelector()
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._woken = False
        self._selector.register(self._near, selectors.EVENT_READ, self._wake_up)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop every tool and stream."""
        for one in self._seats:
            one.close()
        self._selector.close()
        self._near.close()
        self._far.close()

    def wake(self) -> None:
        """End a `wait` of another thread; harmless when the panel is closed."""
        with contextlib.suppress(OSError):
            self._far.send(b"\0")

    def _wake_up(self) -> None:
        self._near.recv(4096)
        self._woken = True

    def settle(self, *, streams: bool, limit: float = 3.0) -> None:
        """Wait until each tool, and where *streams* each stream, has answered, failed or run out of time once."""
        waited = [one for one in self._seats if streams or not isinstance(one, StreamSeat)]
        self._start()
        self._pump(limit, lambda: all(one.settled for one in waited))

    def refresh(self, grace: float) -> None:
        """Read what answers at once, start the tools that are due, and give them *grace* seconds.

        A tool that needs longer goes on; its answer belongs to the next sample, with its age.
        """
        self._start()
        for one in self._seats:
            if isinstance(one, LocalSeat):
                one.read()
        self._pump(grace, lambda: not any(one.busy for one in self._seats))

    def wait(self, seconds: float) -> None:
        """Follow the streams for *seconds*, or until `wake`."""
        self._pump(seconds, lambda: self._woken)
        self._woken = False

    def readings(self) -> dict[str, Reading]:
        """Return every value: the first source that has a fresh one, else the most telling lack."""
        now = time.monotonic_ns()
        return {name: self._reading(name, now) for name in UNITS}

    def details(self) -> Mapping[str, str]:
        """Return what went wrong with each source that failed, in its own words."""
        return {one.name: one.detail for one in self._seats if one.detail}

    def _reading(self, name: str, now: int) -> Reading:
        lacks: list[tuple[int, Reading]] = []
        for one in self._givers[name]:
            value, age = one.current(name, now)
            if not isinstance(value, Lack):
                return Reading(value, UNITS[name], one.name, "ok", age)
            lacks.append((_TELLING.index(value), Reading(None, UNITS[name], one.name, value.value, age)))
        if not lacks:
            return Reading(None, UNITS[name], "none", Lack.ABSENT.value)
        return min(lacks, key=lambda ranked: ranked[0])[1]

    def _start(self) -> None:
        now = time.monotonic_ns()
        for one in self._seats:
            one.start(now, self._selector)

    def _pump(self, seconds: float, done: Callable[[], bool]) -> None:
        """Take what the children print until *seconds* have passed or *done*; always look at least once."""
        end = time.monotonic_ns() + round(max(0.0, seconds) * 1e9)
        while True:
            now = time.monotonic_ns()
            again = min((one.expire(now) for one in self._seats), default=end)
            finished = done() or now >= end
            pause = 0.0 if finished else (min(end, max(now, again)) - now) / 1e9
            for key, _ in self._selector.select(pause):
                key.data()
            if finished:
                return
            for one in self._seats:
                if isinstance(one, StreamSeat):
                    one.start(time.monotonic_ns(), self._selector)
