"""The context window that a running server states, against the longest prompt and answer that were certified.

A window that is too short is a difference, not a warning: beyond it a server refuses the request or cuts the prompt
without a word, and neither was certified. A server that states no window is not checked.
"""

from typing import Literal

from gatekeeper.backends.dialect import Get, StatedWindow
from gatekeeper.core.policy import Conditions

Outcome = Literal["as certified", "differs", "not checked"]
"""Of one part of the conditions, compared with the running server."""


def compare_window(conditions: Conditions, stated: StatedWindow, fetch: Get) -> tuple[Outcome, str]:
    """Return the outcome and the detail of the part `context`."""
    window = stated.read(fetch(stated.path), conditions.target)
    needed = (conditions.longest_prompt or 0) + conditions.max_tokens
    if window is None:
        return "not checked", f"not stated: {stated.path} names no context window; {needed} tokens are needed"
    if window >= needed:
        return "as certified", f"{window} tokens, {needed} are needed"
    advice = f"; raise {stated.option}" if stated.option else ""
    return "differs", f"{window} tokens, certified with prompts and answers of {needed}{advice}"
