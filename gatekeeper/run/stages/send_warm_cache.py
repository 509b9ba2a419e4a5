"""The warm-cache pass: plain decoding with its cache off, then both arms with their caches on."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gatekeeper.analysis.passes.warm_cache import conversations_of
from gatekeeper.analysis.plan.planned_request import PlannedRequest, shuffled
from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.run.stages.tasks import KeptRecords, PassTask, SoakTask

WITHOUT = frozenset({"temperature", "concurrency"})
GREEDY = (("temperature", 0.0), ("seed", None))
"""It overrides the SLO's sampling: only greedy answers, one at a time, can be compared token by token."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A conversation of a workload with all its turns."""

    workload: str
    name: str
    turns: tuple[Canary, ...]


def send(task: PassTask[Generation]) -> None:
    """Send every prompt without a cache, then each conversation turn by turn in both arms, greedily, one at a time.

    Both arms get the same prompts: plain decoding's answer without a cache is the reply in every conversation. Half of
    plain decoding's conversations come before the draft's and half after, so that a drift of the host meets both; each
    part has a process of its own, so that no arm resumes what the other has read.
    """
    soak, answers = task.soak, KeptRecords(task.record, list(task.recorded))
    plain = plain_of(soak.plan.resident)
    for _ in range(2):  # the second time with the turns that follow an answer of the first
        prompts = _plan_prompts(soak, _grow_all(soak, answers.records))
        task.send_missing(plain, _drop_recorded(prompts, answers.records), record=answers)
    conversations = _grow_all(soak, answers.records)
    order = shuffled(conversations, random.Random(f"{soak.seed}|{soak.plan.name}|warm cache"))
    half = (len(order) + 1) // 2
    for arm, part in (("plain", order[:half]), ("candidate", order), ("plain", order[half:])):
        resident = plain if arm == "plain" else soak.plan.resident
        turns = list(_plan_turns(soak, arm, part))
        missing = _drop_recorded(turns, answers.records)
        if missing and missing[0].repeat:
            # The new process has not read the turn before this one, which an interrupted pass has recorded.
            before = turns[turns.index(missing[0]) - 1]
            prefix = f"warmup-{soak.segment}-{before.prefix}"
            missing.insert(0, replace(before, role=Role.WARMUP, prefix=prefix))
        task.send_missing(resident, missing, cache=True, record=answers)


def _drop_recorded(requests: Iterable[PlannedRequest], records: Sequence[Generation]) -> list[PlannedRequest]:
    """Return the requests that neither an interrupted segment nor this one has recorded."""
    done = {record.key for record in records}
    return [request for request in requests if request.key not in done]


def _grow_all(soak: SoakTask, records: Sequence[Generation]) -> list[Grown]:
    """Return the conversations of every workload, as far as plain decoding's answers without a cache let them grow."""
    replies: dict[tuple[str, str], Answer] = {
        (record.workload, record.canary): record.answer
        for record in records
        if record.role is Role.COLD and record.answer.fault is None
    }
    return [
        Grown(name, conversation.name, conversation.grow(replies.get((name, conversation.turns[-1].id))))
        for name in soak.plan.settings
        for conversation in conversations_of(soak.canaries[name])
    ]


def _plan_prompts(soak: SoakTask, conversations: Sequence[Grown]) -> Iterator[PlannedRequest]:
    """Yield each prompt of the conversations once, for plain decoding."""
    for conversation in conversations:
        prompts = {canary.id: canary for canary in conversation.turns}
        for canary in prompts.values():
            yield _request(soak, conversation, "plain", canary, prefix="cold", role=Role.COLD)


def _plan_turns(soak: SoakTask, arm: str, conversations: Sequence[Grown]) -> Iterator[PlannedRequest]:
    """Yield every turn; a workload that decodes plainly has no other arm."""
    for conversation in conversations:
        if arm == "plain" or speculates(soak.plan.settings[conversation.workload]):
            for number, canary in enumerate(conversation.turns):
                yield _request(soak, conversation, arm, canary, prefix=f"{arm}-{number}", role=Role.WARM, repeat=number)


def _request(
    soak: SoakTask, conversation: Grown, arm: str, canary: Canary, *, prefix: str, role: Role, repeat: int = 0
) -> PlannedRequest:
    return soak.request(
        conversation.workload,
        canary,
        arm,
        without=WITHOUT,
        prefix=prefix,
        role=role,
        repeat=repeat,
        pair=f"{conversation.name}#{repeat}",
        sampling=GREEDY,
    )
