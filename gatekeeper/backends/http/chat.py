"""A chat as OpenAI-compatible servers and Ollama speak it: the request's body, and an answer from what was heard."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gatekeeper.backends.http.response import HttpResponse, excerpt, parse_response
from gatekeeper.backends.http.stream import RawResponse, quiet
from gatekeeper.core.interfaces import DecodeRequest
from gatekeeper.core.records import Answer, Arrival, Claims

PLAIN = "plain"
"""The residence of plain decoding."""


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
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


def resolve(ask: DecodeRequest) -> ResolvedRequest:
    """Return what *ask* comes to."""
    knobs, sampling = dict(ask.setting), ask.sampling

    def turned(knob: str, otherwise: Any) -> Any:
        value = knobs.get(knob)
        return otherwise if value is None else value

    return ResolvedRequest(
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


TokensOf = Callable[[Mapping[str, Any]], int | None]
"""How many tokens of the answer there are up to and with a chunk; None where the chunk does not say."""


def request_fields(asked: ResolvedRequest, **more: Any) -> dict[str, Any]:
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


class Chunk(NamedTuple):
    """One JSON object of an answer, with when it came."""

    at_ns: int
    said: dict[str, Any]


@dataclass(slots=True)
class ChatResponse:
    """What a server said, gathered chunk by chunk; a single document is one chunk."""

    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)
    """The model that answers, in the server's words; more than one where it is swapped within an answer."""
    system_fingerprint: str | None = None
    last: dict[str, Any] = field(default_factory=dict)
    """Fields of any chunk that are not the API's own, the latest of each: `timings` and the like."""
    chunks: list[Chunk] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    """Which of the chunks brought something of the answer: content, reasoning or a piece of a tool call."""
    fault: str | None = None
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)

    @property
    def model(self) -> str | None:
        """Return the name of the model, or of all that had a part in it."""
        return ", then ".join(self.models) or None

    @property
    def text(self) -> str:
        """Return the content."""
        return _joined(self._text)

    @property
    def reasoning(self) -> str:
        """Return what was thought aloud beside the content."""
        return _joined(self._reasoning)

    def hear(self, at_ns: int, chunk: dict[str, Any]) -> None:
        """Take one chunk in; raise ValueError, TypeError, AttributeError or KeyError where it is none."""
        self._note(chunk)
        brought = False
        for choice in chunk.get("choices") or ():
            if choice.get("finish_reason"):
                self.finish = str(choice["finish_reason"])
            brought |= self._take(choice.get("delta") or choice.get("message") or {"content": choice.get("text")})
        if isinstance(chunk.get("message"), dict):
            brought |= self._take(chunk["message"])
        if chunk.get("done") is True:
            self._end(chunk)
        if brought:
            self.arrived.append(len(self.chunks))
        self.chunks.append(Chunk(at_ns, chunk))

    def _note(self, chunk: Mapping[str, Any]) -> None:
        """Note what a chunk says beside the answer."""
        if chunk.get("error"):
            self.fault = self.fault or f"server error: {excerpt(json.dumps(chunk['error']).encode())}"
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        if (model := chunk.get("model")) and model not in self.models:
            self.models.append(model + "")
        self.system_fingerprint = chunk.get("system_fingerprint") or self.system_fingerprint
        for name, value in chunk.items():
            if name not in _OWN_FIELDS:
                self.last[name] = value

    def _take(self, delta: Mapping[str, Any]) -> bool:
        """Take a message or a piece of one in, and tell whether anything was in it; a role alone is nothing."""
        content, thought = delta.get("content"), None
        if len(delta) > 1 or content is None:
            # Some servers say it under two names at once.
            thought = delta.get("reasoning") or delta.get("reasoning_content") or delta.get("thinking")
            for call in delta.get("tool_calls") or ():
                self._take_call(call)
        # Adding nothing to it lets only text pass.
        if content:
            self._text.append(content + "")
        if thought:
            self._reasoning.append(thought + "")
        return bool(content or thought or delta.get("tool_calls"))

    def _take_call(self, call: Mapping[str, Any]) -> None:
        index = call.get("index")
        known = self.calls.setdefault(
            len(self.calls) if index is None else int(index),
            {"type": "function", "function": {"name": "", "arguments": ""}},
        )
        if call.get("id"):
            known["id"] = call["id"]
        function = call.get("function") or {}
        known["function"]["name"] += function.get("name") or ""
        arguments = function.get("arguments") or ""
        known["function"]["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)

    def _end(self, chunk: Mapping[str, Any]) -> None:
        """Take the end of an answer in as Ollama writes it."""
        self.finish = str(chunk.get("done_reason") or self.finish or "stop")
        counts = {"prompt_tokens": chunk.get("prompt_eval_count"), "completion_tokens": chunk.get("eval_count")}
        self.usage = self.usage or {name: count for name, count in counts.items() if count is not None}


_OWN_FIELDS = frozenset(
    {"id", "object", "created", "model", "system_fingerprint", "choices", "usage", "message", "done", "done_reason"}
)
_DECODE = json.JSONDecoder().raw_decode


def read_answer(heard: RawResponse, *, tokens_of: TokensOf | None = None) -> tuple[Answer, ChatResponse]:
    """Return the answer that was heard, and all the server said; whatever is wrong with it is the answer's fault.

    *tokens_of* reads the tokens up to a chunk out of it, where this server's chunks tell.
    """
    with quiet:
        received, said = parse_response(heard), ChatResponse()
        garbled = _gather(received, said)
        return _answer(heard, said, _fault(heard, received, said, garbled), tokens_of), said


def _gather(received: HttpResponse, said: ChatResponse) -> str | None:
    """Let *said* take in what was received; return what could not be taken in, as a fault."""
    for event in received.events if received.status == 200 else ():
        try:
            said.hear(event.at_ns, _read(event.data))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            return f"garbled stream: {excerpt(event.data)}"
    return None


def _read(data: bytes) -> Any:
    """Read one JSON text as `json.loads` does, in two thirds of its time."""
    text = data.decode().strip()
    value, end = _DECODE(text)
    if end < len(text):
        raise ValueError("more than one JSON text")
    return value


def _fault(heard: RawResponse, received: HttpResponse, said: ChatResponse, garbled: str | None) -> str | None:
    """Return what is wrong with an answer, the worst first; None where it is whole."""
    if received.status is None:
        cut_off = "cut off: the server closed the connection without an answer"
        return heard.broken or (f"not HTTP: {excerpt(received.body)}" if received.body else cut_off)
    if received.status != 200:
        return _refusal(received) + (f" ({heard.broken})" if heard.broken else "")
    return said.fault or heard.broken or garbled or _missing(received, said)


def _missing(received: HttpResponse, said: ChatResponse) -> str | None:
    """Return what a well-formed answer lacks. `[DONE]` it may lack where it says why it finished, and came whole."""
    if not received.body.strip():
        return "empty answer: HTTP 200 without a body"
    if not received.events and not received.done:
        return f"not an event stream: {excerpt(received.body)}"
    if not received.done and said.finish is None:
        return "cut off: the stream ended without [DONE] and without a reason to finish"
    if not received.done and not received.whole:
        return "cut off: the connection ended before the answer"
    return None


def _refusal(received: HttpResponse) -> str:
    """Put an answer that is none into words; when to ask again is for people to read, nothing is asked twice."""
    told = f"HTTP {received.status}"
    if received.retry_after is not None:
        told += f", retry after {excerpt(received.retry_after.encode())}"
    if received.location is not None:
        told += f", redirected to {excerpt(received.location.encode())}, which is not followed"
    return f"{told}: {excerpt(received.body)}"


def _answer(heard: RawResponse, said: ChatResponse, fault: str | None, tokens_of: TokensOf | None) -> Answer:
    output, prompt = (_count(said.usage.get(name)) for name in ("completion_tokens", "prompt_tokens"))
    details = said.usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    times = [said.chunks[number].at_ns for number in said.arrived]
    tokens = _counted(said, output, tokens_of) or _alike(len(times), output, said.finish)
    return Answer(
        heard.sent_ns,
        heard.ended_ns,
        arrivals=tuple(map(Arrival, times, tokens)),
        text=said.text,
        reasoning=said.reasoning,
        tool_calls=tuple(said.calls[index] for index in sorted(said.calls)),
        finish=said.finish,
        prompt_tokens=prompt,
        output_tokens=output,
        claims=Claims(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=output, model=said.model),
        fault=fault,
    )


def _counted(said: ChatResponse, output: int | None, tokens_of: TokensOf | None) -> list[int] | None:
    """Return the tokens of each arrival as the chunks count them; None where they do not, or cannot be right.

    Tokens counted in a chunk without text belong to the next arrival: that is when they are seen.
    """
    if tokens_of is None:
        return None
    tokens, known, latest, arrived = [], 0, 0, set(said.arrived)
    for number, chunk in enumerate(said.chunks):
        count = _told(tokens_of, chunk.said)
        if count is not None and count < latest:
            return None
        latest = latest if count is None else count
        if number in arrived:
            if count is None:
                return None
            tokens.append(count - known)
            known = count
    return tokens if output is None or latest <= output else None


def _told(tokens_of: TokensOf, chunk: Mapping[str, Any]) -> int | None:
    try:
        return _count(tokens_of(chunk))
    except (ValueError, TypeError, AttributeError, KeyError):  # what a server says need not be of the expected kind
        return None


def _alike(arrivals: int, output: int | None, finish: str | None) -> list[int] | list[None]:
    """Return one token for each arrival where the numbers say so; a stop token has no text, but some count it."""
    silent = {0, 1} if finish == "stop" else {0}
    return [1] * arrivals if output is not None and output - arrivals in silent else [None] * arrivals


def _joined(pieces: list[str]) -> str:
    """Join pieces, and the halves of characters that a server cut in two and escaped apart."""
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _count(written: object) -> int | None:
    return written if isinstance(written, int) and not isinstance(written, bool) and written >= 0 else None
