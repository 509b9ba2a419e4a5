"""Reading a TOML file that people write; errors name the line, the key and the allowed values.

A quantity in such a file is a number in base units, or a text with a unit such as "900 ms".
"""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

from gatekeeper.core import units
from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.parse import ParseError, toml_table
from gatekeeper.core.units import BYTE_RATES, BYTES, EVENT_RATES, OTHERS, SECONDS

Model = TypeVar("Model", bound=BaseModel)
Path = Sequence[str | int]
"""The path of a key in a file."""

_SHOWN = 5
"""Errors of one file that are described; each takes a search for its line."""
_LONGEST = 60
"""Characters of a value that an error quotes."""
_KINDS = {
    "a valid dictionary": "a table",
    "a valid tuple": "a list",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
}
"""What pydantic calls a kind of value, and what the author of a file does."""
_HEADER = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\-\" ]+?)\s*\]\]?\s*(?:#.*)?$")


class InputTable(BaseModel):
    """A table that people write: unknown keys and infinite values are errors, and it is frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


def _quantity(unit_sizes: dict[str, float]) -> tuple[BeforeValidator, WithJsonSchema]:
    names = "|".join(re.escape(unit) for unit in sorted(unit_sizes, key=len, reverse=True))
    pattern = rf"^\s*[+-]?[0-9.]+([eE][+-]?[0-9]+)?\s*({names})?\s*$"
    schema = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": pattern}]}
    return BeforeValidator(lambda written: units.parse(written, unit_sizes)), WithJsonSchema(schema)


MOST_SECONDS = 1e9
"""Thirty years: a longer time, added to an instant, may leave what a clock can hold."""
Seconds = Annotated[float, *_quantity(SECONDS), Field(le=MOST_SECONDS)]
Bytes = Annotated[float, *_quantity(BYTES)]
ByteRate = Annotated[float, *_quantity(BYTE_RATES)]
EventRate = Annotated[float, *_quantity(EVENT_RATES)]
Quantity = Annotated[float, *_quantity(SECONDS | BYTES | BYTE_RATES | EVENT_RATES | OTHERS)]


CURLY_QUOTES = "“”„‘’"  # noqa: RUF001
"""Text editors put them for straight ones, which alone TOML takes."""


def parse(text: str, name: str, model: type[Model], *, strict: bool = False) -> Model:
    """Return *text* as a *model*; raise InputError with the file, line, key, allowed values and the nearest word.

    *strict*: text is never taken for a number, nor a number for text.
    """
    try:
        document = toml_table(text)
    except ParseError as error:
        curly = any(quote in text for quote in CURLY_QUOTES)
        hint = 'write straight quotes in that line: "…"' if curly else "correct that line"
        raise InputError(f"{name}: {error}", hint=hint) from error
    try:
        return model.model_validate(_with_tuples(document) if strict else document, strict=strict or None)
    except ValidationError as error:
        details_of_all = [details for details in error.errors() if not _follows(details, error)]
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


def locate_error(path: Path, message: str) -> PydanticCustomError:
    """Return the error of a validator about another key than its own, at *path* of the whole file."""
    return PydanticCustomError("located", "{text}", {"text": message, "path": tuple(path)})


def _with_tuples(value: Any) -> Any:
    """Return *value* with tuples for lists, which is what a strict model takes."""
    if isinstance(value, dict):
        return {key: _with_tuples(part) for key, part in value.items()}
    return tuple(_with_tuples(part) for part in value) if isinstance(value, list) else value


def describe_error(text: str, name: str, model: type[BaseModel], error: ErrorDetails) -> tuple[str, str]:
    """Return the message of one pydantic error, with its line, and a hint."""
    kind = error["type"]
    loc = error["ctx"]["path"] if kind == "located" else error["loc"]
    path = [part for part in loc[:-1] if not _is_branch(part)]
    path += [part for part in loc[-1:] if kind == "extra_forbidden" or not _is_branch(part)]  # a key of the file
    if kind == "missing":
        return f"{name}: line {line_of(text, path[:-1])}: {key_path(path)}: missing", f"add {path[-1]}"
    where = f"{name}: line {line_of(text, path)}: {key_path(path)}" if path else name
    if kind == "extra_forbidden":
        return f"{where}: unknown key", did_you_mean(str(path[-1]), allowed_keys(model, path[:-1]))
    reason, _, hint = reason_of(error).partition("\n")
    if kind == "literal_error" and (words := re.findall(r"'([^']+)'", error["ctx"]["expected"])):
        hint = did_you_mean(str(error["input"]), words)
    return f"{where}: {reason}", hint


def reason_of(error: ErrorDetails) -> str:
    """Return what is wrong with a value; one of the right kind is quoted."""
    kind, reason = error["type"], error["msg"]
    if kind in {"value_error", "assertion_error", "located"}:  # written by our own validators
        reason = reason.removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return f"{reason[:1].lower()}{reason[1:]}"
    if kind == "model_type":  # pydantic names a class of ours
        return "must be a table"
    reason = reason.replace("Input should be", "must be")
    for word, ours in _KINDS.items():
        reason = reason.replace(word, ours)
    reason = f"{reason[:1].lower()}{reason[1:]}"
    if kind.endswith("_type"):  # what stands where no text belongs may hold a key
        return reason
    literal = json.dumps(error["input"], ensure_ascii=False, default=str)
    return f"{literal if len(literal) <= _LONGEST else f'{literal[:_LONGEST]}…'}: {reason}"


def _is_branch(part: int | str) -> bool:
    """Return whether pydantic put the part into a path to name the branch of a union or a validator."""
    return isinstance(part, str) and ("[" in part or part.startswith("function-"))


def allowed_keys(model: type[BaseModel], path: Path) -> list[str]:
    """Return the keys allowed at *path* of *model*."""
    level: object = model
    name_follows = False  # the next part is a free name: the key of a table of tables
    for part in path:
        if name_follows:
            name_follows = False
            continue
        if isinstance(part, str) and isinstance(level, type) and issubclass(level, BaseModel):
            field = level.model_fields.get(part) or next(
                (field for field in level.model_fields.values() if field.alias == part), None
            )
            level = field.annotation if field else None
            name_follows = get_origin(level) is dict
        level = _model_in(level)
    if not (isinstance(level, type) and issubclass(level, BaseModel)):
        return []
    return [field.alias or key for key, field in level.model_fields.items()]


def _model_in(annotation: object) -> object:
    """Return the first model in an annotation, such as that of a tuple of tables; None where there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        model = _model_in(argument)
        if isinstance(model, type):
            return model
    return None


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
