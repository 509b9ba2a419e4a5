"""The pace: how often canaries may be asked, so that their share of a server's time stays bounded."""

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """An account of seconds: time pays `duty` into it, answers take theirs out, and none is asked while it is below 0.

    Answers are asked one at a time, so their seconds are the server's. Over any stretch of time they are at most its
    `duty`, what was saved up before it, and one turn.
    """

    duty: float
    """The largest share of time that answers may take."""
    most: float
    """Seconds of answers that may be saved up: idle time is no licence for a burst."""
    begun_ns: int
    spent: float = 0.0
    balance: float = 0.0
    asked: int = 0
    seen_ns: int = 0

    def __post_init__(self) -> None:
        """Begin to count at the beginning."""
        self.seen_ns = self.begun_ns

    def may(self, now_ns: int) -> bool:
        """Tell whether the next turn is paid for at *now_ns*."""
        self._earn(now_ns)
        return self.balance >= 0

    def spend(self, seconds: float, now_ns: int) -> None:
        """Book what one answer took, which ended at *now_ns*."""
        self._earn(now_ns)
        self.spent += seconds
        self.balance -= seconds
        self.asked += 1

    def share(self, now_ns: int) -> float:
        """Return the share of the time since the beginning that answers took."""
        passed = (now_ns - self.begun_ns) / 1e9
        return min(1.0, self.spent / passed) if passed > 0 else 0.0

    def rest(self, now_ns: int) -> float:
        """Return the seconds until the next turn is paid for."""
        self._earn(now_ns)
        return max(0.0, -self.balance / self.duty)

    def _earn(self, now_ns: int) -> None:
        self.balance = min(self.most, self.balance + self.duty * max(0, now_ns - self.seen_ns) / 1e9)
        self.seen_ns = now_ns
