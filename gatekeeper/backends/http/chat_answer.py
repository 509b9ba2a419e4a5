"""Chat answers of OpenAI-compatible servers and Ollama: an answer, as it is recorded, from the bytes."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gatekeeper.backends.http.response import HttpResponse, excerpt, parse_response
from gatekeeper.backends.http.stream import RawResponse, quiet
from gatekeeper.core.parse import COUNTS, ParseError, json_value, json_values
from gatekeeper.core.records import EMPTY, Answer, Claims
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.text import quote

CUT_OFF = "cut off"
"""The kind of fault of an answer that ended too early."""


TokensOf = Callable[[Mapping[str, Any]], int | None]
"""Reads from a chunk how many tokens the answer has up to and with it; None where the chunk does not show it."""


class Chunk(NamedTuple):
    """One JSON object of an answer, with when it came."""

    at_ns: int
    fields: dict[str, Any]


@dataclass(slots=True)
class ChatResponse:
    """A server's response, gathered chunk by chunk; a single document is one chunk."""

    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)
    """The server's names for the model that answered; several where it was swapped within an answer."""
    last: dict[str, Any] = field(default_factory=dict)
    """The latest value of each field that is not the API's own, such as `timings`."""
    chunks: list[Chunk] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    """Which of the chunks held a part of the answer: content, reasoning or a piece of a tool call."""
    sizes: list[int] = field(default_factory=list)
    """How many characters each of these held."""
    fault: str | None = None
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _size: int = 0

    @property
    def model(self) -> str | None:
        """Return the name of the model, or the names of all that answered."""
        return ", then ".join(map(quote, self.models)) or None

    @property
    def text(self) -> str:
        """Return the content."""
        return _join_pieces(self._text)

    @property
    def reasoning(self) -> str:
        """Return the reasoning, which is not part of the content."""
        return _join_pieces(self._reasoning)

    def add(self, at_ns: int, chunk: dict[str, Any]) -> None:
        """Add one chunk; raise ValueError, TypeError, AttributeError or KeyError where it is not valid."""
        self._add_other_fields(chunk)
        brought, before = False, self._size
        for choice in chunk.get("choices") or ():
            if choice.get("finish_reason"):
                self.finish = quote(str(choice["finish_reason"]))
            brought |= self._add_delta(choice.get("delta") or choice.get("message") or {"content": choice.get("text")})
        if isinstance(chunk.get("message"), dict):
            brought |= self._add_delta(chunk["message"])
        if chunk.get("done") is True:
            self._end(chunk)
        if brought:
            self.arrived.append(len(self.chunks))
            self.sizes.append(self._size - before)
        self.chunks.append(Chunk(at_ns, chunk))

    def _add_other_fields(self, chunk: Mapping[str, Any]) -> None:
        if chunk.get("error"):
            self.fault = self.fault or f"server error: {excerpt(json.dumps(chunk['error']).encode())}"
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        if (model := chunk.get("model")) and len(self.models) < _MOST_MODELS and model not in self.models:
            self.models.append(model + "")
        for name, value in chunk.items():
            if name not in _OWN_FIELDS:
                self.last[name] = value

    def _add_delta(self, delta: Mapping[str, Any]) -> bool:
        """Add a message or a piece of one; tell whether it held anything but a role."""
        content, thought = delta.get("content"), None
        if len(delta) > 1 or content is None:
            # Some servers send it under two names at once.
            thought = delta.get("reasoning") or delta.get("reasoning_content") or delta.get("thinking")
            for call in delta.get("tool_calls") or ():
                self._add_call(call)
        # Adding "" raises TypeError for anything but text.
        if content:
            self._text.append(content + "")
            self._size += len(content)
        if thought:
            self._reasoning.append(thought + "")
            self._size += len(thought)
        return bool(content or thought or delta.get("tool_calls"))

    def _add_call(self, call: Mapping[str, Any]) -> None:
        index = call.get("index")
        gathered = self.calls.setdefault(
            len(self.calls) if index is None else int(index),
            {"type": "function", "function": {"name": "", "arguments": ""}},
        )
        if call.get("id"):
            gathered["id"] = quote(str(call["id"]))
        function = call.get("function") or {}
        gathered["function"]["name"] += function.get("name") or ""
        arguments = function.get("arguments") or ""
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
        gathered["function"]["arguments"] += arguments
        self._size += len(function.get("name") or "") + len(arguments)

    def _end(self, chunk: Mapping[str, Any]) -> None:
        """Add the end of an answer as Ollama writes it."""
        self.finish = quote(str(chunk.get("done_reason") or self.finish or "stop"))
        counts = {"prompt_tokens": chunk.get("prompt_eval_count"), "completion_tokens": chunk.get("eval_count")}
        self.usage = self.usage or {name: count for name, count in counts.items() if count is not None}


_OWN_FIELDS = frozenset(
    {"id", "object", "created", "model", "system_fingerprint", "choices", "usage", "message", "done", "done_reason"}
)
_END_OF_THOUGHT = "</think>"
"""Ends the reasoning in a content from which the server did not part it."""
_one_at_a_time = threading.Lock()
"""Many answers that end together are parsed in turn: threads that parse at once hold up those that read a stream."""
_MOST_MODELS = 3
"""Names of models that are kept of one answer: two of them are already a finding."""


def read_answer(raw: RawResponse, *, tokens_of: TokensOf | None = None) -> tuple[Answer, ChatResponse]:
    """Return the answer in *raw*, and the whole response; an error in it is the answer's fault.

    *tokens_of* reads the tokens up to a chunk from it, where this server's chunks hold them.
    """
    with quiet, _one_at_a_time:
        http, chat = parse_response(raw), ChatResponse()
        garbled = _gather(http, chat)
        return _answer(raw, chat, _fault(raw, http, chat, garbled), tokens_of), chat


def _gather(http: HttpResponse, chat: ChatResponse) -> str | None:
    """Add every chunk of *http* to *chat*; return the first that is not valid, as a fault."""
    events = http.events if http.status == 200 else ()
    values = json_values([event.data for event in events])
    for number, event in enumerate(events):
        try:
            chat.add(event.at_ns, json_value(event.data, from_server=True) if values is None else values[number])
        except ParseError as error:
            return f"garbled stream: {excerpt(event.data)} ({error})"
        except (ValueError, TypeError, AttributeError, KeyError):
            return f"garbled stream: {excerpt(event.data)}"
    return None


def _fault(raw: RawResponse, http: HttpResponse, chat: ChatResponse, garbled: str | None) -> str | None:
    """Return the worst error of an answer; None where it is complete."""
    if http.status is None:
        if http.body:
            return raw.broken or f"not HTTP: {excerpt(http.body)}"
        return raw.broken or f"{CUT_OFF}: the server closed the connection without an answer"
    if http.status != 200:
        return _http_error(http) + (f" ({raw.broken})" if raw.broken else "")
    return chat.fault or raw.broken or garbled or _missing(http, chat)


def _missing(http: HttpResponse, chat: ChatResponse) -> str | None:
    """Return what a well-formed answer lacks; `[DONE]` may be missing after a complete body with a finish_reason."""
    if not http.body.strip():
        return f"{EMPTY}: HTTP 200 without a body"
    if not http.events and not http.done:
        return f"not an event stream: {excerpt(http.body)}"
    if not http.done and chat.finish is None:
        return f"{CUT_OFF}: the stream ended without [DONE] and without a finish_reason"
    if not http.done and not http.complete:
        return f"{CUT_OFF}: the connection ended before the answer was complete"
    return None


def _http_error(http: HttpResponse) -> str:
    """Describe an HTTP error. Requests are never retried; the time to retry is for the reader."""
    error = f"HTTP {http.status}"
    if http.retry_after is not None:
        error += f", retry after {excerpt(http.retry_after.encode())}"
    if http.location is not None:
        error += f", redirected to {excerpt(http.location.encode())}, which is not followed"
    return f"{error}: {excerpt(http.body)}"


def _answer(raw: RawResponse, chat: ChatResponse, fault: str | None, tokens_of: TokensOf | None) -> Answer:
    generated, prompt = (_count(chat.usage.get(name)) for name in ("completion_tokens", "prompt_tokens"))
    output = None if generated is None else generated - _hidden_tokens(chat, generated)
    cached = _count(_details(chat.usage, "prompt_tokens_details").get("cached_tokens"))
    times = [chat.chunks[number].at_ns for number in chat.arrived]
    tokens = _count_tokens(chat, generated, tokens_of) or _one_each(len(times), output, chat.finish)
    sizes: list[int] | list[None] = chat.sizes if None in tokens else [None] * len(times)
    return Answer(
        raw.sent_ns,
        raw.ended_ns,
        arrivals=tuple(
            Arrival(at, count, characters=size) for at, count, size in zip(times, tokens, sizes, strict=True)
        ),
        text=chat.text,
        reasoning=chat.reasoning,
        tool_calls=tuple(_whole_call(chat.calls[index]) for index in sorted(chat.calls)),
        finish=chat.finish,
        prompt_tokens=prompt,
        output_tokens=output,
        claims=Claims(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=generated, model=chat.model),
        fault=fault,
        read_delay_ns=raw.read_delay_ns,
    )


def _hidden_tokens(chat: ChatResponse, generated: int) -> int:
    """Return how many of the tokens that the usage counts are reasoning that the answer does not show.

    A server that shows its reasoning, apart or in the content, counts what came. SGLang reports it beside the other
    counts, OpenAI in a table.
    """
    details = _details(chat.usage, "completion_tokens_details")
    stated = _count(details.get("reasoning_tokens", chat.usage.get("reasoning_tokens")))
    is_shown = chat.reasoning or _END_OF_THOUGHT in chat.text
    return 0 if stated is None or stated > generated or is_shown else stated


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    details = usage.get(name)
    return details if isinstance(details, dict) else {}


def _count_tokens(chat: ChatResponse, generated: int | None, tokens_of: TokensOf | None) -> list[int] | None:
    """Return the tokens of each arrival from the counts in the chunks; None where counts are missing or contradictory.

    Tokens counted in a chunk without text belong to the next arrival.
    """
    if tokens_of is None:
        return None
    tokens, counted, latest, arrived = [], 0, 0, set(chat.arrived)
    for number, chunk in enumerate(chat.chunks):
        count = _tokens_in(tokens_of, chunk.fields)
        if count is not None and count < latest:
            return None
        latest = latest if count is None else count
        if number in arrived:
            if count is None:
                return None
            tokens.append(count - counted)
            counted = count
    return tokens if generated is None or latest <= generated else None


def _tokens_in(tokens_of: TokensOf, chunk: Mapping[str, Any]) -> int | None:
    try:
        return _count(tokens_of(chunk))
    except (ValueError, TypeError, AttributeError, KeyError):  # a server may send any kind of value
        return None


def _one_each(arrivals: int, output: int | None, finish: str | None) -> list[int] | list[None]:
    """Return one token for each arrival where the totals agree; a stop token has no text, but some servers count it."""
    silent = {0, 1} if finish == "stop" else {0}
    return [1] * arrivals if output is not None and output - arrivals in silent else [None] * arrivals


def _join_pieces(pieces: list[str]) -> str:
    """Join pieces, and the halves of characters that a server cut in two and escaped apart."""
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _whole_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {name: _join_pieces([text]) for name, text in call["function"].items()}
    return {**call, "function": function}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in COUNTS else None
