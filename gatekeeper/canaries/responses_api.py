"""Requests and answers of OpenAI's Responses API, written as those of chat completions."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

_COPIED = ("model", "workload", "metadata")


def as_chat(request: Mapping[str, Any]) -> Json:
    """Return a request with `input` as one with `messages`; an earlier response that it continues is not in a log."""
    written = request["input"]
    items = [{"role": "user", "content": written}] if isinstance(written, str) else _listed(written)
    messages = [_message(item) for item in items if _is_message(item)]
    if isinstance(system := request.get("instructions"), str) and system.strip():
        messages.insert(0, {"role": "system", "content": system})
    chat: Json = {key: request[key] for key in _COPIED if key in request}
    chat |= {"messages": messages, "tools": [_tool(item) for item in _listed(request.get("tools"))]}
    chat["max_tokens"] = request.get("max_output_tokens")
    text = request.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict):
        chat["response_format"] = {"type": form.get("type"), "json_schema": {"schema": form.get("schema")}}
    return chat


def as_completion(response: Mapping[str, Any]) -> Json:
    """Return a response with `output` as a chat completion; without text and calls it has no choice."""
    output = [item for item in _listed(response.get("output")) if isinstance(item, dict)]
    parts = [part for item in output if item.get("type") == "message" for part in _listed(item.get("content"))]
    text = "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
    calls = [_call(item) for item in output if item.get("type") == "function_call"]
    usage = response.get("usage")
    count = usage.get("output_tokens") if isinstance(usage, dict) else None
    failed = response.get("status") in {"failed", "cancelled", "incomplete"} or response.get("error")
    message = {"role": "assistant", "content": text or None, "tool_calls": calls}
    is_complete = bool(text or calls) and not failed
    return {"choices": [{"message": message}] if is_complete else [], "usage": {"completion_tokens": count}}


def _is_message(item: Any) -> bool:
    """Leave out what is neither written nor answered: thoughts, references to earlier items."""
    return not isinstance(item, dict) or item.get("type") not in {"reasoning", "item_reference"}


def _message(item: Any) -> Any:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "function_call":
        return {"role": "assistant", "content": None, "tool_calls": [_call(item)]}
    if kind == "function_call_output":
        return {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
    return item


def _call(item: Mapping[str, Any]) -> Json:
    function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
    return {"type": "function", "id": item.get("call_id"), "function": function}


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function" or "function" in tool:
        return tool
    fields = ("name", "description", "parameters")
    return {"type": "function", "function": {key: tool[key] for key in fields if key in tool}}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
