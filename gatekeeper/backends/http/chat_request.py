"""Chat requests to OpenAI-compatible servers and Ollama: every option decided, and the fields that all servers know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gatekeeper.core.interfaces import DecodeRequest

PLAIN = "plain"
"""The residence of plain decoding."""


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A request with every option decided: a knob of the setting wins over the canary, the canary over the SLO."""

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
    options: Mapping[str, Any]
    """Further fields that the canary sets, sent as they are."""

    @property
    def greedy(self) -> bool:
        """Tell whether the same prompt must give the same tokens."""
        return self.temperature == 0


def resolve(request: DecodeRequest) -> ResolvedRequest:
    """Return *request* with every option decided."""
    knobs, sampling, canary = dict(request.setting), request.sampling, request.canary
    length = knobs.get("num_draft_tokens")

    def option(knob: str, otherwise: Any) -> Any:
        value = knobs.get(knob)
        return otherwise if value is None else value

    return ResolvedRequest(
        draft=request.draft,
        draft_tokens=length if request.draft is not None else None,
        max_tokens=option("max_tokens", canary.max_tokens or sampling.max_tokens),
        temperature=option("temperature", sampling.temperature),
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=sampling.seed,
        thinking=option("thinking", sampling.thinking),
        messages=canary.messages,
        tools=canary.tools,
        options=canary.options,
    )


def request_fields(request: ResolvedRequest, **more: Any) -> dict[str, Any]:
    """Return the fields that every server knows; for None the server's default holds."""
    fields: dict[str, Any] = {
        "messages": list(request.messages),
        "tools": list(request.tools) or None,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        # A seed takes some servers out of batching, and at temperature 0 it draws nothing.
        "seed": None if request.greedy else request.seed,
        **request.options,
        **more,
    }
    return {name: value for name, value in fields.items() if value is not None}
