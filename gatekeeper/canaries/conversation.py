"""One request of real traffic with its answer, and the parts of chat formats that become one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.backends.http.chat_answer import ChatResponse
from gatekeeper.canaries import responses_api
from gatekeeper.core.canary.filler import CHARACTERS
from gatekeeper.core.parse import COUNTS, ParseError, json_value
from gatekeeper.core.slo import MOST_TOKENS

Json = dict[str, Any]

ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
"""The roles of all formats, as the OpenAI API calls them."""


class UnusableError(ValueError):
    """A record that cannot become a canary; the message says why, and is counted."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What was answered: text, and calls as the OpenAI API writes them."""

    text: str = ""
    calls: tuple[Json, ...] = ()
    tokens: int | None = None
    """As the log counts them."""

    @property
    def length(self) -> int:
        """Return the tokens; without a count about as many as the text has."""
        size = len(self.text) + sum(len(str(call)) for call in self.calls)
        return self.tokens if self.tokens is not None else -(-size // CHARACTERS)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One request: its prompt, what it offered and asked for, and the answer where the log holds it."""

    messages: tuple[Json, ...]
    answer: RecordedAnswer | None = None
    tools: tuple[Json, ...] = ()
    response_format: Json | None = None
    max_tokens: int | None = None
    workload: str | None = None
    """As the log names it; None where it does not."""
    model: str | None = None
    is_benchmark: bool = False
    """A prompt of a published set, which stays a canary of its own however like another one it is."""

    @property
    def words(self) -> str:
        """Return the text of the prompt, without system prompts and tools, which requests of one client share."""
        return "\n".join(message["content"] or "" for message in self.messages if message["role"] != "system")

    @property
    def length(self) -> int:
        """Return about how many tokens the whole prompt has."""
        size = sum(len(message["content"] or "") + len(str(message.get("tool_calls", ""))) for message in self.messages)
        return -(-(size + len(str(self.tools or ""))) // CHARACTERS)


def grown(requests: Sequence[Conversation]) -> list[list[Conversation]]:
    """Return the conversations of which several turns were requested, those with the most turns first.

    The messages of a turn begin with all those of the turn before. Where a conversation was continued in two ways, its
    beginning belongs to the longer one.
    """
    known: dict[tuple[str, ...], int] = {}
    paths: list[list[int]] = []
    for place in sorted(range(len(requests)), key=lambda place: len(requests[place].messages)):
        texts = tuple(json.dumps(message, sort_keys=True) for message in requests[place].messages)
        shorter = (paths[known[texts[:count]]] for count in range(len(texts) - 1, 0, -1) if texts[:count] in known)
        begun = next((path for path in shorter if requests[path[-1]].tools == requests[place].tools), [])
        known.setdefault(texts, len(paths))
        paths.append([*begun, place])
    used, chains = set[int](), []
    for path in sorted(paths, key=len, reverse=True):
        if len(path) > 1 and not used.intersection(path):
            used.update(path)
            chains.append([requests[place] for place in path])
    return chains


def from_request(
    request: Mapping[str, Any], response: object = None, *, workload: object = None, answer_tokens: object = None
) -> Conversation:
    """Return the conversation of a request in the OpenAI format; messages that end with the answer are cut there."""
    if "messages" not in request and "prompt" not in request and "input" in request:
        request = responses_api.as_chat(request)
    written = request.get("messages")
    if written is None and isinstance(request.get("prompt"), str):
        written = [{"role": "user", "content": request["prompt"]}]
    if not isinstance(written, Sequence) or isinstance(written, str) or not written:
        raise UnusableError("a record without messages")
    messages = [_message(message) for message in written]
    answer = None if response is None else recorded_answer(response)
    if messages[-1]["role"] == "assistant":
        last = messages.pop()
        answer = answer or RecordedAnswer(last["content"] or "", tuple(last.get("tool_calls", ())))
    if not any(message["role"] == "user" and (message["content"] or "").strip() for message in messages):
        raise UnusableError("a prompt without a user's message")
    if answer is not None and (count := token_count(answer_tokens)) is not None:
        answer = RecordedAnswer(answer.text, answer.calls, count)
    token_limit = request.get("max_completion_tokens") or request.get("max_tokens") or request.get("n_predict")
    form, model = request.get("response_format"), request.get("model")
    return Conversation(
        messages=tuple(messages),
        answer=answer,
        tools=_tools(request.get("tools")) or _tools(_wrapped(request.get("functions"))),
        response_format=form if isinstance(form, dict) else None,
        max_tokens=token_count(token_limit) or None,
        workload=workload if isinstance(workload, str) and workload.strip() else None,
        model=model if isinstance(model, str) else None,
    )


def token_count(value: object) -> int | None:
    """Return a count of tokens that a log names; None for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value not in COUNTS or value > MOST_TOKENS:
        return None
    return value


def _message(written: object) -> Json:
    """Return a message with what a server reads of it; names and ids of people are left out."""
    if not isinstance(written, dict):
        raise UnusableError("a message that is not an object")
    role = written.get("role")
    openai_role = ROLES.get(role.strip().lower()) if isinstance(role, str) else None
    if openai_role is None:
        raise UnusableError("a message with an unknown role")
    content = written.get("content", written.get("text"))
    calls = written.get("tool_calls") or _wrapped([written.get("function_call")])
    message: Json = {"role": openai_role, "content": _text(content, may_lack=bool(calls))}
    if calls and openai_role == "assistant":
        message["tool_calls"] = [_call(call) for call in calls] if isinstance(calls, list) else []
    if openai_role == "tool" and isinstance(written.get("tool_call_id"), str):
        message["tool_call_id"] = written["tool_call_id"]
    return message


def _text(content: object, *, may_lack: bool) -> str | None:
    """Return the text of a message's content, whose parts are joined."""
    if isinstance(content, str):
        return content
    if content is None:
        if may_lack:
            return None
        raise UnusableError("a message without content")
    pieces = []
    for part in content if isinstance(content, list) else [content]:
        piece = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        if not isinstance(piece, str):
            raise UnusableError("a message that is not text alone: an image, sound or file")
        pieces.append(piece)
    return "".join(pieces)


def _call(written: object) -> Json:
    function = written.get("function", written) if isinstance(written, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UnusableError("a tool call without a name")
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    call: Json = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    if isinstance(written, dict) and isinstance(written.get("id"), str):
        call["id"] = written["id"]
    return call


def _tools(written: object) -> tuple[Json, ...]:
    if not isinstance(written, list):
        return ()
    return tuple(
        {"type": "function", "function": tool["function"]}
        for tool in written
        if isinstance(tool, dict)
        and isinstance(tool.get("function"), dict)
        and isinstance(tool["function"].get("name"), str)
    )


def _wrapped(functions: object) -> list[Json]:
    """Return functions, or calls of them, as requests had them before there were tools, as tools or their calls."""
    listed = functions if isinstance(functions, list) else []
    return [{"type": "function", "function": function} for function in listed if isinstance(function, dict)]


def recorded_answer(response: object) -> RecordedAnswer | None:
    """Return the answer in a response: a body of the OpenAI format, a stream of it as text, or the bare text.

    None where it holds no answer: an error, an interrupted stream.
    """
    response = _as_now(response)
    if isinstance(response, dict) and not response.keys() & {"choices", "message", "error"}:
        return _plain_answer(response)
    chat, chunks = ChatResponse(), [response]
    if isinstance(response, str):
        if not response.lstrip().startswith("data:"):
            return RecordedAnswer(response) if response.strip() else None
        lines = [line[5:].strip() for line in response.splitlines() if line.startswith("data:")]
        try:
            chunks = [json_value(line, from_server=True) for line in lines if line not in {"", "[DONE]"}]
        except ParseError:
            return None
    try:
        for chunk in chunks:
            chat.add(0, chunk)  # type: ignore[arg-type]  # what is no object raises one of the errors below
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    if chat.fault is not None or not chat.arrived:
        return None
    calls = tuple(chat.calls[index] for index in sorted(chat.calls))
    return RecordedAnswer(chat.text, calls, token_count(chat.usage.get("completion_tokens")))


def _as_now(response: object) -> object:
    """Return a response of the Responses API, or of the time before tools, as chat completions are now."""
    if not isinstance(response, dict):
        return response
    if isinstance(response.get("output"), list):
        return responses_api.as_completion(response)
    for choice in response.get("choices") or ():
        message = choice.get("message") if isinstance(choice, dict) else None
        if isinstance(message, dict) and not message.get("tool_calls"):
            message["tool_calls"] = _wrapped([message.get("function_call")])
    return response


def _plain_answer(response: Json) -> RecordedAnswer | None:
    """Return the answer that a proxy wrote as text and calls, or that of llama-server's own /completion."""
    text, calls = response.get("text", response.get("content")), response.get("tool_calls")
    openai_calls = tuple(_call(call) for call in calls) if isinstance(calls, list) else ()
    if not (text or openai_calls):
        return None
    tokens = token_count(response.get("tokens_predicted"))
    return RecordedAnswer(text if isinstance(text, str) else "", openai_calls, tokens)
