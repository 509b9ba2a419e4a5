"""The warm cache: the canaries asked again as deployed, repeated and as the second turn of a conversation."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gatekeeper.desk import Desk, Request
from gatekeeper.terms.canary import Canary
from gatekeeper.terms.records import Answer, Generation, Role, Setting
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict.plan import plain_of, sampling_for

REPEATS = 3
"""Times a canary is sent: what a cache stores wrongly shows at the second, what it then stores at the third."""
TOGETHER = 4
"""Canaries shuffled together: with their second turns 8 prompts, so that mlx_lm.server's 10 cached ones hold them."""

Observe = Callable[[str, dict[str, object]], None]


@dataclass(frozen=True, slots=True)
class Warm:
    """What one pass with the prompt cache on is given."""

    slo: Slo
    name: str
    """The soak it belongs to."""
    settings: Mapping[str, Setting]
    """Of the workloads that are asked again."""
    resident: Setting
    canaries: Mapping[str, Sequence[Canary]]
    seed: int
    before: tuple[Generation, ...] = ()
    """What an earlier, interrupted segment recorded."""


def warm(
    given: Warm,
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
    done = {one.key for one in made}

    def note(one: Generation) -> None:
        record(one)
        made.append(one)
        observe("answer", {"generation": one, "soak": given.name})

    def ask(open_desk: Callable[[], Desk], setting: Setting, requests: list[Request]) -> None:
        missing = [one for one in requests if one.key not in done]
        if missing:
            with open_desk() as desk:
                desk.open(setting)
                desk.ask_all(iter(missing), 1, note)

    plain = plain_of(given.resident)
    singles = [(name, canary) for name in given.settings for canary in given.canaries[name]]
    ask(plain_desk, plain, [_request(given, name, "plain", one, one.id) for name, one in singles])
    later = _conversations(given, made)
    turns = [_request(given, name, "plain", turn, first) for (name, first), turn in later.items()]
    ask(plain_desk, plain, turns)
    ask(warm_desk, given.resident, list(_shuffled(given, later)))


def _conversations(given: Warm, made: Sequence[Generation]) -> dict[tuple[str, str], Canary]:
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


def _shuffled(given: Warm, later: Mapping[tuple[str, str], Canary]) -> Iterator[Request]:
    for name in given.settings:
        some = given.canaries[name]
        for start in range(0, len(some), TOGETHER):
            group = some[start : start + TOGETHER]
            asked = [_request(given, name, "candidate", one, one.id, n) for one in group for n in range(REPEATS)]
            turns = [later[name, one.id] for one in group if (name, one.id) in later]
            asked += [_request(given, name, "candidate", turn, turn.id.partition("+")[0]) for turn in turns]
            random.Random(f"{given.seed}|{given.name}|{name}|{start}").shuffle(asked)
            yield from asked


def _request(given: Warm, name: str, arm: str, canary: Canary, first: str, repeat: int = 0) -> Request:
    knobs = given.settings[name] if arm == "candidate" else plain_of(given.settings[name])
    setting = tuple((knob, value) for knob, value in knobs if knob not in {"temperature", "concurrency"})
    return Request(
        trial=given.name,
        key=f"{arm}-{repeat}:{name}/{canary.id}",
        workload=name,
        canary=canary,
        arm=arm,
        setting=setting,
        # Whatever the SLO promises for: only greedy answers, each alone, can be compared one by one.
        sampling=replace(sampling_for(given.slo, canary, setting, 1), temperature=0.0, seed=None),
        role=Role.WARM,
        repeat=repeat,
        pair=first,
    )
