"""The warm cache: the canaries requested again with the prompt cache on, as deployed."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gatekeeper.analysis.passes.soak_pass import Needs, Pass, Soaked
from gatekeeper.analysis.plan.objectives import warm_cache_workloads, warm_conditions
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Setting

WARM_REPEATS = 3
"""Times a canary is sent with the cache on: an error stored by the first request shows at the second, one stored by the
second at the third."""
CONTROL_REPEATS = 2
"""Times plain decoding with its cache on gets a canary."""


def _needs(soak: Soaked) -> Needs:
    """Return, by workload, its metrics that need something else between two answers."""
    names = warm_cache_workloads(soak.slo, soak.settings)
    return {name: warm_conditions(soak.slo, name, soak.settings[name]) for name in names}


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count every canary once plainly, WARM_REPEATS times drafting, CONTROL_REPEATS times more, and three second turns.

    A second turn reads the first prompt, its answer and the next prompt; what the cache saves is ignored. Another
    user's conversation, or another model's request, adds four answers of two turns at most.
    """
    for name in warm_cache_workloads(costs.slo, settings):
        knobs, canaries = settings[name], costs.canaries[name]
        between = len(warm_conditions(costs.slo, name, knobs))
        for first, then in zip(canaries, (*canaries[1:], *canaries[:1]), strict=True):
            answer, read = costs.answering(name, first, knobs), costs.reading(first)
            yield from [answer] * (1 + WARM_REPEATS + CONTROL_REPEATS)
            yield from [read + costs.answering(name, then, knobs)] * 3
            yield from [answer + read / 2] * (4 * between)


def continued(first: Canary, answer: Answer, then: Canary) -> Canary:
    """Return the conversation of *first*, its answer, and *then* without its system message, which was sent before."""
    reply: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool_calls:
        reply["tool_calls"] = [dict(call) for call in answer.tool_calls]
    follow = tuple(message for message in then.messages if message["role"] != "system")
    return Canary(
        id=f"{first.id}+{then.id}", messages=(*first.messages, reply, *follow), max_tokens=then.max_tokens,
        tools=first.tools, category=first.category, **first.options,
    )  # fmt: skip


def of_another_user(turn: Canary) -> Canary:
    """Return a second turn that another user asks, in the same conversation."""
    messages = (*turn.messages[:-1], {"role": "user", "content": "Say it in other words."})
    return turn.model_copy(update={"id": f"{turn.id}*", "messages": messages})


PASS = Pass(
    name="warm_cache",
    stem="warm",
    kind=Generation,
    stage="warm cache",
    title="warm cache",
    needs=_needs,
    add=lambda answers, recorded: replace(answers, warm_cache=recorded.sound),
    forecast=_forecast,
    each_part=False,
)
