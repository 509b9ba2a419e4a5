"""The pace: how often canaries may be asked, so that their share of a server's time stays bounded."""

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """An account of seconds: time pays `duty` into it, answers take theirs out, and a turn waits until it is paid for.

    Answers are asked one at a time, so their seconds are the server's. They are never more than `duty` of the time so
    far, but for what the first look asked ahead of its time, and by how much a turn cost more than the last.
    """

    duty: float
    """The largest share of time that answers may take."""
    interval: float
    """Seconds; so long a time may be saved up, for idle time is no licence for a burst."""
    begun_ns: int
    spent: float = 0.0
    balance: float = 0.0
    asked: int = 0
    seen_ns: int = 0

    def __post_init__(self) -> None:
        """Begin to count at the beginning."""
        self.seen_ns = self.begun_ns

    def may(self, cost: float, now_ns: int) -> bool:
        """Tell whether a turn of *cost* seconds is paid for at *now_ns*."""
        self._earn(cost, now_ns)
        return self.balance >= cost

    def spend(self, seconds: float, now_ns: int) -> None:
        """Book what one answer took, which ended at *now_ns*."""
        self._earn(seconds, now_ns)
        self.spent += seconds
        self.balance -= seconds
        self.asked += 1

    def share(self, now_ns: int) -> float:
        """Return the share of the time since the beginning that answers took; the first interval counts as a whole."""
        return self.spent / max(self.interval, (now_ns - self.begun_ns) / 1e9)

    def _earn(self, cost: float, now_ns: int) -> None:
        most = self.duty * self.interval + cost
        self.balance = min(max(most, self.balance), self.balance + self.duty * max(0, now_ns - self.seen_ns) / 1e9)
        self.seen_ns = now_ns
