"""What an imported canary expects of its answer, where the request and the recorded answer show it."""

import json
from typing import Any

from gatekeeper.canaries.conversation import Conversation
from gatekeeper.core.canary import json_schema
from gatekeeper.core.parse import ParseError, json_value

Json = dict[str, Any]

_ASK = "\n\nAnswer with one JSON {what} and nothing else, without a code fence."


def propose_expectation(conversation: Conversation) -> Json | None:
    """Return an expectation for the answer, or None where only its speed can be judged.

    A schema or a call counts only where the recorded answer keeps it: one that it breaks would fail both arms.
    """
    answer = conversation.answer
    if answer is not None and answer.calls:
        return _calls(conversation)
    schema = requested_schema(conversation)
    if schema is None:
        return None
    try:
        json_schema.check(schema)
        right = answer is None or json_schema.accepts(schema, json_value(answer.text))
    except ParseError:
        return None
    return {"json_schema": schema} if right else None


def requested_schema(conversation: Conversation) -> Json | None:
    """Return the schema that the request's response_format names; of any object where it names none."""
    form = conversation.response_format or {}
    if form.get("type") == "json_object":
        schema = form.get("schema")
        return schema if isinstance(schema, dict) else {"type": "object"}
    if form.get("type") != "json_schema":
        return None
    inner = form.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else form.get("schema")
    return schema if isinstance(schema, dict) else None


def format_instruction(conversation: Conversation) -> str:
    """Return the line of a prompt that asks for what response_format enforced: a canary is sent without it."""
    schema = requested_schema(conversation)
    if schema is None:
        return ""
    if schema == {"type": "object"}:
        return _ASK.format(what="object")
    schema_text = json.dumps(schema, ensure_ascii=False)
    return _ASK.format(what="value that matches this JSON Schema") + f"\n{schema_text}"


def _calls(conversation: Conversation) -> Json | None:
    """Return the calls that were made, where each names an offered tool and has arguments that are an object."""
    offered = {tool["function"]["name"]: tool["function"].get("parameters") for tool in conversation.tools}
    assert conversation.answer is not None
    calls = []
    for call in conversation.answer.calls:
        name, arguments = call["function"]["name"], call["function"].get("arguments") or "{}"
        try:
            value = json_value(arguments) if isinstance(arguments, str) else arguments
            schema = offered.get(name)
            if isinstance(schema, dict):
                json_schema.check(schema)
            valid = not isinstance(schema, dict) or json_schema.accepts(schema, value)
        except ParseError:
            return None
        if name not in offered or not valid or not isinstance(value, dict):
            return None
        # A list in an expectation is a choice of values: each argument is a choice of one.
        calls.append({"name": name, "arguments": {key: [argument] for key, argument in value.items()}})
    return {"tool_call": calls[0]} if len(calls) == 1 else {"tool_calls": calls}
