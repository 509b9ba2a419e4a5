"""Reading a TOML file that people write; errors name the line, the key and the allowed values."""

import re
from collections.abc import Sequence
from typing import TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.parse import ParseError, toml_table

Model = TypeVar("Model", bound=BaseModel)
Path = Sequence[str | int]

_SHOWN = 5
"""Errors of one file that are described; each takes a search for its line."""
_HEADER = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\-\" ]+?)\s*\]\]?\s*(?:#.*)?$")


def parse(text: str, name: str, model: type[Model]) -> Model:
    """Return *text* as a *model*; raise InputError with the file, line, key, allowed values and the nearest word."""
    try:
        document = toml_table(text)
    except ParseError as error:
        raise InputError(f"{name}: {error}", hint="check quotes, brackets and numbers near that line") from error
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first, *others = (describe_error(text, name, model, one) for one in error.errors()[:_SHOWN])
        message, hint = first
        more = "".join(f"\n{other}" for other, _ in others)
        raise InputError(message + more, hint=hint) from error


def describe_error(text: str, name: str, model: type[BaseModel], error: ErrorDetails) -> tuple[str, str]:
    """Return the message of one pydantic error, with its line, and a hint."""
    loc, kind, reason = error["loc"], error["type"], error["msg"]
    path = [part for part in loc if not (isinstance(part, str) and ("[" in part or part.startswith("function-")))]
    key = key_path(path)
    where = f"{name}: line {line_of(text, path)}: {key}" if path else name
    reason = reason.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "extra_forbidden":
        return f"{where}: unknown key", did_you_mean(str(path[-1]), allowed_keys(model, path[:-1]))
    if kind == "missing":
        return f"{name}: line {line_of(text, path[:-1])}: {key}: missing", f"add `{path[-1]} = …`"
    if "\n" in reason:
        reason, hint = reason.split("\n", 1)
        return f"{where}: {reason}", hint
    return f"{where}: {reason[:1].lower()}{reason[1:]}", ""


def key_path(path: Path) -> str:
    """Write a path as `objective[3].metric`, counting from 1."""
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def allowed_keys(model: type[BaseModel], path: Path) -> list[str]:
    """Return the keys allowed at *path* of *model*."""
    here: object = model
    named = False  # the next part is a free name: the key of a table of tables
    for part in path:
        if named:
            named = False
            continue
        if isinstance(part, str) and isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(part) or next(
                (one for one in here.model_fields.values() if one.alias == part), None
            )
            here = field.annotation if field else None
            named = get_origin(here) is dict
        here = _model_in(here)
    if not (isinstance(here, type) and issubclass(here, BaseModel)):
        return []
    return [field.alias or key for key, field in here.model_fields.items()]


def _model_in(annotation: object) -> object:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if isinstance(found, type):
            return found
    return None


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
            here = list(names) if names == tuple(path) else table  # a list of tables as a whole begins with its first
        elif assignment := re.match(r'^\s*"?([A-Za-z0-9_\-]+)"?\s*=', line):
            here = [*table, assignment.group(1)]
        else:
            continue
        if here == list(path[: len(here)]) and len(here) > depth:
            best, depth = number, len(here)
    return best
