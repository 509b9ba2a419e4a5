"""Text and tool calls of an mlx-lm answer: by the state machine of its server, and by the markers."""

import json
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.builders.project_folder import ROOT

pytestmark = pytest.mark.mlx

CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
ANSWERS = [
    "plain words",
    f"{CALL}\n",
    f"before {CALL} between {CALL} after",
    '<tool_call>\n{"name": "f"',
    "a < b, <tool",
]


class Piece(NamedTuple):
    text: str
    finish: str | None


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    load = import_module("mlx_lm.tokenizer_utils").load
    return load(ROOT / "models" / "little-target")


@pytest.mark.parametrize("answer", ANSWERS)
def test_older_releases_give_the_same_parts(answer: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """mlx-lm 0.28 to 0.32.0 has no state machine that splits text; the markers separate an answer in the same way."""
    parts = import_module("gatekeeper.backends.workers.answer_parts")
    pieces = [Piece(letter, None) for letter in answer[:-1]] + [Piece(answer[-1], "length")]

    newest = parts.answer_parts(tokenizer, [1, 2], pieces, [])
    monkeypatch.setattr(parts.generation, "TextStateMachine", object)
    older = parts.answer_parts(tokenizer, [1, 2], pieces, [])

    assert newest == older
    assert [{"x": 1}] * answer.count("</tool_call>") == [json.loads(call["function"]["arguments"]) for call in older[1]]


def test_reasoning_that_the_prompt_began_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template may end with the marker that begins the reasoning: the answer begins after the marker that ends it."""
    parts = import_module("gatekeeper.backends.workers.answer_parts")
    monkeypatch.setattr(parts.generation, "TextStateMachine", object)
    thinking = SimpleNamespace(
        has_thinking=True, think_start="<think>", think_end="</think>", decode=lambda _: "user hi <think>"
    )

    answer_parts = parts.answer_parts(thinking, [1], [Piece("let me see</think>42", "stop")], [])

    assert ("42", []) == answer_parts
