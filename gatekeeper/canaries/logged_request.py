"""The requests of a log, JSON lines that are read one by one: chat requests of OpenAI's API as sent, with answers."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import ValidationError

from gatekeeper.core.canary import LIMITS, OPTIONS, ROLES, SCHEMAS, WITHOUT_EFFECT, Canary
from gatekeeper.core.canary.filler import CHARACTERS
from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import COUNTS, JSON_BYTES, ParseError, json_value
from gatekeeper.core.slo import MOST_TOKENS
from gatekeeper.core.system.files import open_input

Json = dict[str, Any]
T = TypeVar("T")

VALUES = 2_000_000
"""Values of one line, counted as its commas and opening brackets: JSON_BYTES of empty lists take gigabytes once they
are parsed. A long conversation has under a hundredth of it."""
LINES = 2_000_000
"""Lines that are read; a busy server's week."""

SAMPLING = ("temperature", "top_p", "top_k", "min_p")
"""Fields that [sampling] of an SLO sets for all of its requests."""
THINKING = {"enable_thinking": True}, {"enable_thinking": False}
"""The template arguments that a canary has a key for."""
BESIDE_REQUEST = frozenset({"completion_tokens", "response", "workload"})
"""Fields of a line that stand beside those of the request."""
UNSORTED = frozenset({"unknown", "default"})
"""What our proxy calls requests that name a workload without a route, and those that no rule fits."""


class UnusableError(ValueError):
    """A line that cannot become a canary; the message says why, and is counted."""


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
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
class LoggedRequest:
    """One request: its prompt, what it offered and asked for, and the answer where the log holds it."""

    messages: tuple[Json, ...]
    answer: LoggedAnswer | None
    tools: tuple[Json, ...]
    options: Mapping[str, Any]
    """Fields that a canary sends as they were sent."""
    max_tokens: int | None
    thinking: bool | None
    workload: str
    sampling: Mapping[str, float]
    lost: tuple[str, ...]
    """Fields with an effect that a canary has no key for."""

    @property
    def prompt(self) -> str:
        """Return all that makes it another prompt, as one text."""
        parts = [self.messages, self.tools, dict(self.options), self.thinking]
        return json.dumps(parts, sort_keys=True)

    @property
    def characters(self) -> int:
        """Return the characters of its messages and tools."""
        tools = json.dumps(self.tools) if self.tools else ""
        return sum(len(message["content"] or "") for message in self.messages) + len(tools)


def body_of(record: object) -> Json:
    """Return the body of the request of one line: the line itself, or what it has as `request` or `body`."""
    if not isinstance(record, dict):
        raise UnusableError("a line that is no JSON object")
    request = record.get("request", record.get("body", record))
    if not isinstance(request, dict):
        raise UnusableError("a request that is no JSON object")
    return {name: value for name, value in request.items() if name not in BESIDE_REQUEST}


def read_request(record: Json) -> LoggedRequest:
    """Return the request of one line, as a canary could have it."""
    request = body_of(record)
    if not isinstance(request.get("messages"), list) or not request["messages"]:
        raise UnusableError("a line without messages: only chat requests of OpenAI's API are read")
    messages = [_read_message(message) for message in request["messages"]]
    answer = _read_answer(record.get("response"), record.get("completion_tokens"))
    if messages[-1]["role"] == "assistant":  # a line of a fine-tuning file ends with the answer
        last = messages.pop()
        answer = answer or LoggedAnswer(last["content"] or "", tuple(last.get("tool_calls") or ()))
    texts = [message["content"] or "" for message in messages if message["role"] == "user"]
    if not texts or not all(text.strip() for text in texts):
        raise UnusableError("a prompt without a user's text")
    fields = {name: value for name, value in request.items() if value is not None}
    tools = _read_tools(fields.get("tools", []))
    options = {name: fields[name] for name in OPTIONS if name in fields}
    template = fields.get("chat_template_kwargs")
    read = {"tools", *options, *SAMPLING, *WITHOUT_EFFECT}
    if template in THINKING or not template:
        read.add("chat_template_kwargs")
    if fields.get("n") == 1:
        read.add("n")
    try:
        Canary.model_validate({"id": "a", "messages": messages, "tools": tools, **options})
    except ValidationError as error:
        raise UnusableError(f"a request with a {error.errors()[0]['loc'][0]} that no canary can have") from error
    limit = next((count for name in LIMITS if (count := token_count(fields.get(name)))), None)
    return LoggedRequest(
        messages=tuple(messages),
        answer=answer,
        tools=tools,
        options=options,
        max_tokens=limit,
        thinking=bool(template["enable_thinking"]) if template in THINKING else None,
        workload=_name_workload(record, tools, options),
        sampling={name: fields[name] for name in SAMPLING if type(fields.get(name)) in {int, float}},
        lost=tuple(sorted(fields.keys() - read)),
    )


def _read_message(message: object) -> Json:
    """Return a message as it was sent, its parts of text joined."""
    if not isinstance(message, dict):
        raise UnusableError("a message that is no JSON object")
    if message.get("role") not in ROLES:
        raise UnusableError("a message with an unknown role")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(_is_call(call) for call in calls):
        raise UnusableError("a tool call without a name or arguments")
    return {**message, "content": _join_text(message.get("content"), may_lack=bool(calls))}


def _join_text(content: object, *, may_lack: bool) -> str | None:
    """Return the text of a message's content, whose parts are joined."""
    if isinstance(content, str):
        return content
    if content is None:
        if may_lack:
            return None
        raise UnusableError("a message without content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise UnusableError("a message that is not text alone: an image, sound or file")
    return "".join(str(text) for text in texts)


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return False
    return isinstance(function.get("name"), str) and isinstance(function.get("arguments"), str)


def _read_tools(tools: object) -> tuple[Json, ...]:
    """Return the tools as they were sent."""
    for tool in tools if isinstance(tools, list) else [None]:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise UnusableError("a tool that is no function with a name")
    return tuple(tools) if isinstance(tools, list) else ()


def _read_answer(response: object, tokens: object) -> LoggedAnswer | None:
    """Return the answer in a chat completion, or as our proxy writes it; None where a line holds none."""
    if not isinstance(response, dict):
        return None
    message: object = response
    if isinstance(choices := response.get("choices"), list):
        message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
        usage = response.get("usage")
        tokens = usage.get("completion_tokens") if isinstance(usage, dict) else tokens
    if not isinstance(message, dict):
        return None
    text, calls = message.get("content", message.get("text")), message.get("tool_calls") or []
    if not isinstance(calls, list):
        return None
    # Our proxy writes a call without the object around its function.
    functions = [call.get("function", call) if isinstance(call, dict) else None for call in calls]
    wrapped = tuple({"type": "function", "function": function} for function in functions)
    if not all(_is_call(call) for call in wrapped) or not (wrapped or isinstance(text, str)):
        return None
    return LoggedAnswer(text if isinstance(text, str) else "", wrapped, token_count(tokens))


def token_count(value: object) -> int | None:
    """Return a count of tokens that a log names; None for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value not in COUNTS or not 0 < value <= MOST_TOKENS:
        return None
    return value


def _name_workload(record: Json, tools: Sequence[Json], options: Mapping[str, Any]) -> str:
    """Return the workload that the line names; else what kind of request it is: tools, json or chat."""
    name = record.get("workload")
    is_sorted = not (record.get("kind") == "completion" and name in UNSORTED)
    if isinstance(name, str) and name.strip() and is_sorted:
        return name
    if tools:
        return "tools"
    return "json" if options.keys() & {*SCHEMAS} else "chat"


def find_conversations(requests: Sequence[LoggedRequest]) -> list[list[LoggedRequest]]:
    """Return the conversations of which several turns were requested, those with the most turns first.

    The messages of a turn begin with all those of the turn before. Where a conversation was continued in two ways, its
    beginning belongs to the longer one.
    """
    path_by_texts: dict[tuple[str, ...], int] = {}
    paths: list[list[int]] = []
    for place in sorted(range(len(requests)), key=lambda place: len(requests[place].messages)):
        request = requests[place]
        texts = tuple(json.dumps(message, sort_keys=True) for message in request.messages)
        beginning: list[int] = []
        for count in range(len(texts) - 1, 0, -1):
            path = paths[path_by_texts[texts[:count]]] if texts[:count] in path_by_texts else None
            if path is not None and _continues(request, requests[path[-1]]):
                beginning = path
                break
        path_by_texts.setdefault(texts, len(paths))
        paths.append([*beginning, place])
    used: set[int] = set()
    conversations = []
    for path in sorted(paths, key=len, reverse=True):
        if len(path) > 1 and not used.intersection(path):
            used.update(path)
            conversations.append([requests[place] for place in path])
    return conversations


def _continues(turn: LoggedRequest, before: LoggedRequest) -> bool:
    """Return whether a turn offers and asks for what the turn before did; its messages are known to begin alike."""
    return turn.tools == before.tools and turn.options == before.options


def read_log(path: Path, read: Callable[[Any], T]) -> Iterator[tuple[int, T | UnusableError]]:
    """Yield the number of each line with what *read* makes of it; a line without a request is an UnusableError."""
    try:
        with open_input(path) as file:
            for number, line in _lines(file, path):
                if line.strip():
                    yield number, _read_line(line, read)
    except FileNotFoundError:
        hint = "write the log to a file first: stdin is not read" if str(path) == "-" else "check the path"
        raise InputError(f"log {path} does not exist", hint=hint) from None
    except IsADirectoryError:
        raise InputError(f"log {path} is a folder", hint=f"name the files: {path}/*.jsonl") from None
    except OSError as error:
        hint = "check the file and its permissions"
        raise InputError(f"cannot read log {path}: {error.strerror or error}", hint=hint) from error


def _lines(file: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(JSON_BYTES + 1):
        number += 1
        if number > LINES:
            raise InputError(f"log {path} has more than {LINES} lines", hint="split it, and import the newest part")
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _read_line(line: bytes, read: Callable[[Any], T]) -> T | UnusableError:
    if len(line) > JSON_BYTES:
        return UnusableError(f"a line longer than {JSON_BYTES >> 20} MB")
    if line.count(b",") + line.count(b"[") + line.count(b"{") > VALUES:
        return UnusableError(f"a line with more than {VALUES} values: lists, objects, and what they hold")
    try:
        return read(json_value(line, from_server=True))
    except ParseError as error:
        return UnusableError(f"a line that is not JSON: {str(error).partition(' at ')[0]}")
    except UnusableError as error:
        return error
