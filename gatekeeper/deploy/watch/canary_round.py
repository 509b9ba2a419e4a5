"""A look: which canaries are asked now, in which arm, and what of their answers is evidence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gatekeeper.analysis.plan.rounds import in_shuffled_rounds
from gatekeeper.analysis.plan.settings import plain_of, sampling_for, with_conditions
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.interfaces import DecodeRequest
from gatekeeper.core.policy import WATCHED
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.deploy.watch.server import Post


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


TWINNED = frozenset(name for name, metric in WATCHED.items() if metric.against_plain)
"""Metrics that compare with plain decoding's answer to the same canary."""

Arm = Literal["plain", "candidate"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a look wants to know of one workload."""

    workload: str
    knobs: Setting
    """Those that are judged."""
    certified: Setting
    """What the server is asked with where it can not be told to decode plainly."""
    twin: bool
    """A plain answer belongs to each."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer, and whether it may be judged."""

    generation: Generation
    counts: bool
    """False for a sound first answer of a server that has just begun: it is no picture of the others."""


class Round:
    """Asks the canaries of every workload in turn, as far as the pace allows."""

    def __init__(self, slo: Slo, canaries: Mapping[str, Sequence[Canary]], post: Post, clock: Clock) -> None:
        self._slo, self._canaries, self._post, self._clock = slo, canaries, post, clock
        self._next: dict[str, int] = {}
        self._asked = 0
        self._cold: set[str] = set(canaries)
        self._costs: dict[str, float] = {}
        """What the last turn of a workload took; it has none before its first."""

    def restarted(self) -> None:
        """Take the server for one that has just begun: its first answers load and compile."""
        self._cold = set(self._canaries)

    def ask(self, wishes: Sequence[Wish], most: int, pace: Pace) -> Iterator[Asked]:
        """Ask up to *most* canaries of each workload while the pace allows, the longest unasked workload first.

        The very first canary of each workload is asked in any case, and paid for afterwards.
        """
        waiting = sorted(wishes, key=lambda wish: self._next.get(wish.workload, 0))
        for _ in range(most):
            for wish in waiting:
                cost = self._costs.get(wish.workload)
                if cost is not None and not pace.may(cost, self._clock.now_ns()):
                    return
                before = pace.spent
                yield from self._turn(wish, pace)
                self._costs[wish.workload] = pace.spent - before

    def _turn(self, wish: Wish, pace: Pace) -> Iterator[Asked]:
        canaries, number = self._canaries[wish.workload], self._next.get(wish.workload, 0)
        self._next[wish.workload] = number + 1
        canary = in_shuffled_rounds(canaries, number, wish.workload)
        twin = wish.twin and self._post.both_arms and dict(wish.knobs).get("draft") is not None
        arms: tuple[Arm, ...] = ("candidate", "plain") if twin else ("candidate",)
        cold = wish.workload in self._cold
        self._asked += 1
        pair = f"{self._asked}" if twin else ""
        # Each arm goes first every other time, so that neither always finds what the other left behind.
        answers = [self._one(wish, canary, arm, pair, pace) for arm in (arms if number % 2 else arms[::-1])]
        sound = all(one.answer.fault is None for one in answers)
        if sound:
            self._cold.discard(wish.workload)
        for one in answers:
            yield Asked(one, counts=not (cold and sound))

    def _one(self, wish: Wish, canary: Canary, arm: Arm, pair: str, pace: Pace) -> Generation:
        knobs = wish.knobs if arm == "candidate" else plain_of(wish.knobs)
        served = wish.certified if dict(knobs).get("draft") is None and not self._post.both_arms else knobs
        setting = with_conditions(self._slo, served)
        answer = self._post.answer(DecodeRequest(canary, setting, sampling_for(self._slo, canary, setting, 1)))
        pace.spend(max(0, answer.ended_ns - answer.sent_ns) / 1e9, self._clock.now_ns())
        return Generation(
            trial="watch",
            key=f"{self._asked}-{arm}",
            workload=wish.workload,
            canary=canary.id,
            arm=arm,
            setting=knobs,
            role=Role.SENTINEL if pair and arm == "plain" else Role.MEASURED,
            repeat=0,
            pair=pair,
            concurrency=1,
            answer=answer,
            at=stamp(self._clock.wall()),
        )
