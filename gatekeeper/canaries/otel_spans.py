"""Conversations in OpenTelemetry spans of GenAI requests, as OTLP JSON; three generations of its conventions."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gatekeeper.canaries.conversation import Conversation, UnusableError, from_request
from gatekeeper.core.parse import ParseError, json_value

Json = dict[str, Any]

_NUMBERED = re.compile(r"gen_ai\.(prompt|completion)\.([0-9]{1,4})\.(role|content)")
"""How instrumentations before the conventions on messages wrote them: one attribute a field."""
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_DEEP = 50
"""Lists and tables inside an attribute; a message has five."""
_OPERATIONS = {None, "chat", "text_completion", "generate_content"}


def spans(document: Mapping[str, Any]) -> Iterator[Conversation | UnusableError]:
    """Yield the conversation of each span of a GenAI request in *document*; other spans are passed over."""
    for resource in _list(document.get("resourceSpans")):
        for scope in _list(resource.get("scopeSpans")):
            for span in _list(scope.get("spans")):
                attributes = _attributes(span.get("attributes"))
                if not any(name.startswith("gen_ai.") for name in attributes):
                    continue
                if attributes.get("gen_ai.operation.name") not in _OPERATIONS:
                    continue
                try:
                    yield _conversation(attributes, _list(span.get("events")))
                except UnusableError as error:
                    yield error


def _conversation(attributes: Json, events: list[Json]) -> Conversation:
    prompt, answer = _messages(attributes)
    if not prompt:
        prompt, answer = _numbered(attributes)
    if not prompt:
        prompt, answer = _from_events(events)
    if not prompt:
        raise UnusableError("a span without its prompt: content was not captured")
    system = _written(attributes.get("gen_ai.system_instructions"))
    first = [{"role": "system", "content": _parts(system)[0]}] if system else []
    messages = [*first, *map(_message, prompt), *map(_message, answer[:1])]
    tools = _written(attributes.get("gen_ai.tool.definitions"))
    request = {
        "messages": messages,
        "tools": [_tool(tool) for tool in tools] if isinstance(tools, list) else None,
        "max_tokens": attributes.get("gen_ai.request.max_tokens"),
        "model": attributes.get("gen_ai.request.model"),
        "response_format": {"type": "json_object"} if attributes.get("gen_ai.output.type") == "json" else None,
    }
    workload = attributes.get("gatekeeper.workload") or attributes.get("gen_ai.agent.name")
    return from_request(request, workload=workload, answer_tokens=attributes.get("gen_ai.usage.output_tokens"))


def _messages(attributes: Json) -> tuple[list[Any], list[Any]]:
    """Return the messages of the prompt, and of the answer."""
    prompt, answer = (_written(attributes.get(f"gen_ai.{kind}.messages")) for kind in ("input", "output"))
    return prompt if isinstance(prompt, list) else [], answer if isinstance(answer, list) else []


def _message(written: object) -> Json:
    """Return a message of OpenTelemetry as the OpenAI API writes it."""
    if not isinstance(written, dict):
        raise UnusableError("a message that is not an object")
    if "parts" not in written:
        return written
    text, calls, result = _parts(written["parts"])
    if result is not None:
        return {"role": "tool", **result}
    return {"role": written.get("role"), "content": text, **({"tool_calls": calls} if calls else {})}


def _parts(parts: object) -> tuple[str, list[Json], Json | None]:
    """Return the text, the tool calls and the result of a tool in the parts of a message."""
    texts: list[str] = []
    calls: list[Json] = []
    result: Json | None = None
    for part in parts if isinstance(parts, list) else [{"type": "text", "content": parts}]:
        kind, content = (part.get("type"), part.get("content")) if isinstance(part, dict) else (None, None)
        if kind == "text" and isinstance(content, str):
            texts.append(content)
        elif kind == "tool_call":
            arguments = part.get("arguments")
            calls.append({"id": part.get("id"), "function": {"name": part.get("name"), "arguments": arguments or {}}})
        elif kind == "tool_call_response":
            response = part.get("response", part.get("result"))
            result = {"tool_call_id": part.get("id"), "content": str(response)}
        elif kind != "reasoning":
            raise UnusableError("a message that is not text alone: an image, sound or file")
    return "".join(texts), calls, result


def _numbered(attributes: Json) -> tuple[list[Json], list[Json]]:
    turns_by_kind: dict[str, dict[int, Json]] = {"prompt": {}, "completion": {}}
    for name, value in attributes.items():
        if match := _NUMBERED.fullmatch(name):
            turns_by_kind[match[1]].setdefault(int(match[2]), {})[match[3]] = value
    prompt, answer = ([turns[position] for position in sorted(turns)] for turns in turns_by_kind.values())
    for turn in answer:
        turn.setdefault("role", "assistant")
    return prompt, answer


def _from_events(events: list[Json]) -> tuple[list[Any], list[Any]]:
    prompt: list[Any] = []
    answer: list[Any] = []
    for event in events:
        name, fields = str(event.get("name")), _attributes(event.get("attributes"))
        if match := _EVENT.fullmatch(name):
            prompt.append({"role": match[1], **fields})
        elif name == "gen_ai.choice":
            message = _written(fields.get("message"))
            answer.append({"role": "assistant", **(message if isinstance(message, dict) else fields)})
        elif name == "gen_ai.client.inference.operation.details":
            return _messages(fields)
    return prompt, answer


def _tool(written: object) -> object:
    return written if isinstance(written, dict) and "function" in written else {"function": written}


def _written(value: object) -> Any:
    """Return a value that a span holds as it is, or as the text of its JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json_value(value, from_server=True)
    except ParseError:
        return value or None


def _attributes(written: object) -> Json:
    return {
        attribute["key"]: _value(attribute.get("value"))
        for attribute in _list(written)
        if isinstance(attribute.get("key"), str)
    }


def _value(written: object, depth: int = 0) -> Any:
    """Return the value of an attribute in OTLP JSON, whose whole numbers are text."""
    if not isinstance(written, dict) or depth > _DEEP:
        return None
    for kind, value in written.items():
        if kind == "intValue":
            return int(value) if str(value).isascii() and str(value).isdecimal() and len(str(value)) < 19 else None
        if kind == "arrayValue" and isinstance(value, dict):
            return [_value(item, depth + 1) for item in _list(value.get("values"))]
        if kind == "kvlistValue" and isinstance(value, dict):
            pairs = (item for item in _list(value.get("values")) if isinstance(item.get("key"), str))
            return {item["key"]: _value(item.get("value"), depth + 1) for item in pairs}
        if kind in {"stringValue", "boolValue", "doubleValue"}:
            return value
    return None


def _list(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
