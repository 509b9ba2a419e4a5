"""What a canary expects of its answer, and whether an answer is that: each form of `expect`."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gatekeeper.core.canary.pattern import compile_pattern
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.toml_file import InputTable


class ToolCall(InputTable):
    """An expected call: the exact name; for each argument a value or a list of allowed values, where "" is optional."""

    name: str
    arguments: dict[str, Any] = Field(default={})


class Expect(InputTable):
    """What an answer must be to pass; exactly one of the fields is set."""

    equals: str | None = None
    regex: str | None = None
    json_schema: dict[str, Any] | None = None
    tool_call: ToolCall | None = None
    tool_calls: tuple[ToolCall, ...] | None = None

    @field_validator("regex")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                compile_pattern(pattern)
            except ParseError as error:
                raise ValueError(f"not a regular expression: {error}") from error
        return pattern

    @field_validator("json_schema")
    @classmethod
    def _is_schema(cls, schema: dict[str, Any] | None, information: ValidationInfo) -> dict[str, Any] | None:
        if schema is not None and not (information.context or {}).get("checked"):
            from gatekeeper.core.canary import json_schema  # noqa: PLC0415 (few canaries need its libraries)

            try:
                json_schema.check(schema)
            except ParseError as error:
                raise ValueError(f"not a JSON schema: {error}") from error
        return schema

    @model_validator(mode="after")
    def _one_way(self) -> "Expect":
        if len(self.model_fields_set) != 1:
            raise ValueError("set exactly one of: equals, regex, json_schema, tool_call, tool_calls")
        return self

    @property
    def kind(self) -> Literal["text", "json", "tool"]:
        """Return which pass rate the answer counts for."""
        if self.json_schema is not None:
            return "json"
        return "text" if self.equals is not None or self.regex is not None else "tool"

    def accepts(self, text: str, calls: Sequence[dict[str, Any]]) -> bool:
        """Return whether an answer with this *text* and these tool *calls* is what is expected."""
        if self.equals is not None:
            return text.strip() == self.equals.strip()
        if self.regex is not None:
            return _matches(self.regex, text)
        if self.json_schema is not None:
            return _valid(text, json.dumps(self.json_schema))
        return _calls_match((self.tool_call,) if self.tool_call is not None else self.tool_calls or (), calls)


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
        return compile_pattern(pattern)(text)
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
