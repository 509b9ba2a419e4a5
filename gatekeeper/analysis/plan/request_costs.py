"""How long requests take, for a forecast: an estimate, not a measurement.

Where nothing is known of an answer, it has its maximum length, at an assumed speed of plain decoding.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.settings import sampling_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Slo

PREFILL = 10.0
"""Prompt tokens are read this many times faster than answer tokens are written; a low value for a GPU.

By bench/machines 12 for a dense model on a base M4, and 6 for a large mixture of experts on an M3 Ultra."""
CHARACTERS_PER_TOKEN = 3.0
"""Characters per token, a cautious value: English has about four, code and other languages fewer."""
SMALL_VOCABULARY = 10_000
"""Smaller vocabularies hardly join characters; the cautious value is then one character per token."""
TEMPLATE_TOKENS = 64
"""Tokens that a chat template may add around the messages."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a forecast assumes of the system under test."""

    speed: float
    """Tokens a second of plain decoding."""
    vocabulary: int | None
    logits: bool
    """The target's logits can be read."""
    answer_seconds: Callable[[str, Canary, Setting], float | None] = lambda *_: None
    """The seconds of an answer, by workload, canary and setting, where they are known."""

    def seconds(self, canary: Canary, tokens: float) -> float:
        """Return the time to read the prompt of *canary* and write *tokens*."""
        return (prompt_tokens(canary, self.vocabulary) / PREFILL + tokens) / self.speed


@dataclass(frozen=True, slots=True)
class RequestCosts:
    """The seconds that the requests of one run take."""

    slo: Slo
    terms: Terms
    canaries: Mapping[str, Sequence[Canary]]
    assumed: Assumptions

    def answering(self, workload: str, canary: Canary, knobs: Setting) -> float:
        """Return the seconds of an answer."""
        seconds = self.assumed.answer_seconds(workload, canary, knobs)
        return self.assumed.seconds(canary, self.longest(canary, knobs)) if seconds is None else seconds

    def reading(self, canary: Canary) -> float:
        """Return the seconds to read a prompt and its longest answer."""
        return self.assumed.seconds(canary, self.longest(canary) / PREFILL)

    def longest(self, canary: Canary, knobs: Setting = ()) -> int:
        """Return how many tokens an answer may have."""
        return sampling_for(self.slo, canary, knobs, 1).max_tokens


def prompt_tokens(canary: Canary, vocabulary: int | None) -> int:
    """Return the tokens of a prompt with its tools, a cautious estimate from its characters."""
    characters = 1.0 if vocabulary is not None and vocabulary < SMALL_VOCABULARY else CHARACTERS_PER_TOKEN
    tools = json.dumps(canary.tools, ensure_ascii=False) if canary.tools else ""
    return round((len(json.dumps(canary.messages, ensure_ascii=False)) + len(tools)) / characters) + TEMPLATE_TOKENS
