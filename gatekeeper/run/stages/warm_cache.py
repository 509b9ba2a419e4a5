"""The warm cache: the canaries asked again as deployed, repeated and as the second turn of a conversation."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gatekeeper.analysis.plan.rounds import shuffled
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.analysis.plan.soak_schedule import WARM_REPEATS
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Role, Setting
from gatekeeper.run.requests import Desk, Errand, Observe, Request, ask_missing, request

TOGETHER = 4
"""Canaries shuffled together: with their second turns 8 prompts, so that mlx_lm.server's 10 cached ones hold them."""

WITHOUT = frozenset({"temperature", "concurrency"})
GREEDY = {"temperature": 0.0, "seed": None}
"""Whatever the SLO promises for: only greedy answers, each alone, can be compared one by one."""


def warm(
    given: Errand,
    plain_desk: Callable[[], Desk],
    warm_desk: Callable[[], Desk],
    *,
    record: Callable[[Generation], None],
    observe: Observe,
) -> None:
    """Ask plain decoding with the cache off, then the candidate with the cache on, greedily and one at a time.

    Both arms get the same prompts: plain decoding's answer is the first turn of every conversation.
    """
    made = list(given.before)

    def note(one: Generation) -> None:
        record(one)
        made.append(one)

    def ask(open_desk: Callable[[], Desk], setting: Setting, requests: Iterable[Request]) -> None:
        ask_missing(given, open_desk, setting, requests, record=note, observe=observe)

    plain = plain_of(given.resident)
    singles = [(name, canary) for name in given.settings for canary in given.canaries[name]]
    ask(plain_desk, plain, [_request(given, name, "plain", one, one.id) for name, one in singles])
    later = _conversations(given, made)
    turns = [_request(given, name, "plain", turn, first) for (name, first), turn in later.items()]
    ask(plain_desk, plain, turns)
    ask(warm_desk, given.resident, _shuffled(given, later))


def _conversations(given: Errand, made: Sequence[Generation]) -> dict[tuple[str, str], Canary]:
    """Return, by workload and first canary, the prompt of the second turn; none where plain decoding failed."""
    answers = {
        (one.workload, one.canary): one.answer for one in made if one.arm == "plain" and one.answer.fault is None
    }
    found = {}
    for name in given.settings:
        some = given.canaries[name]
        for first, then in zip(some, (*some[1:], some[0]), strict=True):
            if (name, first.id) in answers:
                found[name, first.id] = continued(first, answers[name, first.id], then)
    return found


def continued(first: Canary, answer: Answer, then: Canary) -> Canary:
    """Return the conversation of *first*, its answer, and *then* without its system message, which has been said."""
    said: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool_calls:
        said["tool_calls"] = [dict(call) for call in answer.tool_calls]
    follow = tuple(message for message in then.messages if message["role"] != "system")
    return Canary(
        id=f"{first.id}+{then.id}",
        messages=(*first.messages, said, *follow),
        max_tokens=then.max_tokens,
        tools=first.tools,
        category=first.category,
    )


def _shuffled(given: Errand, later: Mapping[tuple[str, str], Canary]) -> Iterator[Request]:
    for name in given.settings:
        some = given.canaries[name]
        for start in range(0, len(some), TOGETHER):
            group = some[start : start + TOGETHER]
            asked = [_request(given, name, "candidate", one, one.id, n) for one in group for n in range(WARM_REPEATS)]
            turns = [later[name, one.id] for one in group if (name, one.id) in later]
            asked += [_request(given, name, "candidate", turn, turn.id.partition("+")[0]) for turn in turns]
            yield from shuffled(asked, random.Random(f"{given.seed}|{given.name}|{name}|{start}"))


def _request(given: Errand, name: str, arm: str, canary: Canary, first: str, repeat: int = 0) -> Request:
    return request(given, name, arm, canary, Role.WARM, without=WITHOUT, sampling=GREEDY, repeat=repeat, pair=first)
