"""JSON schemas of canaries: complete in themselves, and checked in bounded time.

Nothing is ever fetched: a verdict that depends on a server's page is not the same tomorrow.
"""

import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.validators import extend
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

from gatekeeper.core.canary import pattern
from gatekeeper.core.parse import ParseError

REFERENCES = 10_000
"""References that one check follows: thirty schemas that each refer twice to the next would otherwise take a day."""
_left: ContextVar[int] = ContextVar("_left", default=REFERENCES)
_Errors = Iterator[jsonschema.ValidationError]


def check(schema: Mapping[str, Any]) -> None:
    """Raise ParseError for what is no JSON schema, or one with a reference or a pattern that cannot be used here."""
    _check(json.dumps(schema))


def accepts(schema: Mapping[str, Any], document: object) -> bool:
    """Return whether *document* is valid under a *schema* that was checked; one that takes too long is not."""
    validator = _validator(json.dumps(schema))
    token = _left.set(REFERENCES)
    try:
        return bool(validator.is_valid(document))
    except (ParseError, RecursionError, ArithmeticError):
        return False
    finally:
        _left.reset(token)


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    return _Validator(json.loads(text), registry=EMPTY_REGISTRY)


@lru_cache(maxsize=256)
def _check(text: str) -> None:
    """Raise ParseError for a bad schema. A good one is remembered: a check is slow, and canaries share schemas."""
    schema = json.loads(text)
    try:
        # Without formats: which ones are checked depends on what else is installed.
        jsonschema.Draft202012Validator.check_schema(schema, format_checker=jsonschema.FormatChecker(formats=()))
        _check_parts(schema)
    except jsonschema.SchemaError as error:
        raise ParseError(error.message) from error
    except RecursionError as error:
        raise ParseError("nested too deeply") from error


def _check_parts(schema: dict[str, Any]) -> None:
    """Raise ParseError for a reference to nothing in *schema*, and for a pattern that is refused."""
    root = DRAFT202012.create_resource(schema)
    keywords: set[str] = set()
    todo, visited = [(root, EMPTY_REGISTRY.resolver_with_root(root))], set()
    while todo:
        part, resolver = todo.pop()
        keys = part.contents
        if not isinstance(keys, dict) or id(keys) in visited:
            continue
        visited.add(id(keys))
        keywords |= keys.keys()
        patterns = [*keys.get("patternProperties", ())]
        if "pattern" in keys:
            patterns.append(keys["pattern"])
        for text in patterns:
            try:
                pattern.compile_pattern(text)
            except ParseError as error:
                raise ParseError(f"pattern {text[:80]!r}: {error}") from error
        try:
            for key in ("$ref", "$dynamicRef"):
                if key in keys:
                    target = resolver.lookup(keys[key])
                    todo.append((DRAFT202012.create_resource(target.contents), target.resolver))
            todo += ((subresource, resolver.in_subresource(subresource)) for subresource in part.subresources())
        except (Unresolvable, ValueError, TypeError, LookupError, AttributeError) as error:
            reference = str(keys.get("$ref", keys.get("$dynamicRef", "$id")))
            raise ParseError(f"{reference[:80]!r} leads nowhere in this schema, and nothing is fetched") from error
    if {"unevaluatedProperties", "patternProperties"} <= keywords:  # jsonschema would search with `re`
        raise ParseError("unevaluatedProperties and patternProperties cannot be used in one schema")


def _reference(validator: Any, target: str, instance: Any, schema: Any) -> _Errors:
    references_left = _left.get() - 1
    _left.set(references_left)
    if references_left < 0:
        raise ParseError(f"more than {REFERENCES} references to follow")
    yield from jsonschema.Draft202012Validator.VALIDATORS["$ref"](validator, target, instance, schema)


def _pattern(_validator: Any, text: str, instance: Any, _schema: Any) -> _Errors:
    if isinstance(instance, str) and not pattern.compile_pattern(text)(instance):
        yield jsonschema.ValidationError("does not match")


def _pattern_properties(validator: Any, schemas: Mapping[str, Any], instance: Any, _schema: Any) -> _Errors:
    if isinstance(instance, dict):
        for text, schema in schemas.items():
            for key, value in instance.items():
                if pattern.compile_pattern(text)(key):
                    yield from validator.descend(value, schema, path=key, schema_path=text)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]) -> _Errors:
    if isinstance(instance, dict):
        patterns = [pattern.compile_pattern(text) for text in schema.get("patternProperties", ())]
        for key, value in instance.items():
            if key not in schema.get("properties", {}) and not any(found_in(key) for found_in in patterns):
                yield from validator.descend(value, allowed, path=key)


_Validator = extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {
        "$ref": _reference,
        "$dynamicRef": _reference,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
)
