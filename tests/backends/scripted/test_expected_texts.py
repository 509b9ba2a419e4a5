"""Texts and tool calls that satisfy what a canary expects."""

import json
from typing import Any

import jsonschema
import pytest

from gatekeeper.backends.scripted.expected_texts import calls_for, match_for, text_for
from gatekeeper.backends.scripted.script import Script
from gatekeeper.backends.scripted.scripted_backend import ScriptedBackend
from gatekeeper.core.canary import Canary, parse
from gatekeeper.core.errors import InputError
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters
from tests.backends.conftest import PLAIN, ROOT


def prompt(name: str = "chat-1", **more: Any) -> Canary:
    return Canary.model_validate({"id": name, "messages": [{"role": "user", "content": "say it"}], **more})


@pytest.mark.slow
def test_the_little_canaries_can_be_satisfied() -> None:
    """For every canary we ship a right answer can be constructed."""
    for file in sorted((ROOT / "canaries" / "little").glob("*.jsonl")):
        for canary in parse(file.read_text("utf-8"), file.name):
            assert text_for(canary) or calls_for(canary)


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "minimum": 3}}},
    {"type": "array", "minItems": 2, "items": {"enum": ["x", "y"]}},
    {"$ref": "#/$defs/point", "$defs": {"point": {"type": "object", "required": ["x"], "properties": {"x": {}}}}},
    {"anyOf": [{"type": "number", "exclusiveMinimum": 2.5, "multipleOf": 0.5}, {"type": "null"}]},
    {"allOf": [{"required": ["a"]}, {"required": ["b"], "properties": {"b": {"type": "boolean"}}}]},
    {"type": "string", "minLength": 9, "maxLength": 9},
    {"type": "string", "pattern": "^[A-Z]{2}-\\d+$"},
    {"type": "string", "format": "date"},
    {"type": ["null", "string"]},
    {"type": "integer", "maximum": -5},
    {"type": "integer", "exclusiveMaximum": 0},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas_are_satisfied(schema: dict[str, Any]) -> None:
    """A constructed instance satisfies its schema."""
    text = text_for(prompt(expect={"json_schema": schema}))

    assert text is not None
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize(
    "pattern", [r"^1\. \w+\n2\.", r"(red|blue) \1", r"[^a-d]{3,}", r"^(\S+ ){4}\S\.$", r"x*?y+", ""]
)
def test_patterns_are_matched(pattern: str) -> None:
    """A constructed text is found by its pattern."""
    assert match_for(pattern) is not None


def test_what_cannot_be_constructed_is_said() -> None:
    """A pattern beyond the constructor names the canary and how to help; an answer in the script does help."""
    hard = prompt("hard", expect={"regex": "^(?=.*7)(?=.*x).{3}$"})

    with pytest.raises(InputError, match="hard") as caught:
        text_for(hard)
    backend = ScriptedBackend(Script.model_validate({"answers": {"hard": "a7x"}}))
    answer = backend.start(PLAIN).answer(DecodeRequest(hard, PLAIN, SamplingParameters()))

    assert '"answers"' in caught.value.hint
    assert answer.text == "a7x"
