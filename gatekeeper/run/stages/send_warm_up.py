"""The warm-up pass: requests after a start, after a pause and right after another, in both arms."""

from collections.abc import Iterator
from dataclasses import replace

from gatekeeper.analysis.passes.warm_up import ANSWER_TOKENS, PAUSE_S, sent_after_pauses
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Role
from gatekeeper.run.requests import Recorder
from gatekeeper.run.stages.tasks import PassTask, SoakTask

WITHOUT = frozenset({"max_tokens", "concurrency"})
"""Knobs that do not apply: the answers are short, and come one at a time."""


def send(task: PassTask[Generation]) -> None:
    """Send each canary once after a pause and once right after another request; plain decoding first.

    The first request of an arm is the one after its start. An interrupted pass begins again with a request that only
    warms, for its start was another one.
    """
    soak = task.soak
    done = {answer.key for answer in task.recorded}
    arms = (("plain", plain_of(soak.plan.resident)), ("candidate", soak.plan.resident))
    planned = sum(len([*_requests(soak, arm)]) for arm, _ in arms)
    recorder = Recorder(task.record, task.observe, {"soak": soak.plan.name}, planned)
    for arm, resident in arms:
        missing = [request for request in _requests(soak, arm) if request.key not in done]
        if not missing:
            continue
        if missing[0].role is not Role.LOADED:
            prefix = f"warmup-{soak.segment}-{missing[0].prefix}"
            missing.insert(0, replace(missing[0], role=Role.WARMUP, prefix=prefix))
        with task.open_client() as client:
            client.open(resident)
            for request in missing:
                if request.role is Role.IDLE:
                    task.backend.clock.sleep(PAUSE_S)
                recorder(client.send(request))


def _requests(soak: SoakTask, arm: str) -> Iterator[PlannedRequest]:
    for number, name in enumerate(soak.plan.settings):
        canaries = sent_after_pauses(soak.canaries[name])
        if number == 0:
            yield _request(soak, arm, name, canaries[0], Role.LOADED)
        for paused, following in zip(canaries, (*canaries[1:], *canaries[:1]), strict=True):
            yield _request(soak, arm, name, paused, Role.IDLE)
            yield _request(soak, arm, name, following, Role.FOLLOWING)


def _request(soak: SoakTask, arm: str, name: str, canary: Canary, role: Role) -> PlannedRequest:
    most = min(canary.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
    short = canary.model_copy(update={"max_tokens": most})
    return soak.request(name, short, arm, without=WITHOUT, prefix=f"{arm}-{role}", role=role)
