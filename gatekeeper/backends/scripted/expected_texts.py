"""Texts and tool calls that meet a canary's expectation: instances of JSON schemas, matches of patterns."""

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

from gatekeeper.core.canary import Canary, ToolCall
from gatekeeper.core.canary.pattern import compile_pattern
from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import ParseError

_MOST = 10_000
"""Characters or items of one part of a text."""
_Maker = Callable[[dict[str, Any], dict[str, Any]], Any]


def text_for(canary: Canary) -> str | None:
    """Return a text that satisfies *canary*'s expectation, None where it expects no text.

    Raise InputError where none can be constructed.
    """
    expect = canary.expect
    if expect is None or expect.kind == "tool":
        return None
    if expect.equals is not None:
        return expect.equals
    if expect.regex is not None:
        if (text := match_for(expect.regex)) is None:
            raise _beyond(canary, f"regex {expect.regex!r}")
        return text
    if expect.json_schema is None:
        raise _beyond(canary, "expectation")
    try:
        instance = _instance(expect.json_schema, expect.json_schema)
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError, RecursionError) as error:
        raise _beyond(canary, "json_schema") from error
    from gatekeeper.core.canary import json_schema  # noqa: PLC0415 (few canaries need its libraries)

    if not json_schema.accepts(expect.json_schema, instance):
        raise _beyond(canary, "json_schema")
    return json.dumps(instance)


def calls_for(canary: Canary) -> tuple[dict[str, Any], ...]:
    """Return the calls that satisfy *canary*'s expectation, each argument its first allowed value."""
    expect = canary.expect
    if expect is None or expect.kind != "tool":
        return ()
    expected = expect.tool_calls if expect.tool_calls is not None else (expect.tool_call,)
    return tuple(_call(number, call) for number, call in enumerate(expected) if call is not None)


def _call(number: int, expected: ToolCall) -> dict[str, Any]:
    arguments = {}
    for name, allowed in expected.arguments.items():
        choices = [value for value in allowed if value != ""] if isinstance(allowed, list) else [allowed]
        if choices:
            arguments[name] = choices[0]
    function = {"name": expected.name, "arguments": json.dumps(arguments)}
    return {"id": f"call-{number}", "type": "function", "function": function}


def _beyond(canary: Canary, kind: str) -> InputError:
    hint = f'write one into the script: "answers": {{"{canary.id}": "…"}}'
    return InputError(f"canary '{canary.id}': the scripted backend cannot construct a text for its {kind}", hint=hint)


def _instance(schema: Any, root: dict[str, Any]) -> Any:
    """Return a small instance of *schema*; the caller validates it."""
    schema = _plain_schema(schema, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema or "required" in schema else "string")
    make: _Maker = _MAKERS.get(kind[0] if isinstance(kind, list) else kind, _string)
    return make(schema, root)


def _plain_schema(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* with its reference followed, its first alternative taken and its parts merged."""
    if not isinstance(schema, dict):
        return {}
    if reference := schema.get("$ref"):
        target: Any = root
        for step in str(reference).removeprefix("#").strip("/").split("/"):
            target = target.get(step, {}) if step else target
        return _plain_schema(target, root)
    merged = {key: value for key, value in schema.items() if key not in {"anyOf", "oneOf", "allOf"}}
    parts = [schema[key][0] for key in ("anyOf", "oneOf") if schema.get(key)] + list(schema.get("allOf", []))
    for part in (_plain_schema(schema_part, root) for schema_part in parts):
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", []), *part.get("required", [])]
        merged = {**part, **merged}
        if properties or required:
            merged |= {"properties": properties, "required": required}
    return merged


def _object(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {name: _instance(properties.get(name, {"type": "string"}), root) for name in schema.get("required", [])}


def _array(schema: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    fixed, rest = schema.get("prefixItems", []), schema.get("items", {"type": "string"})
    least = _count(schema.get("minItems", 0))
    return [_instance(fixed[index] if index < len(fixed) else rest, root) for index in range(least)]


def _number(schema: dict[str, Any], _root: dict[str, Any]) -> float:
    """Return the allowed number nearest to 0 from above, or the largest where a maximum lies below it."""
    step = schema.get("multipleOf", 1)
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if least is None and above is None:
        ceiling = min(limit for limit in (most, below, 1) if limit is not None)
        value = min(0, ceiling // step * step)
        value -= step if value == below else 0
    else:
        floor = max(limit for limit in (least, above) if limit is not None)
        value = -(-floor // step) * step
        value += step if value == above else 0
    return int(value) if schema.get("type") == "integer" else float(value)


def _string(schema: dict[str, Any], _root: dict[str, Any]) -> str:
    formats = {"date": "2026-01-01", "date-time": "2026-01-01T00:00:00Z", "time": "00:00:00Z", "email": "a@example.org"}
    if schema.get("format") in formats:
        return formats[schema["format"]]
    if "pattern" in schema:
        return match_for(schema["pattern"]) or ""
    return str("text".ljust(_count(schema.get("minLength", 0)), "t")[: schema.get("maxLength")])


def _count(number: int) -> int:
    """Return *number* as a count of parts; raise LookupError for more than a text here ever has."""
    if number > _MOST:
        raise LookupError(number)
    return number


_MAKERS: dict[str, _Maker] = {
    "object": _object,
    "array": _array,
    "integer": _number,
    "number": _number,
    "boolean": lambda _schema, _root: True,
    "null": lambda _schema, _root: None,
}


def match_for(pattern: str) -> str | None:
    """Return a text in which *pattern* is found, None for patterns that are not covered, such as look-arounds."""
    # The parser behind `re` is private, so a search checks the result.
    try:
        text = _sequence(import_module("re._parser").parse(pattern), {})
        return text if compile_pattern(pattern)(text) else None
    except (LookupError, ParseError):
        return None


def _sequence(steps: Any, groups: dict[int, str]) -> str:
    return "".join(_text_of(str(name), argument, groups) for name, argument in steps)


def _text_of(name: str, argument: Any, groups: dict[int, str]) -> str:
    """Return a text for one step of a parsed pattern; raise LookupError for a step that is not covered."""
    if name in _SIMPLE:
        return _SIMPLE[name](argument)
    if name == "BRANCH":
        return _sequence(argument[1][0], groups)
    if name == "SUBPATTERN":
        groups[argument[0]] = _sequence(argument[-1], groups)
        return groups[argument[0]]
    if name == "GROUPREF":
        return groups[argument]
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        least, most, inner = argument
        return "".join(_sequence(inner, groups) for _ in range(_count(max(least, min(1, int(most))))))
    raise LookupError(name)


def _member(choices: list[tuple[Any, Any]]) -> str:
    """Return a character of a class such as [a-z] or [^0-9]."""
    if str(choices[0][0]) == "NEGATE":
        excluded = [_member([choice]) for choice in choices[1:] if str(choice[0]) == "LITERAL"]
        ranges = [choice[1] for choice in choices[1:] if str(choice[0]) == "RANGE"]
        allowed = (
            char for char in "az AZ09-_" if char not in excluded and not any(a <= ord(char) <= b for a, b in ranges)
        )
        return next(allowed, "~")
    name, argument = str(choices[0][0]), choices[0][1]
    if name == "CATEGORY":
        return {"DIGIT": "1", "SPACE": " ", "NOT_WORD": " "}.get(str(argument).removeprefix("CATEGORY_"), "a")
    return chr(argument[0] if name == "RANGE" else argument)


_SIMPLE: dict[str, Callable[[Any], str]] = {
    "LITERAL": chr,
    "NOT_LITERAL": lambda excluded: "b" if excluded == ord("a") else "a",
    "ANY": lambda _: "a",
    "AT": lambda _: "",
    "IN": _member,
}
