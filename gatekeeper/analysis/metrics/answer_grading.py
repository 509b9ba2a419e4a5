"""Grades of answers: right or wrong, by what the canary expects."""

import json
import re
from collections.abc import Sequence
from typing import Any

import jsonschema

from gatekeeper.core.canary import Canary, ToolCall
from gatekeeper.core.records import Answer


def grade(canary: Canary, answer: Answer) -> bool | None:
    """Return whether *answer* is what the canary expects; None where it expects nothing. A faulty answer is wrong."""
    expect = canary.expect
    if expect is None or answer.fault is not None:
        return None if expect is None else False
    if expect.equals is not None:
        return answer.text.strip() == expect.equals.strip()
    if expect.regex is not None:
        return re.search(expect.regex, answer.text) is not None
    if expect.json_schema is not None:
        return _valid(answer.text, expect.json_schema)
    expected = (expect.tool_call,) if expect.tool_call is not None else expect.tool_calls or ()
    return _calls_match(expected, answer.tool_calls)


def _valid(text: str, schema: dict[str, Any]) -> bool:
    try:
        document = json.loads(text, parse_constant=_no_constant)
        return bool(jsonschema.Draft202012Validator(schema).is_valid(document))
    except (ValueError, RecursionError):  # endless opening brackets are a wrong answer, not an error
        return False


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _calls_match(expected: Sequence[ToolCall], calls: Sequence[dict[str, Any]]) -> bool:
    """Return whether the calls are the expected ones, in any order; each expected call is used once."""
    if len(expected) != len(calls):
        return False
    if not expected:
        return True
    first, *others = expected
    return any(
        _call_matches(first, call) and _calls_match(others, [*calls[:index], *calls[index + 1 :]])
        for index, call in enumerate(calls)
    )


def _call_matches(expected: ToolCall, call: dict[str, Any]) -> bool:
    function = call.get("function", call)
    if not isinstance(function, dict):
        return False
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return False
    if (
        not isinstance(arguments, dict)
        or function.get("name") != expected.name
        or arguments.keys() - expected.arguments
    ):
        return False
    return all(
        _argument_matches(choices if isinstance(choices, list) else [choices], name, arguments)
        for name, choices in expected.arguments.items()
    )


def _argument_matches(choices: list[Any], name: str, arguments: dict[str, Any]) -> bool:
    if name not in arguments:
        return "" in choices
    return any(_equal(choice, arguments[name]) for choice in choices)


def _equal(choice: Any, value: Any) -> bool:
    """Compare JSON values; unlike Python's, true is not 1, at any depth."""
    if isinstance(choice, bool) or isinstance(value, bool):
        return choice is value
    if isinstance(choice, list) and isinstance(value, list):
        return len(choice) == len(value) and all(map(_equal, choice, value))
    if isinstance(choice, dict) and isinstance(value, dict):
        return choice.keys() == value.keys() and all(_equal(choice[key], value[key]) for key in choice)
    return bool(choice == value)
