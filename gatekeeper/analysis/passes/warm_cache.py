"""The warm cache: conversations that grow turn by turn with the prompt cache on, as deployed; which, and when."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gatekeeper.analysis.passes.soak_pass import Pass
from gatekeeper.analysis.plan.objectives import warm_cache_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Setting

SENT = 3
"""Times that a canary without turns is sent before the next turn: an error stored by the first request shows at the
second, one stored by the second at the third."""
MOST_CONVERSATIONS = 24
"""Of the conversations in a canary file no more are sent: more add little to what they differ by."""


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


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count each prompt once without a cache, and each turn in both arms; what the cache saves is ignored.

    A turn that is made reads the first prompt, its answer and the next prompt.
    """
    for name in warm_cache_workloads(costs.slo, settings):
        knobs = settings[name]
        arms = 2 if speculates(knobs) else 1
        for conversation in conversations_of(costs.canaries[name]):
            turns, then = conversation.turns, conversation.then
            prompts = {canary.id: canary for canary in turns}
            for canary in (*prompts.values(), *turns * arms):
                yield costs.answering(name, canary, knobs)
            if then is not None:
                yield from [costs.reading(turns[-1]) + costs.answering(name, then, knobs)] * (1 + arms)


PASS = Pass(
    name="warm_cache",
    stem="warm",
    kind=Generation,
    stage="warm cache",
    title="conversations on a warm cache",
    needs=lambda soak: dict.fromkeys(warm_cache_workloads(soak.slo, soak.settings), ()),
    add=lambda answers, recorded: replace(answers, warm_cache=recorded.sound),
    forecast=_forecast,
    each_part=False,
    of_plain=True,
)
"""The warm-cache pass. Plain decoding is sent through it too: a route that decodes plainly has the same cache."""
