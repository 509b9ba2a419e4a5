"""Reading a TOML file that people write; errors name the line, the key and the allowed values."""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.parse import ParseError, toml_table
from gatekeeper.core.units import show_seconds
from gatekeeper.core.unknown_keys import Path, allowed_keys, model_in, nearest_key

Model = TypeVar("Model", bound=BaseModel)

_SHOWN = 5
"""Errors of one file that are described; each takes a search for its line."""
_HEADER = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\-\" ]+?)\s*\]\]?\s*(?:#.*)?$")


class InputTable(BaseModel):
    """A table that people write: unknown keys and infinite values are errors, and it is frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


def parse(text: str, name: str, model: type[Model], *, strict: bool = False) -> Model:
    """Return *text* as a *model*; raise InputError with the file, line, key, allowed values and the nearest word.

    *strict*: text is never taken for a number, nor a number for text.
    """
    try:
        document = toml_table(text)
    except ParseError as error:
        raise InputError(f"{name}: {error}", hint=_syntax_hint(str(error))) from error
    try:
        return model.model_validate(_with_tuples(document) if strict else document, strict=strict or None)
    except ValidationError as error:
        details_of_all = [details for details in distinct_errors(error) if not _follows(details, error)]
        problems = [describe_error(text, name, model, details) for details in details_of_all[:_SHOWN]]
        if len(problems) == 1:
            raise InputError(problems[0][0], hint=problems[0][1]) from error
        lines = [f"{message}; {hint}" if hint else message for message, hint in problems]
        raise InputError("\n".join(lines), hint=f"correct {'both' if len(lines) == 2 else 'all of them'}") from error


def _follows(details: ErrorDetails, error: ValidationError) -> bool:
    """Return whether a list is called too short only because its entries have errors of their own."""
    loc = details["loc"]
    return details["type"] == "too_short" and any(
        other["loc"][: len(loc)] == loc and len(other["loc"]) > len(loc) for other in error.errors()
    )


def located(path: Path, message: str) -> PydanticCustomError:
    """Return the error of a validator about another key than its own, at *path* of the whole file."""
    return PydanticCustomError("located", "{text}", {"text": message, "path": tuple(path)})


def _with_tuples(value: Any) -> Any:
    """Return *value* with tuples for lists, which is what a strict model takes."""
    if isinstance(value, dict):
        return {key: _with_tuples(part) for key, part in value.items()}
    return tuple(_with_tuples(part) for part in value) if isinstance(value, list) else value


_ONE_BRACKET = re.compile(r"declare \('(objective|workload|guard|route)',\) twice")
"""How tomllib complains of one more [objective] after an [[objective]]."""


_INLINE = re.compile(r"immutable namespace \('(\w+)',\)")
"""How tomllib complains of a [[table]] after `table = [{…}]`."""


def _syntax_hint(message: str) -> str:
    if table := _ONE_BRACKET.search(message):
        return f"write each with two brackets: [[{table[1]}]]"
    if table := _INLINE.search(message):
        return f"{table[1]} is written as one list above: write its entries as [[{table[1]}]], too"
    if "overwrite" in message or "twice" in message:
        return "a key or a table is written twice: keep one of them"
    if "line 1," in message or "Invalid statement" in message:
        return 'the file must be TOML: [table] headers, and lines such as name = "value"'
    return "check quotes (straight ones, in pairs), brackets and numbers near that line"


def _missing_hint(model: type[BaseModel], path: Path) -> str:
    field = next(
        (field for key, field in model.model_fields.items() if len(path) == 1 and path[-1] in {key, field.alias}), None
    )
    is_array = field is not None and get_origin(field.annotation) is tuple and model_in(field.annotation) is not None
    fixed = get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()
    value = json.dumps(fixed[0]) if fixed else "…"
    return f"add a table [[{path[-1]}]]" if is_array else f"add `{path[-1]} = {value}`"


_BRANCH = re.compile(r"int|constrained-int|literal\[.*\]")
"""How pydantic names a branch of `whole number or "adaptive"`, after the key."""


def distinct_errors(error: ValidationError) -> list[ErrorDetails]:
    """Return pydantic's errors, one a value: of a value that fits no branch of a union, that of its first branch."""
    error_by_path: dict[tuple[int | str, ...], ErrorDetails] = {}
    for details in error.errors():
        loc = details["loc"]
        path = loc[:-1] if loc and isinstance(loc[-1], str) and _BRANCH.fullmatch(loc[-1]) else loc
        if path == loc or path not in error_by_path:
            error_by_path[path] = {**details, "loc": path}
    return list(error_by_path.values())


def describe_error(text: str, name: str, model: type[BaseModel], error: ErrorDetails) -> tuple[str, str]:
    """Return the message of one pydantic error, with its line, and a hint."""
    kind, reason, context = error["type"], error["msg"], error.get("ctx", {})
    loc = context["path"] if kind == "located" else error["loc"]
    path = [part for part in loc[:-1] if not _is_branch(part)]
    path += [part for part in loc[-1:] if kind == "extra_forbidden" or not _is_branch(part)]  # a key of the file
    key = key_path(path)
    where = f"{name}: line {line_of(text, path)}: {key}" if path else name
    reason = reason.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "extra_forbidden":
        allowed = allowed_keys(model, path[:-1])
        if len(path) > 1 and path[-1] in allowed_keys(model, ()):
            return f"{where}: unknown key", f"{path[-1]} belongs to no table: write it above the first [table]"
        return f"{where}: unknown key", nearest_key(str(path[-1]), allowed, model)
    if kind == "missing":
        return f"{name}: line {line_of(text, path[:-1])}: {key}: missing", _missing_hint(model, path)
    if "\n" in reason:
        reason, hint = reason.split("\n", 1)
        return f"{where}: {reason}", hint
    if kind in _LIMITS and (written := _DURATION.search("".join(text.splitlines()[line_of(text, path) - 1 :][:1]))):
        limit = show_seconds(end) if (end := next(iter(context.values()))) else "0"
        return f"{where}: {written[1]} is out of range: must be {_LIMITS[kind]} {limit}", "for example 600 s"
    reason, hint = _in_words(kind, str(path[-1]) if path else "", error["input"], context) or (reason, "")
    return f"{where}: {reason[:1].lower()}{reason[1:]}", hint


_DURATION = re.compile(r'= *"(-?[0-9.]+ *(?:ns|us|ms|s|min|m|h|d))"')
"""A duration as it is written: its author does not think in seconds."""


def _is_branch(part: int | str) -> bool:
    """Return whether pydantic put the part into a path to name the branch of a union or a validator."""
    return isinstance(part, str) and ("[" in part or part.startswith("function-"))


def _in_words(kind: str, key: str, value: object, context: Mapping[str, Any]) -> tuple[str, str] | None:  # noqa: PLR0911
    """Return what pydantic's error says, in words for the author of a file, and the remedy; None: as pydantic says."""
    literal = json.dumps(value, ensure_ascii=False, default=str)
    literal = literal if len(literal) <= _LONGEST else f"{literal[:_LONGEST]}…"
    if kind in _KINDS and (kind != "float_type" or not isinstance(value, bool)):
        return f"must be {_KINDS[kind]}, not {_kind_of(value)}", _as_kind(kind, key, value, literal)
    if kind == "literal_error":
        allowed = [word.strip("'") for word in re.split(r", | or ", str(context["expected"]))]
        if key == "schema":
            return f"{literal} is another version of this format", f"write schema = {allowed[0]}, or update gatekeeper"
        return f"{literal} is not one of {', '.join(allowed)}", did_you_mean(str(value), allowed)
    for name, words in _LIMITS.items():
        if kind == name:
            limit = f"{next(iter(context.values())):.12g}"
            if limit == "1" and isinstance(value, int | float) and 1 < value <= _PER_CENT:
                return f"{literal} is out of range: must be {words} 1", f"for {literal} % write {value / _PER_CENT:g}"
            return f"{literal} is out of range: must be {words} {limit}", f"write a number that is {words} {limit}"
    if kind == "finite_number":
        return "must be a finite number", "write a number, without nan or inf"
    if kind == "string_pattern_mismatch":
        return (
            f"{literal} holds other characters than letters, digits and _ . -",
            "it names files: write it without them",
        )
    if kind in {"string_too_short", "too_short"}:
        return "must not be empty", f"add something, or remove {key}"
    return None


_PER_CENT = 100
_LONGEST = 60
"""Characters of a value that an error quotes."""
_LIMITS = {
    "greater_than": "greater than", "greater_than_equal": "at least", "less_than": "less than",
    "less_than_equal": "at most",
}  # fmt: skip
_KINDS = {
    "string_type": "text", "int_type": "a whole number", "float_type": "a number", "bool_type": "true or false",
    "tuple_type": "a list", "model_type": "a table", "dict_type": "a table",
}  # fmt: skip
"""What a value must be, by pydantic's kind of error."""


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    names = {str: "text", int: "a whole number", float: "a decimal number", tuple: "a list", list: "a list"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "a table")


def _as_kind(kind: str, key: str, value: object, literal: str) -> str:
    """Return how to write *value* as what it must be."""
    if kind == "tuple_type":
        if isinstance(value, str) and (thousands := _whole(value)) is not None:
            literal = str(thousands)
        return f"write [[{key}]]" if isinstance(value, dict) else f"write {key} = [{literal}]"
    if kind in {"model_type", "dict_type"}:
        return f"write a table: [{key}]"
    if kind == "string_type":
        if isinstance(value, list | tuple) and len(value) == 1:
            return f"it takes one: write {key} = {json.dumps(value[0], ensure_ascii=False, default=str)}"
        return f'write "{value}", in quotes' if isinstance(value, int | float) else "write it in quotes"
    return "write true or false, without quotes" if kind == "bool_type" else _as_number(kind, value)


def _as_number(kind: str, value: object) -> str:
    """Return how to write *value* as a number: a text with a number, with a unit or in per cent."""
    example = "for example 0.5" if kind == "float_type" else "for example 4"
    match = re.fullmatch(r"\s*(-?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*|%)\s*", value) if isinstance(value, str) else None
    if match is None or (match[2] == "%" and kind != "float_type"):
        return example
    if match[2] == "%":
        return f"write {float(match[1]) / _PER_CENT:g} without quotes"
    whole = _whole(str(value))
    number = match[1] if whole is None else whole
    return f"write {number}, without a unit and without quotes" if match[2] else f"write {value} without quotes"


def _whole(written: str) -> int | None:
    """Return the whole number of a text such as 8k, as people write counts of tokens; None where it is none."""
    match = re.fullmatch(r"\s*([0-9]{1,6})\s*([kK])?\s*", written)
    return None if match is None else int(match[1]) * (1024 if match[2] else 1)


def key_path(path: Path) -> str:
    """Write a path as `objective[3].metric`, counting from 1."""
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def line_of(text: str, path: Path) -> int:
    """Return the line of *path*, or of its nearest parent in the file; 1 if there is none."""
    counts: dict[tuple[str, ...], int] = {}
    table: list[str | int] = []
    best, depth = 1, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            names = tuple(part.strip().strip('"') for part in header.group(2).split("."))
            table = list(names)
            if header.group(1) == "[[":
                counts[names] = counts.get(names, -1) + 1
            for end in range(len(names), 0, -1):
                if names[:end] in counts:
                    table.insert(end, counts[names[:end]])
            # A list of tables as a whole begins with its first.
            key_path = list(names) if names == tuple(path) else table
        elif assignment := re.match(r'^\s*"?([A-Za-z0-9_\-]+)"?\s*=', line):
            key_path = [*table, assignment.group(1)]
        else:
            continue
        if key_path == list(path[: len(key_path)]) and len(key_path) > depth:
            best, depth = number, len(key_path)
    return best
