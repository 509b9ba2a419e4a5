"""The warm cache: conversations that grow turn by turn, without a cache and with the prompt cache on, as deployed."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.analysis.follow_ups.follow_up import (
    FollowUp,
    Needs,
    RequestStep,
    Soaked,
    drop_recorded,
    key_of,
    warm_first,
)
from gatekeeper.analysis.plan.objectives import workloads_measured_by
from gatekeeper.analysis.plan.planned_request import PlannedRequest, shuffle_items
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Role, Setting
from gatekeeper.core.slo import Slo

SENT = 3
"""Times that a canary without turns is sent before the next turn: an error stored by the first request shows at the
second, one stored by the second at the third."""
MOST_CONVERSATIONS = 24
"""Conversations of a canary file that are sent at most: more add little to what they differ by."""
WITHOUT = frozenset({"temperature", "concurrency"})
GREEDY = (("temperature", 0.0), ("seed", None))
"""It overrides the SLO's sampling: only greedy answers, one at a time, can be compared token by token."""


def workloads_of(slo: Slo, settings: Mapping[str, Setting]) -> tuple[str, ...]:
    """Return the workloads that are measured again with the prompt cache on."""
    return workloads_measured_by(FOLLOW_UP.name, slo, settings) if slo.subject.prompt_cache == "as-deployed" else ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """Requests that follow each other on one prompt cache."""

    name: str
    turns: tuple[Canary, ...]
    """All that are known before an answer came."""
    then: Canary | None = None
    """The prompt whose last messages follow the answer to the last of them; None: the file has every turn."""

    def grow(self, answer: Answer | None) -> tuple[Canary, ...]:
        """Return all turns, where plain decoding gives *answer* to the last one that is known; None: it has none."""
        if self.then is None or answer is None:
            return self.turns
        return (*self.turns, _continue(self.turns[-1], answer, self.then))


@dataclass(frozen=True, slots=True)
class Grown:
    """A conversation of a workload with all its turns."""

    workload: str
    name: str
    turns: tuple[Canary, ...]


def conversations_of(canaries: Sequence[Canary]) -> list[Conversation]:
    """Return the conversations of a file; a canary without turns is repeated, and goes on with the next such canary."""
    turns: dict[str, list[Canary]] = {}
    for canary in canaries:
        if canary.conversation is not None:
            turns.setdefault(canary.conversation, []).append(canary)
    singles = [canary for canary in canaries if canary.conversation is None]
    written = [Conversation(name, tuple(own_turns)) for name, own_turns in turns.items()]
    made = [
        Conversation(first.id, (first,) * SENT, then)
        for first, then in zip(singles, (*singles[1:], *singles[:1]), strict=True)
    ]
    return [*written[:MOST_CONVERSATIONS], *made]


def _continue(first: Canary, answer: Answer, then: Canary) -> Canary:
    """Return the conversation of *first*, its answer, and *then* without its system message, which was sent before."""
    reply: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool_calls:
        reply["tool_calls"] = [dict(call) for call in answer.tool_calls]
    follow = tuple(message for message in then.messages if message["role"] != "system")
    return Canary(
        id=f"{first.id}+{then.id}", messages=(*first.messages, reply, *follow), max_tokens=then.max_tokens,
        tools=first.tools, category=first.category, **first.options,
    )  # fmt: skip


def _plan_steps(soak: Soaked, needs: Needs, records: Sequence[Generation]) -> Iterator[RequestStep]:
    """Yield every prompt without a cache, then each conversation turn by turn in both arms, greedily, one at a time.

    Both arms get the same prompts: plain decoding's answer without a cache is the reply in every conversation. Half of
    plain decoding's conversations come before the draft's and half after, so that a drift of the host meets both; each
    part has a process of its own, so that no arm resumes what the other has read.
    """
    plain = plain_of(soak.plan.resident)
    for _ in range(2):  # the second time with the turns that follow an answer of the first
        yield RequestStep(plain, [*_plan_prompts(soak, _grow_all(soak, needs, records))])
    conversations = _grow_all(soak, needs, records)
    order = shuffle_items(conversations, random.Random(f"{soak.seed}|{soak.plan.name}|warm cache"))
    half = (len(order) + 1) // 2
    for arm, part in (("plain", order[:half]), ("candidate", order), ("plain", order[half:])):
        turns = list(_plan_turns(soak, arm, part))
        missing = drop_recorded(turns, records)
        if missing and missing[0].repeat:
            # The new process has not read the turn before this one, which an interrupted segment has recorded.
            missing = warm_first(turns[turns.index(missing[0]) - 1], missing, soak.segment)
        yield RequestStep(plain if arm == "plain" else soak.plan.resident, missing, cache=True)


def _grow_all(soak: Soaked, needs: Needs, records: Sequence[Generation]) -> list[Grown]:
    """Return the conversations of every workload, as far as plain decoding's answers without a cache let them grow."""
    replies: dict[tuple[str, str], Answer] = {
        (record.workload, record.canary): record.answer
        for record in records
        if record.role is Role.COLD and record.answer.fault is None
    }
    return [
        Grown(name, conversation.name, conversation.grow(replies.get((name, conversation.turns[-1].id))))
        for name in needs
        for conversation in conversations_of(soak.canaries[name])
    ]


def _plan_prompts(soak: Soaked, conversations: Sequence[Grown]) -> Iterator[PlannedRequest]:
    """Yield each prompt of the conversations once, for plain decoding."""
    for conversation in conversations:
        prompts = {canary.id: canary for canary in conversation.turns}
        for canary in prompts.values():
            yield _plan_turn(soak, conversation, "plain", canary, prefix="cold", role=Role.COLD)


def _plan_turns(soak: Soaked, arm: str, conversations: Sequence[Grown]) -> Iterator[PlannedRequest]:
    """Yield every turn; a workload that decodes plainly has no other arm."""
    for conversation in conversations:
        if arm == "plain" or speculates(soak.settings[conversation.workload]):
            for number, canary in enumerate(conversation.turns):
                prefix = f"{arm}-{number}"
                yield _plan_turn(soak, conversation, arm, canary, prefix=prefix, role=Role.WARM, repeat=number)


def _plan_turn(
    soak: Soaked, conversation: Grown, arm: str, canary: Canary, *, prefix: str, role: Role, repeat: int = 0
) -> PlannedRequest:
    return soak.request(
        conversation.workload, canary, arm, without=WITHOUT, prefix=prefix, role=role, repeat=repeat,
        pair=f"{conversation.name}#{repeat}", sampling=GREEDY,
    )  # fmt: skip


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count each prompt once without a cache, and each turn in both arms; what the cache saves is ignored.

    A turn that is made reads the first prompt, its answer and the next prompt.
    """
    for name in workloads_of(costs.slo, settings):
        knobs = settings[name]
        arms = 2 if speculates(knobs) else 1
        for conversation in conversations_of(costs.canaries[name]):
            turns, then = conversation.turns, conversation.then
            prompts = {canary.id: canary for canary in turns}
            for canary in (*prompts.values(), *turns * arms):
                yield costs.answering(name, canary, knobs)
            if then is not None:
                yield from [costs.reading(turns[-1]) + costs.answering(name, then, knobs)] * (1 + arms)


FOLLOW_UP = FollowUp(
    name="warm_cache",
    kind=Generation,
    title="conversations on a warm cache",
    needs=lambda soak: dict.fromkeys(workloads_of(soak.slo, soak.settings), ()),
    steps=_plan_steps,
    identity=key_of,
    forecast=_forecast,
    each_part=False,
    of_plain=True,  # a route that decodes plainly has the same cache
)
