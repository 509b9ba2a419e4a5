"""A canary round: the canary prompts to request now, in which arm, and which answers are evidence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gatekeeper.analysis.plan.planned_request import in_shuffled_rounds
from gatekeeper.analysis.plan.settings import plain_of, sampling_for, speculates, with_conditions
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import Clock, stamp
from gatekeeper.core.interfaces import DecodeRequest
from gatekeeper.core.metrics import WATCHED
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.live.running.deployed_server import DeployedServer


class DutyBudget:
    """A budget of seconds: it grows by the share `duty` of the time, and a turn waits until it covers the turn.

    Requests are sent one at a time, so their seconds are the server's. Together they stay below `duty` of the time so
    far, except for the first round, which is sent in advance, and for the excess of a turn over the one before it.
    """

    def __init__(self, duty: float, interval: float, begun_ns: int) -> None:
        """Allow answers the share *duty* of the time; save up at most the budget of *interval* seconds."""
        self.duty, self.interval = duty, interval
        self._begun_ns = self._seen_ns = begun_ns
        self.spent = self.balance = 0.0
        self.requests = 0

    def affords(self, cost: float, now_ns: int) -> bool:
        """Return whether the budget at *now_ns* covers a turn of *cost* seconds."""
        self._earn(cost, now_ns)
        return self.balance >= cost

    def spend(self, seconds: float, now_ns: int) -> None:
        """Subtract the seconds of one answer, which ended at *now_ns*."""
        self._earn(seconds, now_ns)
        self.spent += seconds
        self.balance -= seconds
        self.requests += 1

    def share(self, now_ns: int) -> float:
        """Return the share of the time that answers took so far; the first interval counts in full from the start."""
        return self.spent / max(self.interval, (now_ns - self._begun_ns) / 1e9)

    def _earn(self, cost: float, now_ns: int) -> None:
        # The balance is capped, so that idle time does not allow a burst.
        most = self.duty * self.interval + cost
        self.balance = min(max(most, self.balance), self.balance + self.duty * max(0, now_ns - self._seen_ns) / 1e9)
        self._seen_ns = now_ns


PAIRED_METRICS = frozenset(name for name, metric in WATCHED.items() if metric.against_plain)
"""Metrics that compare with plain decoding's answer to the same canary."""

Arm = Literal["plain", "candidate"]


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """What a round requests of one workload."""

    workload: str
    knobs: Setting
    """Those that are judged."""
    certified: Setting
    """The setting to request where the server cannot switch to plain decoding."""
    paired: bool
    """Whether each answer needs a baseline answer."""


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """One answer, and whether it may be judged."""

    generation: Generation
    counts: bool
    """False for a successful first answer of a server that has just started: it is not typical."""


class CanaryRound:
    """Requests the canaries of every workload in turn, as far as the budget allows."""

    def __init__(
        self, slo: Slo, canaries: Mapping[str, Sequence[Canary]], server: DeployedServer, clock: Clock
    ) -> None:
        self._slo, self._canaries, self._server, self._clock = slo, canaries, server, clock
        self._next: dict[str, int] = {}
        self._turns = 0
        self._cold: set[str] = set(canaries)
        self._costs: dict[str, float] = {}
        """Seconds of the last turn of each workload; none before its first."""

    def expect_cold_answers(self) -> None:
        """Treat the server as just started: its first answers load and compile."""
        self._cold = set(self._canaries)

    def send(self, requests: Sequence[RoundRequest], most: int, budget: DutyBudget) -> Iterator[RoundAnswer]:
        """Send up to *most* canaries of each workload while the budget lasts, the longest waiting workload first.

        The first canary of each workload is always sent, and charged to the budget afterwards.
        """
        waiting = sorted(requests, key=lambda request: self._next.get(request.workload, 0))
        for _ in range(most):
            for request in waiting:
                cost = self._costs.get(request.workload)
                if cost is not None and not budget.affords(cost, self._clock.now_ns()):
                    return
                before = budget.spent
                yield from self._turn(request, budget)
                self._costs[request.workload] = budget.spent - before

    def _turn(self, request: RoundRequest, budget: DutyBudget) -> Iterator[RoundAnswer]:
        name, number = request.workload, self._next.get(request.workload, 0)
        self._next[name] = number + 1
        canary = in_shuffled_rounds(self._canaries[name], number, name)
        paired = request.paired and self._server.both_arms and speculates(request.knobs)
        arms: tuple[Arm, ...] = ("candidate", "plain") if paired else ("candidate",)
        cold = name in self._cold
        self._turns += 1
        # The arms alternate in going first, so that neither always meets the caches that the other left.
        order = arms if number % 2 else arms[::-1]
        generations = [self._send(request, canary, arm, budget, paired=paired) for arm in order]
        all_answered = all(generation.answer.fault is None for generation in generations)
        if all_answered:
            self._cold.discard(name)
        for generation in generations:
            yield RoundAnswer(generation, counts=not (cold and all_answered))

    def _send(self, request: RoundRequest, canary: Canary, arm: Arm, budget: DutyBudget, *, paired: bool) -> Generation:
        knobs = request.knobs if arm == "candidate" else plain_of(request.knobs)
        served = knobs if speculates(knobs) or self._server.both_arms else request.certified
        setting = with_conditions(self._slo, served)
        answer = self._server.send(DecodeRequest(canary, setting, sampling_for(self._slo, canary, setting, 1)))
        budget.spend(max(0, answer.ended_ns - answer.sent_ns) / 1e9, self._clock.now_ns())
        return Generation(
            trial="watch",
            key=f"{self._turns}-{arm}",
            workload=request.workload,
            canary=canary.id,
            arm=arm,
            setting=knobs,
            role=Role.BASELINE if paired and arm == "plain" else Role.MEASURED,
            repeat=0,
            pair=f"{self._turns}" if paired else "",
            concurrency=1,
            answer=answer,
            at=stamp(self._clock.wall()),
        )
