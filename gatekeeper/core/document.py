"""How a result becomes a JSON document, and a document a result again: its type says it once, for both ways.

A result is a frozen dataclass; its fields, in their order, are the keys of its document. The annotation of a field says
what differs: `Field(alias="from")` for another key, IF_ANY for a key that is absent where there is nothing, UNWRITTEN
for a field that is no part of the document. A type that is written in another form has a `model_serializer`, and a
`model_validator` that reads it.
"""

from collections.abc import Callable, Sized
from functools import cache
from typing import Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from gatekeeper.core.errors import InputError
from gatekeeper.core.text import json_text

Result = TypeVar("Result")


def _is_nothing(value: object) -> bool:
    """Return whether a value is None or empty; 0 and False are values."""
    return value is None or (isinstance(value, Sized) and len(value) == 0)


IF_ANY: Any = Field(exclude_if=_is_nothing)
"""The key is absent where there is nothing; such a field needs a default, with which it is read."""
UNWRITTEN: Any = Field(exclude=True)
"""The field is no part of the document."""


WriteFields = Callable[[Any], dict[str, Any]]
"""What a `model_serializer` of mode "wrap" is given: writes the fields of a result."""


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""Built when the first result of a type is written or read: a command that does neither need not wait for it."""


def document_of(result: object) -> dict[str, Any]:
    """Return a result as the document that JSON files and `--json` hold."""
    written: dict[str, Any] = _adapter(type(result)).dump_python(result, by_alias=True)
    return written


def text_of(result: object) -> str:
    """Return the text of a result's JSON file: the same bytes for the same result."""
    return json_text(document_of(result))


def read_document(kind: type[Result], document: object, name: str, *, hint: str) -> Result:
    """Return the document of the file *name* as a result; raise InputError with the first key that is wrong."""
    try:
        result: Result = _adapter(kind).validate_python(document)
    except ValidationError as error:
        raise InputError(f"{name}: damaged: {first_mistake(error)}", hint=hint) from error
    return result


def first_mistake(error: ValidationError) -> str:
    """Return the first key that is wrong, and why."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
