"""The warm-cache pass: the canaries requested again as deployed, repeated and as the second turn of a conversation.

Where an objective names it, also with another user's conversation or another model's request in between.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gatekeeper.analysis.metrics.exactness import WARM_PARTS, WarmPart
from gatekeeper.analysis.passes.warm_cache import WARM_REPEATS
from gatekeeper.analysis.plan.objectives import warm_conditions
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.analysis.plan.shuffled_rounds import shuffled
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.run.requests import PassTask, Request, SoakTask, build_request

TOGETHER = 4
"""Canaries shuffled together: 8 prompts with their second turns, which fit into mlx_lm.server's cache of 10."""

WITHOUT = frozenset({"temperature", "concurrency"})
GREEDY: dict[str, Any] = {"temperature": 0.0, "seed": None}
"""It overrides the SLO's sampling: only greedy answers, one at a time, can be compared token by token."""


def send(task: PassTask[Generation]) -> None:
    """Request plain decoding with the cache off, then the candidate with the cache on, greedily and one at a time.

    Both arms get the same prompts: plain decoding's answer is the first turn of every conversation.
    """
    soak = task.soak
    answers = list(task.recorded)

    def note(answer: Generation) -> None:
        task.record(answer)
        answers.append(answer)

    plain = plain_of(soak.resident)
    singles = [(name, canary) for name in soak.settings for canary in soak.canaries[name]]
    first_turns = [_request(soak, name, "plain", canary, canary.id) for name, canary in singles]
    task.send_missing(plain, first_turns, record=note)
    later = _conversations(soak, answers)
    second_turns = [_request(soak, name, "plain", turn, first) for (name, first), turn in later.items()]
    task.send_missing(plain, second_turns, record=note)
    task.send_missing(soak.resident, _shuffled(soak, later), cache=True, record=note)
    for metric, part in WARM_PARTS.items():
        names = [name for name, knobs in soak.settings.items() if metric in warm_conditions(soak.slo, name, knobs)]
        if names:
            # A process of its own for each condition: what the other one left in the cache is not there.
            task.send_missing(soak.resident, _with_something_between(soak, names, part, later), cache=True, record=note)


def _conversations(soak: SoakTask, made: Sequence[Generation]) -> dict[tuple[str, str], Canary]:
    """Return, by workload and first canary, the prompt of the second turn; none where plain decoding failed."""
    answers = {
        (one.workload, one.canary): one.answer for one in made if one.arm == "plain" and one.answer.fault is None
    }
    found = {}
    for name in soak.settings:
        some = soak.canaries[name]
        for first, then in zip(some, (*some[1:], some[0]), strict=True):
            if (name, first.id) in answers:
                found[name, first.id] = continued(first, answers[name, first.id], then)
    return found


def continued(first: Canary, answer: Answer, then: Canary) -> Canary:
    """Return the conversation of *first*, its answer, and *then* without its system message, which was sent before."""
    reply: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool_calls:
        reply["tool_calls"] = [dict(call) for call in answer.tool_calls]
    follow = tuple(message for message in then.messages if message["role"] != "system")
    return Canary(
        id=f"{first.id}+{then.id}",
        messages=(*first.messages, reply, *follow),
        max_tokens=then.max_tokens,
        tools=first.tools,
        category=first.category,
    )


def _shuffled(soak: SoakTask, later: Mapping[tuple[str, str], Canary]) -> Iterator[Request]:
    for name in soak.settings:
        some = soak.canaries[name]
        for start in range(0, len(some), TOGETHER):
            group = some[start : start + TOGETHER]
            requests = [_request(soak, name, "candidate", one, one.id, n) for one in group for n in range(WARM_REPEATS)]
            turns = [later[name, one.id] for one in group if (name, one.id) in later]
            requests += [_request(soak, name, "candidate", turn, turn.id.partition("+")[0]) for turn in turns]
            yield from shuffled(requests, random.Random(f"{soak.seed}|{soak.name}|{name}|{start}"))


def _with_something_between(
    soak: SoakTask, names: Iterable[str], part: WarmPart, later: Mapping[tuple[str, str], Canary]
) -> Iterator[Request]:
    """Yield each canary, what is to stand between, the canary again and the second turn of its own conversation."""
    for name in names:
        for one in soak.canaries[name]:
            if (own := later.get((name, one.id))) is None:
                continue
            # The same prompt for the other model: a cache that forgets whose keys it holds takes them for this one.
            between = _of_another_user(own) if part.between is Role.OTHER_USER else one
            yield _request(soak, name, "candidate", one, one.id, role=part.role)
            yield _request(soak, name, "candidate", between, one.id, role=part.between or part.role)
            yield _request(soak, name, "candidate", one, one.id, 1, role=part.role)
            yield _request(soak, name, "candidate", own, one.id, role=part.role)


def _of_another_user(own: Canary) -> Canary:
    messages = (*own.messages[:-1], {"role": "user", "content": "Say it in other words."})
    return own.model_copy(update={"id": f"{own.id}*", "messages": messages})


def _request(
    soak: SoakTask, name: str, arm: str, canary: Canary, first: str, repeat: int = 0, *, role: Role = Role.WARM
) -> Request:
    knobs = soak.settings[name] if arm == "candidate" else plain_of(soak.settings[name])
    setting = tuple((knob, value) for knob, value in knobs if knob not in WITHOUT)
    prefix = f"{arm}-{repeat}" if role is Role.WARM else f"{role}-{first}-{repeat}"
    asked = build_request(
        soak.slo, soak.name, prefix, name, canary, arm, setting, role, repeat=repeat, pair=first, **GREEDY
    )
    return replace(asked, other_model=role is Role.OTHER_MODEL)
