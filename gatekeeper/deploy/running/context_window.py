"""The context window that a running server states, against the longest prompt and answer of a policy.

A window that is too short is a difference, not a warning: beyond it a server refuses the request or cuts the prompt
without a word, and neither was certified. A server that states no window is not checked.
"""

from collections.abc import Iterator
from typing import Literal

from gatekeeper.backends.dialect import Get, StatedWindow
from gatekeeper.core.policy import Conditions, Policy, RouteRegion

Outcome = Literal["as certified", "differs", "not checked"]
"""Of one part of the conditions, compared with the running server."""


def compare_window(policy: Policy, conditions: Conditions, stated: StatedWindow, fetch: Get) -> tuple[Outcome, str]:
    """Return the outcome and the detail of the part `context`."""
    window = stated.read(fetch(stated.path), conditions.target)
    needed, where = needed_window(policy, conditions)
    if window is None:
        return "not checked", f"not stated: {stated.path} names no context window; {needed} tokens are needed{where}"
    if window >= needed:
        return "as certified", f"{window} tokens, {needed} are needed{where}"
    advice = f"; raise {stated.option}" if stated.option else ""
    return "differs", f"{window} tokens, certified with prompts and answers of {needed}{where}{advice}"


def needed_window(policy: Policy, conditions: Conditions) -> tuple[int, str]:
    """Return the most tokens of a prompt and its answer that may speculate, and whose region reaches that far."""
    needed, where = (conditions.longest_prompt or 0) + conditions.max_tokens, ""
    for route in policy.route:
        if not route.speculation or route.region is None:
            continue
        most = int(max(prompt + answer for prompt, answer in _ends(route.region, conditions)))
        if most > needed:
            needed, where = most, f" (the region of {route.workload})"
    return needed, where


def _ends(region: RouteRegion, conditions: Conditions) -> Iterator[tuple[float, float]]:
    """Yield the longest prompts with the longest answers that a region allows: each axis alone, and both together."""
    context, limit = region.context, region.max_tokens
    prompt = context.certified if context is not None else conditions.longest_prompt or 0
    answer = limit.certified if limit is not None else conditions.max_tokens
    yield context.at_most if context is not None else prompt, answer
    yield prompt, limit.at_most if limit is not None else answer
    if context is not None and limit is not None:
        yield context.together_at_most or prompt, limit.together_at_most or answer
