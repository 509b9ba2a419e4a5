"""The soak: the chosen settings under load for long enough, with plain decoding beside them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gatekeeper.analysis.plan.settings import plain_of, sampling_for, speculates
from gatekeeper.analysis.plan.soak_schedule import (
    PLAIN_BLOCKS,
    WARMUPS,
    SoakRequest,
    canaries_needed,
    closing_requests,
    plain_block,
    soak_requests,
    workloads_lacking,
)
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import Clock
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Profile, Slo
from gatekeeper.run.requests import Desk, Request

Observe = Callable[[str, dict[str, object]], None]


class Phase(Protocol):
    """Says which phase the host samples belong to; nothing is judged of samples of an unnamed one."""

    def __call__(self, name: str, stretch: int = 0, /) -> None:
        """Name the phase that begins now, and which unbroken stretch of it."""


@dataclass(frozen=True, slots=True)
class Soak:
    """What one soak is given."""

    slo: Slo
    name: str
    settings: Mapping[str, Setting]
    resident: Setting
    canaries: Mapping[str, Sequence[Canary]]
    profile: Profile
    woven: bool
    """Plain twins are woven in; else plain blocks lie before, midway and after."""
    seed: int
    segment: int
    before: tuple[Generation, ...] = ()
    """What earlier, interrupted segments recorded; it counts, but the clock starts over."""


def soak(
    given: Soak,
    desk: Desk,
    plain_desk: Callable[[], Desk],
    clock: Clock,
    *,
    record: Callable[[Generation], None],
    phase: Phase,
    observe: Observe,
) -> None:
    """Ask until the duration is over and every promise has enough answers, or until the longest duration is.

    It goes on by counts, never by values. The plain blocks of a soak that is not woven have their own process, and
    their time belongs to no phase: the host is judged while the candidate alone is at work.
    """
    made: list[Generation] = list(given.before)

    def note(one: Generation) -> None:
        record(one)
        made.append(one)
        observe("answer", {"generation": one, "soak": given.name})

    def block(number: int) -> None:
        steps = plain_block(given.settings, given.canaries, number, PLAIN_BLOCKS)
        if given.woven or not steps:
            return
        phase("")
        observe("block", {"soak": given.name, "block": number + 1, "answers": len(steps)})
        with plain_desk() as beside:
            beside.open(plain_of(given.resident))
            warm = [_as(step, Role.WARMUP) for step in steps[:WARMUPS]]
            for group in (warm, steps):
                asked = (_request(given, step, f"{step.role}-{number}-{at}") for at, step in enumerate(group))
                beside.ask_all(asked, given.slo.soak.concurrency, note)

    block(0)
    desk.open(given.resident)
    desk.ask_all(_warmups(given), 1, note)
    beside = not given.woven and any(speculates(knobs) for knobs in given.settings.values())
    half = given.slo.soak.duration / 2 if beside else 0.0
    if half:
        phase(given.name, 0)
        _stretch(given, desk, clock, made, note, observe, number=0, until_s=half, counting=False)
        block(1)
    phase(given.name, 1)
    _stretch(given, desk, clock, made, note, observe, number=1, until_s=given.slo.soak.duration - half, counting=True)
    phase("")
    last = closing_requests(given.settings, given.canaries)
    asked = (_request(given, turn, f"closing-{at}") for at, turn in enumerate(last))
    observe("closing", {"soak": given.name, "answers": len(last)})
    desk.ask_all(asked, given.slo.soak.concurrency, note)
    if beside:
        desk.close()
    block(2)


def _stretch(
    given: Soak,
    desk: Desk,
    clock: Clock,
    made: list[Generation],
    note: Callable[[Generation], None],
    observe: Observe,
    *,
    number: int,
    until_s: float,
    counting: bool,
) -> None:
    """Load the subject for *until_s* seconds; *counting* goes on until the promises have enough answers."""
    slo = given.slo
    wanted = {name: canaries_needed(slo, name, knobs, given.canaries[name]) for name, knobs in given.settings.items()}
    begun = answered = clock.now_ns()
    over = slo.soak.max_duration - (slo.soak.duration - until_s)

    def elapsed() -> float:
        return (clock.now_ns() - begun) / 1e9

    def noted(one: Generation) -> None:
        nonlocal answered
        note(one)
        answered = clock.now_ns()

    def more() -> bool:
        if desk.lost or elapsed() >= over:
            return False
        # The last answer ends it, not the pause after it: the records must cover the whole duration.
        return (answered - begun) / 1e9 < until_s or (counting and bool(workloads_lacking(wanted, made)))

    observe("soaking", {"soak": given.name, "seconds": until_s, "most": over if counting else until_s})
    requests = _paced(given, clock, _turns(given, more, len(made), number))
    desk.ask_all(requests, slo.soak.concurrency, noted, pause_s=given.profile.idle)


def _turns(given: Soak, more: Callable[[], bool], already: int, stretch: int) -> Iterator[Request]:
    tiers = {one.name: one.tier for one in given.slo.workload}
    weights = {name: given.profile.weight(name, tiers[name]) for name in given.settings}
    share = given.slo.soak.sentinel_share if given.woven else 0.0
    seed = given.seed + given.segment * 1_000_003 + already
    endless = soak_requests(given.settings, given.canaries, weights, sentinel_share=share, seed=seed)
    number = already
    while more():
        for turn in next(endless):
            number += 1
            yield _request(given, turn, f"{given.segment}-{number}", stretch)


def _paced(given: Soak, clock: Clock, requests: Iterator[Request]) -> Iterator[Request]:
    """Hold each request of an open profile until it is due; a closed one asks as soon as the last answer ended."""
    if given.profile.rate is None:
        yield from requests
        return
    begun = clock.now_ns()
    for number, request in enumerate(requests):
        due_s = number / given.profile.rate - (clock.now_ns() - begun) / 1e9
        clock.sleep(max(0.0, due_s))
        yield request


def _warmups(given: Soak) -> Iterator[Request]:
    for name, knobs in given.settings.items():
        for at, canary in enumerate(given.canaries[name][:WARMUPS]):
            arm = "plain" if dict(knobs).get("draft") is None else "candidate"
            yield _request(given, SoakRequest(name, canary, arm, Role.WARMUP, ""), f"warmup-{given.segment}-{at}")


def _as(turn: SoakRequest, role: Role) -> SoakRequest:
    return SoakRequest(turn.workload, turn.canary, turn.arm, role, turn.pair)


def _request(given: Soak, turn: SoakRequest, key: str, stretch: int = 0) -> Request:
    knobs = given.settings[turn.workload]
    setting = knobs if turn.arm == "candidate" else plain_of(knobs)
    streams = given.slo.soak.concurrency
    return Request(
        trial=given.name,
        key=f"{key}:{turn.workload}/{turn.canary.id}",
        workload=turn.workload,
        canary=turn.canary,
        arm=turn.arm,
        setting=setting,
        sampling=sampling_for(given.slo, turn.canary, setting, streams),
        role=turn.role,
        repeat=stretch,
        pair=turn.pair,
        concurrency=streams,
    )
