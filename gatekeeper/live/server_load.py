"""Requests in flight at each server, and how many of them one answer met while it was written."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadMet:
    """Answers in flight, in the mean over some time."""

    same: float
    """At the server of the answer, itself included."""
    elsewhere: float = 0.0
    """At the other server, which may share the machine."""


IDLE = LoadMet(1.0)
Areas = tuple[int, dict[str, float]]


class ServerLoad:
    """Counts the answers in flight at each server."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns, self._counts = now_ns, dict[str, int]()
        self._areas, self._at_ns = dict[str, float](), 0

    def begin(self, server: str, answers: int = 1) -> "ServedRequest":
        """Count a request that goes to *server* now."""
        return ServedRequest(self, server, answers, self.count(server, answers))

    def count(self, server: str, answers: int) -> Areas:
        """Add answers in flight at *server*; fewer than 0 have ended. Return what `areas` does."""
        areas = self.areas()
        self._counts[server] = self._counts.get(server, 0) + answers
        return areas

    def areas(self) -> Areas:
        """Return the time and, for each server, the answers in flight integrated until then (in ns)."""
        now_ns = self._now_ns()
        for server, count in self._counts.items():
            self._areas[server] = self._areas.get(server, 0.0) + count * (now_ns - self._at_ns)
        self._at_ns = now_ns
        return now_ns, dict(self._areas)


class ServedRequest:
    """A request at its server, from when it is sent until its answer has ended."""

    def __init__(self, load: ServerLoad, server: str, answers: int, begun: Areas) -> None:
        self._load, self._server, self._answers = load, server, answers
        self._marks = [begun]
        self.waiting: LoadMet = IDLE
        """Met until the first text; until the end where there is none."""
        self.decoding: LoadMet = IDLE
        """Met from the first text on; from the beginning where there is none."""

    def first_text(self) -> None:
        """Mark the moment of the first text."""
        self._marks.append(self._load.areas())

    def end(self) -> None:
        """Stop counting the request; its loads are known."""
        self._marks.append(self._load.count(self._server, -self._answers))
        self.waiting, self.decoding = self._average_load(0, 1), self._average_load(-2, -1)

    def _average_load(self, first: int, last: int) -> LoadMet:
        (begun_ns, before), (ended_ns, after) = self._marks[first], self._marks[last]
        if ended_ns <= begun_ns:
            return LoadMet(float(self._answers))
        met = {server: (area - before.get(server, 0.0)) / (ended_ns - begun_ns) for server, area in after.items()}
        same = met.pop(self._server)
        return LoadMet(same, sum(met.values()))
