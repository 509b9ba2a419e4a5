"""What an ask comes to, once its knobs, its canary and the sampling are put together."""

from dataclasses import dataclass
from typing import Any

from gatekeeper.terms.ports import Ask

PLAIN = "plain"
"""The residence of plain decoding."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request with every question settled: a knob of the setting wins over the canary, the canary over the SLO."""

    draft: str | None
    draft_tokens: int | None
    """Proposed per round; None: the server's own default."""
    max_tokens: int
    temperature: float
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    thinking: bool | None
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...]

    @property
    def greedy(self) -> bool:
        """Tell whether the same prompt must give the same tokens."""
        return self.temperature == 0


def settle(ask: Ask) -> Asked:
    """Return what *ask* comes to."""
    knobs, sampling = dict(ask.setting), ask.sampling

    def turned(knob: str, otherwise: Any) -> Any:
        value = knobs.get(knob)
        return otherwise if value is None else value

    return Asked(
        draft=ask.draft,
        draft_tokens=knobs.get("num_draft_tokens") if ask.draft is not None else None,
        max_tokens=turned("max_tokens", ask.canary.max_tokens or sampling.max_tokens),
        temperature=turned("temperature", sampling.temperature),
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=sampling.seed,
        thinking=turned("thinking", sampling.thinking),
        messages=ask.canary.messages,
        tools=ask.canary.tools,
    )
