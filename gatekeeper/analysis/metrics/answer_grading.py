"""Whether an answer is right: strict decides, lenient is reported beside it."""

import json
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema

from gatekeeper.core.canary import Canary, Expect, ToolCall
from gatekeeper.core.records import Answer

_FENCED = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)
_DROP = str.maketrans("", "", string.punctuation + string.whitespace)


@dataclass(frozen=True, slots=True)
class Grade:
    """How one answer does: exactly as asked, and after normalisation."""

    strict: bool
    lenient: bool


def grade(canary: Canary, answer: Answer) -> Grade | None:
    """Mark *answer* by what the canary expects; None where it expects nothing. A faulty answer is wrong."""
    if canary.expect is None:
        return None
    if answer.fault is not None:
        return Grade(strict=False, lenient=False)
    strict = _strict(canary.expect, answer)
    return Grade(strict, strict or _lenient(canary.expect, answer))


def _strict(expect: Expect, answer: Answer) -> bool:
    if expect.equals is not None:
        return answer.text.strip() == expect.equals.strip()
    if expect.regex is not None:
        return re.search(expect.regex, answer.text) is not None
    if expect.json_schema is not None:
        return _valid(answer.text, expect.json_schema)
    return _calls_match(_expected_calls(expect), answer.tool_calls, normalise=False)


def _lenient(expect: Expect, answer: Answer) -> bool:
    if expect.equals is not None:
        return bool(_plain(expect.equals) == _plain(answer.text))
    if expect.regex is not None:
        return re.search(expect.regex, answer.text, re.IGNORECASE) is not None
    if expect.json_schema is not None:
        return any(_valid(piece, expect.json_schema) for piece in _json_pieces(answer.text))
    return _calls_match(_expected_calls(expect), answer.tool_calls, normalise=True)


def _plain(value: Any) -> Any:
    return value.translate(_DROP).casefold() if isinstance(value, str) else value


def _valid(text: str, schema: dict[str, Any]) -> bool:
    try:
        document = json.loads(text, parse_constant=_no_constant)
        return bool(jsonschema.Draft202012Validator(schema).is_valid(document))
    except (ValueError, RecursionError):  # a model stuck on an opening bracket is wrong, not a crash of ours
        return False


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _json_pieces(text: str) -> list[str]:
    between = text[text.find("{") : text.rfind("}") + 1] if "{" in text else ""
    return [text, *_FENCED.findall(text), between]


def _expected_calls(expect: Expect) -> Sequence[ToolCall]:
    return (expect.tool_call,) if expect.tool_call is not None else expect.tool_calls or ()


def _calls_match(expected: Sequence[ToolCall], calls: Sequence[dict[str, Any]], *, normalise: bool) -> bool:
    """Tell whether the calls are the expected ones in any order; each expected call is used once."""
    if len(expected) != len(calls):
        return False
    if not expected:
        return True
    first, *others = expected
    return any(
        _call_matches(first, call, normalise=normalise)
        and _calls_match(others, [*calls[:index], *calls[index + 1 :]], normalise=normalise)
        for index, call in enumerate(calls)
    )


def _call_matches(expected: ToolCall, call: dict[str, Any], *, normalise: bool) -> bool:
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
        _argument_matches(choices if isinstance(choices, list) else [choices], name, arguments, normalise=normalise)
        for name, choices in expected.arguments.items()
    )


def _argument_matches(choices: list[Any], name: str, arguments: dict[str, Any], *, normalise: bool) -> bool:
    if name not in arguments:
        return "" in choices
    value = arguments[name]
    return any(_same(choice, value, normalise=normalise) for choice in choices)


def _same(choice: Any, value: Any, *, normalise: bool) -> bool:
    if _equal(choice, value):
        return True
    if not normalise or isinstance(choice, bool) != isinstance(value, bool):
        return False
    return bool(_plain(str(choice)) == _plain(str(value)))


def _equal(choice: Any, value: Any) -> bool:
    """Compare JSON values; unlike Python's, true is not 1, at any depth."""
    if isinstance(choice, bool) or isinstance(value, bool):
        return choice is value
    if isinstance(choice, list) and isinstance(value, list):
        return len(choice) == len(value) and all(map(_equal, choice, value))
    if isinstance(choice, dict) and isinstance(value, dict):
        return choice.keys() == value.keys() and all(_equal(choice[key], value[key]) for key in choice)
    return bool(choice == value)
