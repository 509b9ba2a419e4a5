"""Grades of answers: right or wrong, by what the canary expects."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from gatekeeper.core.canary import Canary, ToolCall
from gatekeeper.core.canary.pattern import compiled
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.records import Answer


def grade(canary: Canary, answer: Answer) -> bool | None:
    """Return whether *answer* is what the canary expects; None where it expects nothing. A faulty answer is wrong."""
    expect = canary.expect
    if expect is None or answer.fault is not None:
        return None if expect is None else False
    if expect.equals is not None:
        return answer.text.strip() == expect.equals.strip()
    if expect.regex is not None:
        return _matches(expect.regex, answer.text)
    if expect.json_schema is not None:
        return _valid(answer.text, json.dumps(expect.json_schema))
    expected = (expect.tool_call,) if expect.tool_call is not None else expect.tool_calls or ()
    return _calls_match(expected, answer.tool_calls)


@lru_cache(maxsize=4096)
def _valid(text: str, schema: str) -> bool:
    """Return whether *text* is JSON that *schema* accepts. Cached: each objective and look grades the answers again."""
    from gatekeeper.core.canary import json_schema  # noqa: PLC0415 (few canaries need its libraries)

    try:
        return json_schema.accepts(json.loads(schema), json_value(text))
    except ParseError:  # endless opening brackets are a wrong answer, not an error
        return False


def _matches(pattern: str, text: str) -> bool:
    try:
        return compiled(pattern)(text)
    except ParseError:  # an answer that takes too long to search is no match
        return False


def _calls_match(expected: Sequence[ToolCall], calls: Sequence[dict[str, Any]]) -> bool:
    """Return whether the calls are the expected ones, in any order; each expected call is used once."""
    taken: dict[int, int] = {}

    def place(number: int, tried: set[int]) -> bool:
        # Trying every order takes years for thirty calls; moving those that are placed already takes no time.
        for index, call in enumerate(calls):
            if index not in tried and _call_matches(expected[number], call):
                tried.add(index)
                if index not in taken or place(taken[index], tried):
                    taken[index] = number
                    return True
        return False

    return len(expected) == len(calls) and all(place(number, set()) for number in range(len(expected)))


def _call_matches(expected: ToolCall, call: dict[str, Any]) -> bool:
    function = call.get("function", call)
    if not isinstance(function, dict):
        return False
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json_value(arguments or "{}")
        except ParseError:
            return False
    if not isinstance(arguments, dict) or arguments.keys() - expected.arguments:
        return False
    return function.get("name") == expected.name and all(
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
