"""The warm-up pass: requests after a start, after a pause and right after another, in both arms."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gatekeeper.analysis.metrics.pauses import ANSWER_TOKENS, PAUSE_S, sent_after_pauses
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.canary import Canary
from gatekeeper.core.clock import Clock
from gatekeeper.core.records import Generation, Role
from gatekeeper.run.requests import Client, Observe, Request, SoakTask, build_request

WITHOUT = frozenset({"max_tokens", "concurrency"})
"""Knobs that do not apply: the answers are short, and come one at a time."""


def send_after_pauses(
    task: SoakTask,
    open_client: Callable[[], Client],
    clock: Clock,
    *,
    record: Callable[[Generation], None],
    observe: Observe,
) -> None:
    """Send each canary once after a pause and once right after another request; plain decoding first.

    The first request of an arm is the one after its start. An interrupted pass begins again with a request that only
    warms, for its start was another one.
    """
    done = {one.key for one in task.before}
    arms = (("plain", plain_of(task.resident)), ("candidate", task.resident))
    answered, whole = 0, sum(len([*_requests(task, arm)]) for arm, _ in arms)
    for arm, resident in arms:
        missing = [one for one in _requests(task, arm) if one.key not in done]
        if not missing:
            continue
        if missing[0].role is not Role.LOADED:
            missing.insert(0, _warming(missing[0], task.segment))
        with open_client() as client:
            client.open(resident)
            for request in missing:
                if request.role is Role.IDLE:
                    clock.sleep(PAUSE_S)
                made = client.send(request)
                record(made)
                answered += 1
                observe("answer", {"generation": made, "soak": task.name, "answered": answered, "of": whole})


def _warming(request: Request, segment: int) -> Request:
    return replace(request, role=Role.WARMUP, key=f"warmup-{segment}-{request.key}")


def _turns(task: SoakTask, name: str) -> list[tuple[Canary, Canary]]:
    """Return the canaries to send after a pause, each with the one to send right after it."""
    some = sent_after_pauses(task.canaries[name])
    return list(zip(some, (*some[1:], *some[:1]), strict=True))


def _requests(task: SoakTask, arm: str) -> Iterator[Request]:
    for number, name in enumerate(task.settings):
        turns = _turns(task, name)
        if number == 0:
            yield _request(task, arm, name, turns[0][0], Role.LOADED)
        for paused, following in turns:
            yield _request(task, arm, name, paused, Role.IDLE)
            yield _request(task, arm, name, following, Role.FOLLOWING)


def _request(task: SoakTask, arm: str, name: str, canary: Canary, role: Role) -> Request:
    knobs = task.settings[name] if arm == "candidate" else plain_of(task.settings[name])
    setting = tuple((knob, value) for knob, value in knobs if knob not in WITHOUT)
    most = min(canary.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
    short = canary.model_copy(update={"max_tokens": most})
    return build_request(task.slo, task.name, f"{arm}-{role}", name, short, arm, setting, role)
