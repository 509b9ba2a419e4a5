"""How long requests take, for a forecast: an estimate, not a measurement.

Where nothing is known of an answer, it has its maximum length, at an assumed speed of plain decoding: a chip's
bandwidth over the weights.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.settings import sampling_for
from gatekeeper.analysis.plan.sizes_by_name import bytes_read, has_experts
from gatekeeper.core.canary import Canary
from gatekeeper.core.manifest import Model
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Slo
from gatekeeper.core.units import show_bytes

PREFILL = 10.0
"""Prompt tokens are read this many times faster than answer tokens are written; a low value for a GPU.

By bench/machines 12 for a dense model on a base M4, and 6 for a large mixture of experts on an M3 Ultra."""
CHARACTERS_PER_TOKEN = 3.0
"""Characters per token, a cautious value: English has about four, code and other languages fewer."""
SMALL_VOCABULARY = 10_000
"""Smaller vocabularies hardly join characters; the cautious value is then one character per token."""
TEMPLATE_TOKENS = 64
"""Tokens that a chat template may add around the messages."""
BANDWIDTH = {
    "Apple M1": 68e9, "Apple M1 Pro": 200e9, "Apple M1 Max": 400e9, "Apple M1 Ultra": 800e9,
    "Apple M2": 100e9, "Apple M2 Pro": 200e9, "Apple M2 Max": 400e9, "Apple M2 Ultra": 800e9,
    "Apple M3": 100e9, "Apple M3 Pro": 150e9, "Apple M3 Max": 300e9, "Apple M3 Ultra": 819e9,
    "Apple M4": 120e9, "Apple M4 Pro": 273e9, "Apple M4 Max": 410e9,
    "Apple M5": 153e9, "Apple M5 Pro": 307e9, "Apple M5 Max": 460e9,
}  # fmt: skip
"""Memory bandwidth in bytes per second, as Apple's specifications say; of two variants the slower one."""
OTHER_BANDWIDTH = 100e9
"""The bandwidth of a host that the SLO does not name, or that is not in the table."""
DECODING_SHARE = 0.85
"""The part of the bandwidth at which decoding reads the weights: an assumption."""
EXPERTS_S = 0.0067
"""What a token of a mixture of experts takes besides its bytes: so much on an M2 Max and on an M3 Ultra, 40 layers."""
SPEEDS = (1.0, 500.0)
"""The slowest and the fastest speed of plain decoding that is derived from a size, in tok/s."""
UNKNOWN_SPEED = 30.0
"""Tokens a second where not even the model's size is known."""


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


def derive_speed(slo: Slo, target: Model | None) -> tuple[float, str]:
    """Return the assumed speed of plain decoding in tok/s, and where it comes from: bandwidth over weights."""
    name = slo.subject.target
    size = bytes_read(name, float(target.bytes) if target is not None else None)
    if not size:
        return UNKNOWN_SPEED, " (a guess; --assume sets it)"
    bandwidth = DECODING_SHARE * BANDWIDTH.get(slo.host.chip or "", OTHER_BANDWIDTH)
    source = "its weights" if target is not None else "the weights its name tells"
    low, high = SPEEDS
    routed = EXPERTS_S if has_experts(name) else 0.0
    speed = max(low, min(high, 1 / (size / bandwidth + routed)))
    return speed, f" ({show_bytes(bandwidth)}/s over {source}, {show_bytes(size)})"
