"""JSON schemas of canaries: the same documents are valid as for jsonschema, in bounded time, and nothing is fetched."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.canary import json_schema

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "ab", "2026-01-01", "x1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "ab", "x1"]), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["object", "array", "string", "integer", "null"])
SCHEMAS = st.recursive(
    st.just({})
    | st.builds(lambda kind: {"type": kind}, TYPES)
    | st.sampled_from([{"pattern": "^a"}, {"pattern": r"^\d{4}-\d{2}-\d{2}$"}, {"$ref": "#/$defs/one"}]),
    lambda inner: (
        st.builds(
            lambda schema, other_schema: {"properties": {"a": schema}, "additionalProperties": other_schema},
            inner,
            inner | st.just(False),
        )
        | st.builds(
            lambda schema, other_schema: {
                "patternProperties": {"^a": schema, "[0-9]$": {}},
                "additionalProperties": other_schema,
            },
            inner,
            inner | st.just(False),
        )
        | st.builds(lambda schema, other_schema: {"anyOf": [schema, other_schema]}, inner, inner)
        | st.builds(lambda schema: {"items": schema}, inner)
        | st.builds(lambda schema: {"not": schema}, inner)
    ),
    max_leaves=5,
)


@given(SCHEMAS, TYPES, JSON)
def test_a_document_is_valid_exactly_where_jsonschema_says_so(schema: dict[str, Any], kind: str, document: Any) -> None:
    """Our keywords for patterns, keys and references mean what those of jsonschema mean."""
    document_schema = {"$defs": {"one": {"type": kind}}, **schema}

    assert jsonschema.Draft202012Validator(document_schema).is_valid(document) == json_schema.accepts(
        document_schema, document
    )


@pytest.mark.parametrize(
    "pattern", [{"pattern": "^(a+)+$"}, {"items": {"pattern": "^(a|aa)+$"}}, {"patternProperties": {"^(a+)+$": False}}]
)
def test_a_pattern_in_a_schema_takes_no_time(pattern: dict[str, Any]) -> None:
    """Patterns that take `re` for ever are searched at once, on texts and on keys."""
    text = "a" * 5000 + "b"
    document = text if "pattern" in pattern else [text] if "items" in pattern else {text: 1}

    assert ("patternProperties" in pattern) == json_schema.accepts(pattern, document)


def test_references_that_multiply_are_given_up() -> None:
    """Forty schemas that each refer twice to the next are not followed 2^40 times: such an answer is not valid."""
    defs = {f"s{number}": {"allOf": [{"$ref": f"#/$defs/s{number + 1}"}] * 2} for number in range(40)}
    schema = {"$ref": "#/$defs/s0", "$defs": {**defs, "s40": {"type": "string"}}}

    assert not json_schema.accepts(schema, "text")


def test_a_schema_of_itself_is_followed_as_deep_as_the_answer() -> None:
    """A schema may refer to itself; one that does so without end accepts nothing, and ends."""
    tree = {"properties": {"next": {"$ref": "#"}}, "required": ["name"]}

    assert json_schema.accepts(tree, json.loads('{"name": 1, "next": {"name": 2}}'))
    assert not json_schema.accepts(tree, json.loads('{"name": 1, "next": {}}'))
    assert not json_schema.accepts({"$ref": "#"}, 1)
