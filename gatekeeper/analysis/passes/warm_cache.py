"""The warm cache: the canaries requested again with the prompt cache on, as deployed."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gatekeeper.analysis.passes.soak_pass import Pass
from gatekeeper.analysis.plan.objectives import warm_cache_workloads
from gatekeeper.analysis.plan.request_costs import RequestCosts
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Answer, Generation, Setting

WARM_REPEATS = 3
"""Times a canary is sent with the cache on: an error stored by the first request shows at the second, one stored by the
second at the third."""
CONTROL_REPEATS = 2
"""Times plain decoding with its cache on gets a canary."""


def _forecast(costs: RequestCosts, settings: Mapping[str, Setting]) -> Iterator[float]:
    """Count every canary once plainly, WARM_REPEATS times drafting, CONTROL_REPEATS times more, and three second turns.

    A second turn reads the first prompt, its answer and the next prompt; what the cache saves is ignored.
    """
    for name in warm_cache_workloads(costs.slo, settings):
        knobs, canaries = settings[name], costs.canaries[name]
        for first, then in zip(canaries, (*canaries[1:], *canaries[:1]), strict=True):
            answer, read = costs.answering(name, first, knobs), costs.reading(first)
            yield from [answer] * (1 + WARM_REPEATS + CONTROL_REPEATS)
            yield from [read + costs.answering(name, then, knobs)] * 3


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


PASS = Pass(
    name="warm_cache",
    stem="warm",
    kind=Generation,
    stage="warm cache",
    title="warm cache",
    needs=lambda soak: dict.fromkeys(warm_cache_workloads(soak.slo, soak.settings), ()),
    add=lambda answers, recorded: replace(answers, warm_cache=recorded.sound),
    forecast=_forecast,
    each_part=False,
)
