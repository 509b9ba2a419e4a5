"""The soak: the chosen settings under load, long enough to judge them, compared with plain decoding."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.analysis.plan.soak_schedule import (
    PLAIN_BLOCKS,
    WARMUPS,
    Coverage,
    SoakRequest,
    canaries_needed,
    closing_requests,
    plain_block,
    soak_requests,
    swept_canaries,
)
from gatekeeper.core.clock import Clock
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.slo import Profile
from gatekeeper.run.requests import Client, Observe, Request, SoakTask, build_request


class Phase(Protocol):
    """Names the phase that host samples belong to; samples outside a named phase are ignored."""

    def __call__(self, name: str, stretch: int = 0, /) -> None:
        """Name the phase that begins now, and which unbroken stretch of it."""


def soak(
    task: SoakTask,
    profile: Profile,
    client: Client,
    plain_client: Callable[[], Client],
    clock: Clock,
    *,
    woven: bool,
    record: Callable[[Generation], None],
    phase: Phase,
    observe: Observe,
) -> None:
    """Send requests until the duration is over and every objective has enough answers, or max_duration is over.

    Counts decide how long it continues, never values. *woven*: baseline requests are mixed in. Otherwise plain blocks
    come before, midway through and after the soak, in a process of their own; their time belongs to no phase, so that
    the host is judged only while the candidate is running. Records of earlier, interrupted segments count, but the
    clock starts over.
    """
    wanted = {
        name: canaries_needed(task.slo, name, knobs, task.canaries[name], forced=name in task.forced)
        for name, knobs in task.settings.items()
    }
    run = _Soak(task, profile, client, clock, woven, record, observe, Coverage(wanted, task.compared))
    # The last block is sent after the soak, which need not wait for the canaries that it will answer.
    for planned in [] if woven else plain_block(task.settings, task.canaries, PLAIN_BLOCKS - 1):
        run.coverage.add(planned.workload, planned.arm, planned.canary.id)
    for one in task.before:
        run.count(one)
    run.task = task = replace(task, before=())
    run.plain_block(0, plain_client, phase)
    client.open(task.resident)
    client.send_all(run.warmups(), 1, run.note)
    apart = not woven and any(speculates(knobs) for knobs in task.settings.values())
    duration = task.seconds or task.slo.soak.duration
    half = duration / 2 if apart else 0.0
    if half:
        phase(task.name, 0)
        run.load(number=0, until_s=half, counting=False)
        run.plain_block(1, plain_client, phase)
    phase(task.name, 1)
    run.load(number=1, until_s=duration - half, counting=True)
    phase("")
    last = closing_requests(task.settings, task.canaries)
    observe("closing", {"soak": task.name, "answers": len(last)})
    run.send(client, last, "closing")
    if apart:
        client.close()
    run.plain_block(2, plain_client, phase)


@dataclass(slots=True)
class _Soak:
    task: SoakTask
    profile: Profile
    client: Client
    clock: Clock
    woven: bool
    record: Callable[[Generation], None]
    observe: Observe
    coverage: Coverage
    made: int = 0
    """Answers so far, those of earlier segments included."""
    order: Iterator[Sequence[SoakRequest]] | None = None
    """The requests to come: the second half of a soak goes on where the first one stopped."""

    def count(self, one: Generation) -> None:
        self.made += 1
        if one.role is not Role.WARMUP:
            self.coverage.add(one.workload, one.arm, one.canary, one.pair)

    def note(self, one: Generation) -> None:
        self.record(one)
        self.count(one)
        self.observe("answer", {"generation": one, "soak": self.task.name})

    def send(self, client: Client, some: Sequence[SoakRequest], prefix: str) -> None:
        requests = (self.request(turn, f"{prefix}-{at}") for at, turn in enumerate(some))
        client.send_all(requests, self.task.slo.soak.concurrency, self.note)

    def warmups(self) -> Iterator[Request]:
        for name, knobs in self.task.settings.items():
            arm = "candidate" if speculates(knobs) else "plain"
            for at, canary in enumerate(self.task.canaries[name][:WARMUPS]):
                yield self.request(SoakRequest(name, canary, arm, Role.WARMUP, ""), f"warmup-{self.task.segment}-{at}")

    def plain_block(self, number: int, plain_client: Callable[[], Client], phase: Phase) -> None:
        steps = plain_block(self.task.settings, self.task.canaries, number)
        if self.woven or not steps:
            return
        phase("")
        self.observe("block", {"soak": self.task.name, "block": number + 1, "answers": len(steps)})
        with plain_client() as client:
            client.open(plain_of(self.task.resident))
            for group in ([replace(step, role=Role.WARMUP) for step in steps[:WARMUPS]], steps):
                self.send(client, group, f"{group[0].role}-{number}")

    def load(self, *, number: int, until_s: float, counting: bool) -> None:
        """Keep the system busy for *until_s* seconds; *counting* continues until the objectives have enough answers."""
        task, now_ns = self.task, self.clock.now_ns
        begun = answered = now_ns()
        longest = task.seconds or task.slo.soak.max_duration
        over = longest - ((task.seconds or task.slo.soak.duration) - until_s)

        def note(one: Generation) -> None:
            nonlocal answered
            self.note(one)
            answered = now_ns()

        def more() -> bool:
            if self.client.gave_up or (now_ns() - begun) / 1e9 >= over:
                return False
            # It ends with the last answer, not with the pause after it: the records must cover the whole duration.
            return (answered - begun) / 1e9 < until_s or (counting and bool(self.coverage.lacking()))

        self.observe("soaking", {"soak": task.name, "seconds": until_s, "most": over if counting else until_s})
        requests = self.paced(self.turns(more, number))
        self.client.send_all(requests, task.slo.soak.concurrency, note, pause_s=self.profile.idle)

    def turns(self, more: Callable[[], bool], stretch: int) -> Iterator[Request]:
        task = self.task
        tiers = {one.name: one.tier for one in task.slo.workload}
        weights = {name: self.profile.weight(name, tiers[name]) for name in task.settings}
        share = task.slo.soak.sentinel_share if self.woven else 0.0
        number = self.made
        if self.order is None:
            seed = task.seed + task.segment * 1_000_003 + number
            swept = swept_canaries(task.slo, task.canaries)
            self.order = soak_requests(
                task.settings, task.canaries, weights, sentinel_share=share, seed=seed, swept=swept
            )
        while more():
            for turn in next(self.order):
                number += 1
                yield self.request(turn, f"{task.segment}-{number}", stretch)

    def paced(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Delay each request of an open profile until it is due; a closed one sends it after the last answer."""
        begun = self.clock.now_ns()
        for number, request in enumerate(requests):
            if self.profile.rate is not None:
                due_s = number / self.profile.rate - (self.clock.now_ns() - begun) / 1e9
                self.clock.sleep(max(0.0, due_s))
            yield request

    def request(self, turn: SoakRequest, prefix: str, stretch: int = 0) -> Request:
        knobs = self.task.settings[turn.workload]
        return build_request(
            self.task.slo,
            self.task.name,
            prefix,
            turn.workload,
            turn.canary,
            turn.arm,
            knobs if turn.arm == "candidate" else plain_of(knobs),
            turn.role,
            repeat=stretch,
            pair=turn.pair,
            concurrency=self.task.slo.soak.concurrency,
        )
