"""Canary files: frozen prompts, each with what its answer is expected to be."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from gatekeeper.core.canary import json_schema
from gatekeeper.core.canary.pattern import compiled
from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.subject import InputTable

Tier = Literal["short", "medium", "long"]


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
                compiled(pattern)
            except ParseError as error:
                raise ValueError(f"not a regular expression: {error}") from error
        return pattern

    @field_validator("json_schema")
    @classmethod
    def _is_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
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


class Canary(InputTable):
    """One line of a canary file; `messages` and `tools` as in the OpenAI chat API."""

    id: str = Field(min_length=1)
    messages: tuple[dict[str, Any], ...] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    thinking: bool | None = None
    """Reason before the answer; None: as the SLO says."""
    tools: tuple[dict[str, Any], ...] = ()
    expect: Expect | None = None
    tier: Tier | None = None
    category: str | None = None

    @field_validator("messages")
    @classmethod
    def _have_roles(cls, messages: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for message in messages:
            if not isinstance(message.get("role"), str):
                raise ValueError("every message needs a 'role'")
        return messages


def _problems(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'line'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()[:5]
    )


def parse(text: str, name: str) -> tuple[Canary, ...]:
    """Read a canary file's *text*; raise InputError with *name*, the line and the problem."""
    return tuple(_lines(text, name))


def _lines(text: str, name: str) -> Iterator[Canary]:
    line_by_id: dict[str, int] = {}
    # Only a line feed ends a line: splitlines() would also split at U+2028, which a JSON string may hold.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}: line {number}"
        try:
            canary = Canary.model_validate(json_value(line))
        except ParseError as error:
            hint = "each line must hold one complete JSON object; was the file cut off?"
            raise InputError(f"{where}: {error}", hint=hint) from error
        except ValidationError as error:
            hint = "a canary has id and messages, and optionally max_tokens, thinking, tools, expect, tier, category"
            raise InputError(f"{where}: {_problems(error)}", hint=hint) from error
        if canary.id in line_by_id:
            hint = "give each canary an id of its own: records name canaries by it"
            raise InputError(f"{where}: id '{canary.id}' is already used in line {line_by_id[canary.id]}", hint=hint)
        line_by_id[canary.id] = number
        yield canary
    if not line_by_id:
        raise InputError(f"{name}: no canaries", hint="write one JSON object per line: id, messages, expect")
