"""Keys that no table has: the key that was meant, and the keys that a table allows."""

from collections.abc import Sequence
from typing import get_origin

from pydantic import BaseModel

from gatekeeper.core.errors import did_you_mean

Path = Sequence[str | int]
"""Of a key in a file."""
_SYNONYMS = {
    "at_least": {"min", "minimum", "threshold", "above", "lower"},
    "at_most": {"max", "maximum", "below", "upper", "limit"},
    "target": {"model", "target_model", "base_model"},
    "drafts": {"draft_model", "draft_models", "assistant", "speculator"},
    "canaries": {"prompts", "file", "dataset"},
    "duration": {"length", "seconds", "time"},
}
"""What other tools call our keys."""


def nearest_key(key: str, allowed: Sequence[str], model: type[BaseModel]) -> str:
    """Return a hint for an unknown *key*: the same in other words, its own table, a key of like spelling, or all."""
    synonym = next((ours for ours in allowed if key.lower() in _SYNONYMS.get(ours, ())), None)
    if synonym is not None:
        return f"did you mean '{synonym}'?"
    tables = [table for table in model.model_fields if key in allowed_keys(model, (table,))]
    like = did_you_mean(key, allowed)
    if not tables or (like.endswith("?") and len(like.split("'")[1]) == len(key)):
        return like
    arrays = {table for table in tables if get_origin(model.model_fields[table].annotation) is tuple}
    return f"{key} belongs to {' or '.join(f'[[{name}]]' if name in arrays else f'[{name}]' for name in tables)}"


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
        level = model_in(level)
    if not (isinstance(level, type) and issubclass(level, BaseModel)):
        return []
    return [field.alias or key for key, field in level.model_fields.items()]


def table_with(key: str, model: type[BaseModel]) -> str | None:
    """Return the first table of *model* that allows *key*; None where none does."""
    return next((table for table in model.model_fields if key in allowed_keys(model, (table,))), None)


def model_in(annotation: object) -> object:
    """Return the first model in an annotation, such as that of a tuple of tables; None where there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        model = model_in(argument)
        if isinstance(model, type):
            return model
    return None
