"""Requests and answers of OpenAI's Responses API, written as those of chat completions."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

_KEPT = ("model", "workload", "metadata")


def as_chat(request: Mapping[str, Any]) -> Json:
    """Return a request with `input` as one with `messages`; an earlier response that it continues is not in a log."""
    messages = [_message(one) for one in _items(request["input"]) if _is_message(one)]
    if isinstance(system := request.get("instructions"), str) and system.strip():
        messages.insert(0, {"role": "system", "content": system})
    chat: Json = {key: request[key] for key in _KEPT if key in request}
    chat |= {"messages": messages, "tools": [_tool(one) for one in _listed(request.get("tools"))]}
    chat["max_tokens"] = request.get("max_output_tokens")
    text = request.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict):
        chat["response_format"] = {"type": form.get("type"), "json_schema": {"schema": form.get("schema")}}
    return chat


def as_completion(response: Mapping[str, Any]) -> Json:
    """Return a response with `output` as a chat completion; without text and calls it has no choice."""
    output = [one for one in _listed(response.get("output")) if isinstance(one, dict)]
    texts = [part for one in output if one.get("type") == "message" for part in _listed(one.get("content"))]
    text = "".join(one["text"] for one in texts if isinstance(one, dict) and isinstance(one.get("text"), str))
    calls = [_call(one) for one in output if one.get("type") == "function_call"]
    usage = response.get("usage")
    count = usage.get("output_tokens") if isinstance(usage, dict) else None
    failed = response.get("status") in {"failed", "cancelled", "incomplete"} or response.get("error")
    message = {"role": "assistant", "content": text or None, "tool_calls": calls}
    whole = bool(text or calls) and not failed
    return {"choices": [{"message": message}] if whole else [], "usage": {"completion_tokens": count}}


def _items(given: Any) -> list[Any]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else _listed(given)


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
    known = ("name", "description", "parameters")
    return {"type": "function", "function": {key: tool[key] for key in known if key in tool}}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
