"""The soak: the chosen settings under load, long enough to judge them, compared with plain decoding."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gatekeeper.analysis.metrics.host.energy import REST
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.analysis.plan.soak_schedule import (
    WARMUPS,
    Coverage,
    SoakPlan,
    canaries_needed,
    closing_requests,
    plain_block,
    rest_s,
    soak_requests,
    stretches,
    swept_canaries,
    warmup_requests,
)
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import Clock
from gatekeeper.core.records import EventKind, Generation, Role
from gatekeeper.core.slo import Profile, Slo
from gatekeeper.run.requests import Client, Recorder


@dataclass(frozen=True, slots=True)
class SoakTask:
    """One soak: the workloads that are served together, each with its setting."""

    slo: Slo
    plan: SoakPlan
    canaries: Mapping[str, Sequence[Canary]]
    seed: int
    segment: int
    before: tuple[Generation, ...] = ()
    """What earlier parts, and interrupted segments, recorded."""
    compared: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The canaries that the sweep answered in both arms at this setting, by workload."""
    forced: Collection[str] = ()
    """The workloads whose words are compared by teacher forcing."""


class Phase(Protocol):
    """Names the phase that host samples belong to; samples outside a named phase are ignored."""

    def __call__(self, name: str, stretch: int = 0, /) -> None:
        """Name the phase that begins now, and which unbroken stretch of it."""


def soak(
    task: SoakTask,
    profile: Profile,
    client: Client,
    recorder: Recorder,
    *,
    plain_client: Callable[[], Client],
    clock: Clock,
    woven: bool,
    phase: Phase,
) -> None:
    """Send requests until the duration is over and every objective has enough answers, or max_duration is over.

    Counts decide how long it continues, never values. *woven*: baseline requests are mixed in. Otherwise plain blocks
    come before, between and after the stretches of a soak, in a process of their own; their time is of no phase, so
    that the host is judged only while the candidate is running. Records of earlier, interrupted segments count, but the
    clock starts over.
    """
    needs = {
        name: canaries_needed(task.slo, name, knobs, task.canaries[name], forced=name in task.forced)
        for name, knobs in task.plan.settings.items()
    }
    run = _Soak(
        task=task, profile=profile, client=client, recorder=recorder, clock=clock, woven=woven,
        coverage=Coverage(needs, task.compared),
    )  # fmt: skip
    # The last block is sent after the soak, which need not wait for the canaries that it will answer.
    for planned in [] if woven else plain_block(task.slo, task.plan.settings, task.canaries, run.parts, run.parts + 1):
        run.coverage.add(planned.workload, planned.arm, planned.canary.id)
    for generation in task.before:
        run.count(generation)
    run.task = task = replace(task, before=())
    run.plain_block(0, plain_client, phase)
    client.open(task.plan.resident)
    run.rest(phase)
    client.send_all(run.warmups(), 1, run.note)
    for number in range(run.parts):
        if number:
            run.plain_block(number, plain_client, phase)
        phase(task.plan.name, number)
        run.load(number=number, until_s=run.duration / run.parts, counting=number == run.parts - 1)
    run.rest(phase)
    phase("")
    last = closing_requests(task.plan.settings, task.canaries)
    recorder.observe(EventKind.CLOSING, {"soak": task.plan.name, "answers": len(last)})
    run.send(client, last, "closing")
    if run.apart:
        client.close()
    run.plain_block(run.parts, plain_client, phase)


@dataclass(slots=True)
class _Soak:
    task: SoakTask
    profile: Profile
    client: Client
    recorder: Recorder
    clock: Clock
    woven: bool
    coverage: Coverage
    answers: int = 0
    """So far, those of earlier segments included."""
    order: Iterator[Sequence[PlannedRequest]] | None = None
    """The requests to come: the second half of a soak goes on where the first one stopped."""

    @property
    def duration(self) -> float:
        """Return the seconds that it lasts at least."""
        return self.task.plan.seconds or self.task.slo.soak.duration

    @property
    def apart(self) -> bool:
        """Return whether plain decoding is measured in blocks of its own."""
        return not self.woven and any(speculates(knobs) for knobs in self.task.plan.settings.values())

    @property
    def parts(self) -> int:
        """Return how many stretches it has."""
        return stretches(self.duration) if self.apart else 1

    def count(self, generation: Generation) -> None:
        self.answers += 1
        if generation.role is not Role.WARMUP:
            self.coverage.add(generation.workload, generation.arm, generation.canary, generation.pair)

    def note(self, generation: Generation) -> None:
        self.recorder(generation)
        self.count(generation)

    def send(self, client: Client, requests: Sequence[PlannedRequest], prefix: str) -> None:
        client.send_all(self.plan_requests(requests, prefix), self.task.slo.soak.concurrency, self.note)

    def plan_requests(
        self, requests: Sequence[PlannedRequest], prefix: str, stretch: int = 0
    ) -> Iterator[PlannedRequest]:
        return (self.request(request, f"{prefix}-{number}", stretch) for number, request in enumerate(requests))

    def warmups(self) -> Iterator[PlannedRequest]:
        for name, knobs in self.task.plan.settings.items():
            requests = warmup_requests(name, knobs, self.task.canaries[name])
            yield from self.plan_requests(requests, f"warmup-{self.task.segment}")

    def plain_block(self, number: int, plain_client: Callable[[], Client], phase: Phase) -> None:
        requests = plain_block(self.task.slo, self.task.plan.settings, self.task.canaries, number, self.parts + 1)
        if self.woven or not requests:
            return
        phase("")
        detail = {"soak": self.task.plan.name, "block": number + 1, "answers": len(requests)}
        self.recorder.observe(EventKind.BLOCK, detail)
        with plain_client() as client:
            client.open(plain_of(self.task.plan.resident))
            for group in ([replace(request, role=Role.WARMUP) for request in requests[:WARMUPS]], requests):
                planned = self.plan_requests(group, f"{group[0].role}-{number}", number)
                client.send_all(planned, self.task.slo.soak.concurrency, self.note)

    def rest(self, phase: Phase) -> None:
        """Let the host's power at rest be sampled, where an objective needs it."""
        if seconds := rest_s(self.task.slo, self.task.plan.settings):
            phase(REST)
            self.recorder.observe(EventKind.RESTING, {"soak": self.task.plan.name, "seconds": seconds})
            self.clock.sleep(seconds)
            phase("")

    def load(self, *, number: int, until_s: float, counting: bool) -> None:
        """Keep the system busy for *until_s* seconds; *counting* continues until the objectives have enough answers."""
        task, now_ns = self.task, self.clock.now_ns
        begun = answered = now_ns()
        longest = task.plan.seconds or task.slo.soak.max_duration
        over = longest - (self.duration - until_s)

        def note(generation: Generation) -> None:
            nonlocal answered
            self.note(generation)
            answered = now_ns()

        def more() -> bool:
            if self.client.gave_up or (now_ns() - begun) / 1e9 >= over:
                return False
            # It ends with the last answer, not with the pause after it: the records must cover the whole duration.
            return (answered - begun) / 1e9 < until_s or (counting and bool(self.coverage.lacking()))

        most = over if counting else until_s
        self.recorder.observe(EventKind.SOAKING, {"soak": task.plan.name, "seconds": until_s, "most": most})
        requests = self.pace_requests(self.turns(more, number))
        self.client.send_all(requests, task.slo.soak.concurrency, note, pause_s=self.profile.idle)

    def turns(self, more: Callable[[], bool], stretch: int) -> Iterator[PlannedRequest]:
        task = self.task
        tiers = {workload.name: workload.tier for workload in task.slo.workload}
        weights = {name: self.profile.weight(name, tiers[name]) for name in task.plan.settings}
        share = task.slo.soak.baseline_share if self.woven else 0.0
        number = self.answers
        if self.order is None:
            seed = task.seed + task.segment * 1_000_003 + number
            settings, swept = task.plan.settings, swept_canaries(task.slo, task.canaries)
            self.order = soak_requests(settings, task.canaries, weights, baseline_share=share, seed=seed, swept=swept)
        while more():
            for turn in next(self.order):
                number += 1
                yield self.request(turn, f"{task.segment}-{number}", stretch)

    def pace_requests(self, requests: Iterator[PlannedRequest]) -> Iterator[PlannedRequest]:
        """Delay each request of an open profile until it is due; a closed one sends it after the last answer."""
        begun = self.clock.now_ns()
        for number, request in enumerate(requests):
            if self.profile.rate is not None:
                due_s = number / self.profile.rate - (self.clock.now_ns() - begun) / 1e9
                self.clock.sleep(max(0.0, due_s))
            yield request

    def request(self, request: PlannedRequest, prefix: str, stretch: int = 0) -> PlannedRequest:
        """Return a request of the schedule as one of this soak, with a key of its own."""
        streams = self.task.slo.soak.concurrency
        return replace(request, trial=self.task.plan.name, prefix=prefix, repeat=stretch, concurrency=streams)
