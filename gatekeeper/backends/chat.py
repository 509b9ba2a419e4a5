"""A chat as OpenAI-compatible servers speak it: the request's body, and an answer from what was heard."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gatekeeper.backends.asked import Asked
from gatekeeper.backends.stream import Heard, excerpt, take_apart
from gatekeeper.terms.records import Answer, Arrival, Claims


def body(asked: Asked, **more: Any) -> dict[str, Any]:
    """Return the fields every server knows; what is None is left to the server."""
    fields: dict[str, Any] = {
        "messages": list(asked.messages),
        "tools": list(asked.tools) or None,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "min_p": asked.min_p,
        # A seed takes some servers out of batching, and at temperature 0 it draws nothing.
        "seed": None if asked.greedy else asked.seed,
        **more,
    }
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(slots=True)
class Said:
    """What an event stream said, gathered event by event."""

    text: str = ""
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    """Fields of any chunk that are not the API's own, the latest of each: `timings` and the like."""
    times: list[int] = field(default_factory=list)
    """When each non-empty delta came."""
    fault: str | None = None

    def hear(self, at_ns: int, chunk: Mapping[str, Any]) -> None:
        """Take one chunk in."""
        if chunk.get("error"):
            self.fault = self.fault or f"server error: {excerpt(json.dumps(chunk['error']).encode())}"
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        self.last |= {name: value for name, value in chunk.items() if name not in _OWN_FIELDS}
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            content = delta.get("content") or choice.get("text") or ""
            self.text += content
            self.finish = choice.get("finish_reason") or self.finish
            for call in delta.get("tool_calls") or ():
                self._take_call(call)
            # A role alone is no token: some servers send one before they have computed anything.
            if content or delta.get("tool_calls") or delta.get("reasoning") or delta.get("reasoning_content"):
                self.times.append(at_ns)

    def _take_call(self, call: Mapping[str, Any]) -> None:
        known = self.calls.setdefault(
            int(call.get("index", len(self.calls))), {"type": "function", "function": {"name": "", "arguments": ""}}
        )
        if call.get("id"):
            known["id"] = call["id"]
        function = call.get("function") or {}
        known["function"]["name"] += function.get("name") or ""
        arguments = function.get("arguments") or ""
        known["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)


_OWN_FIELDS = frozenset({"id", "object", "created", "model", "system_fingerprint", "choices", "usage"})


def understand(heard: Heard) -> tuple[Answer, Said]:
    """Return the answer that was heard, and all the server said; whatever is wrong with it is the answer's fault."""
    received, said = take_apart(heard), Said()
    broken = heard.broken
    for event in received.events:
        try:
            said.hear(event.at_ns, json.loads(event.data))
        except (ValueError, TypeError, AttributeError, KeyError):
            broken = broken or f"garbled stream: {excerpt(event.data)}"
            break
    if said.fault or broken:
        fault = said.fault or broken
    elif received.status is None:
        fault = "cut off: the server closed the connection without an answer"
    elif received.status != 200:
        fault = f"HTTP {received.status}: {excerpt(received.body)}"
    elif not received.body.strip():
        fault = "empty answer: HTTP 200 without a body"
    elif not received.events and not received.done:
        fault = f"not an event stream: {excerpt(received.body)}"
    elif not received.done:
        fault = "cut off: the stream ended without [DONE]"
    else:
        fault = None
    return _answer(heard, said, fault), said


def _answer(heard: Heard, said: Said, fault: str | None) -> Answer:
    output = _count(said.usage.get("completion_tokens"))
    # A chunk is a token only where the numbers say so.
    tokens = 1 if output == len(said.times) else None
    details = said.usage.get("prompt_tokens_details") or {}
    prompt = _count(said.usage.get("prompt_tokens"))
    claims = Claims(prompt_tokens=prompt, cached_tokens=_count(details.get("cached_tokens")), completion_tokens=output)
    return Answer(
        heard.sent_ns,
        heard.ended_ns,
        arrivals=tuple(Arrival(at, tokens) for at in said.times),
        text=said.text,
        tool_calls=tuple(said.calls[index] for index in sorted(said.calls)),
        finish=said.finish,
        prompt_tokens=prompt,
        output_tokens=output,
        claims=claims,
        fault=fault,
    )


def _count(written: object) -> int | None:
    return written if isinstance(written, int) and not isinstance(written, bool) and written >= 0 else None
