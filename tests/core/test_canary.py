"""Canary files: what is wrong is said with its line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.canary import Canary, parse
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import Answer
from tests.builders.golden_words import says

GOOD = {"id": "a", "messages": [{"role": "user", "content": "Hi."}]}
ROOT = Path(__file__).parents[2] / "canaries"


def lines(*canaries: Any) -> str:
    return "".join(json.dumps(canary) + "\n" for canary in canaries)


def refused(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        parse(text, "c.jsonl")
    return caught.value


@pytest.mark.parametrize(
    ("content", "expect", "fault"),
    [
        ({}, None, "empty answer: it ended without content"),
        ({}, {"regex": "^Yes"}, "empty answer: it ended without content"),
        ({}, {"equals": ""}, None),
        ({"text": "Yes"}, None, None),
        ({"reasoning": "Hm"}, None, None),
        ({"tool_calls": ({"type": "function"},)}, None, None),
    ],
)
def test_an_answer_without_content_is_a_fault(content: dict[str, Any], expect: Any, fault: str | None) -> None:
    """A complete answer without text, reasoning or a call has a fault, unless its canary expects just that."""
    message = {"role": "user", "content": "Yes or no?"}
    canary = Canary.model_validate({"id": "a", "messages": [message], "expect": expect})

    assert fault == canary.reject_empty(Answer(0, 9, finish="stop", **content)).fault


def test_blank_lines_and_carriage_returns_mean_nothing() -> None:
    """People leave blank lines, and Windows ends lines otherwise."""
    text = f"\n{lines(GOOD)}\n  \n{lines({**GOOD, 'id': 'b'})}".replace("\n", "\r\n")

    assert ["a", "b"] == [prompt.id for prompt in parse(text, "c")]


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\u000b", "\x1c", "é✓"])
def test_only_a_line_feed_ends_a_line(odd: str) -> None:
    """Characters that Python calls line ends may stand inside a JSON string."""
    content = f"one{odd}two"
    text = json.dumps({**GOOD, "messages": [{"role": "user", "content": content}]}, ensure_ascii=False)
    text = text.replace("\\u000b", odd).replace("\\u001c", odd) if odd in "\x0b\x1c" else text
    if odd in "\x0b\x1c":
        assert "not JSON" in refused(text).message  # a raw control character is no JSON, whatever the line
        return

    (canary,) = parse(text + "\n", "c")

    assert content == canary.messages[0]["content"]


BAD: dict[str, tuple[Any, str]] = {
    "unknown key": ({**GOOD, "expects": {}}, "expects"),
    "no id": ({"messages": GOOD["messages"]}, "id"),
    "empty id": ({**GOOD, "id": ""}, "id"),
    "no messages": ({"id": "a"}, "messages"),
    "empty messages": ({**GOOD, "messages": []}, "messages"),
    "no role": ({**GOOD, "messages": [{"content": "Hi."}]}, "role"),
    "negative limit": ({**GOOD, "max_tokens": -1}, "max_tokens"),
    "wrong type": ({**GOOD, "tools": "none"}, "tools"),
    "two expectations": ({**GOOD, "expect": {"equals": "x", "regex": "y"}}, "exactly one of"),
    "no expectation": ({**GOOD, "expect": {}}, "exactly one of"),
    "unknown expectation": ({**GOOD, "expect": {"contains": "x"}}, "contains"),
    "bad pattern": ({**GOOD, "expect": {"regex": "("}}, "not a regular expression"),
    "bad schema": ({**GOOD, "expect": {"json_schema": {"type": "objekt"}}}, "not a JSON schema"),
    "unknown tier": ({**GOOD, "tier": "huge"}, "tier"),
    "a list": ([GOOD], "an object in braces"),
    "a number": (7, "an object in braces"),
}


def schema(**keys: Any) -> dict[str, Any]:
    return {**GOOD, "expect": {"json_schema": keys}}


def nested(levels: int, inside: Any) -> Any:
    for _ in range(levels):
        inside = {"properties": {"a": inside}}
    return inside


BAD |= {
    "schema on a server": (schema(**{"$ref": "http://127.0.0.1:9/x.json"}), "nothing is fetched"),
    "schema in a file": (schema(properties={"a": {"$ref": "file:///etc/passwd"}}), "nothing is fetched"),
    "schema that is missing": (schema(properties={"a": {"$ref": "#/$defs/gone"}}), "leads nowhere"),
    "reference to a part with a bad one": (schema(**{"$ref": "#/x", "x": {"$ref": "#/gone"}}), "leads nowhere"),
    "dynamic reference to a server": (schema(items={"$dynamicRef": "https://127.0.0.1:9/y#z"}), "nothing is fetched"),
    "relative to a server": (schema(**{"$id": "http://127.0.0.1:9/", "items": {"$ref": "x"}}), "nothing is fetched"),
    "address that is none": (schema(**{"$ref": "http://["}), "leads nowhere"),
    "schema nested 90 deep": (schema(**nested(45, {"$ref": "#/gone"})), "leads nowhere"),
    "bad pattern in a schema": (schema(properties={"a": {"pattern": "("}}), "not a JSON schema: pattern '('"),
    "bad pattern of keys": (schema(patternProperties={"(?>a)": {}}), "an atomic group is not allowed"),
    "pattern of 10^20 times": ({**GOOD, "expect": {"regex": "a{100000000000000000000}"}}, "not a regular expression"),
    "pattern of 5,000 brackets": ({**GOOD, "expect": {"regex": "(" * 5000}}, "longer than 2000"),
    "back-reference": ({**GOOD, "expect": {"regex": r"(a+)\1"}}, "a back-reference is not allowed"),
    "integer of 30 digits": ({**GOOD, "max_tokens": 10**30}, "64 bits"),
    "half a character": ({**GOOD, "id": "\ud800"}, "not JSON"),
}
RAW = {
    "nested 1,500 deep": ("[" * 1500, "recursion limit"),
    "nested 102 deep": ("[" * 102 + "]" * 102, "100 levels"),
    "number of 5,000 digits": ('{"id": ' + "9" * 5000 + "}", "out of range"),
    "number beyond any float": ('{"id": 1e999}', "too large"),
    "NaN": ('{"id": NaN}', "not JSON"),
}


@pytest.mark.parametrize("raw", RAW)
def test_a_line_that_is_no_json_is_named(raw: str) -> None:
    """Depth, digits and numbers without a value: file, line, what is wrong."""
    line, says = RAW[raw]

    error = refused(lines(GOOD) + line)

    assert error.message.startswith("c.jsonl: line 2: ")
    assert says in error.message


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_line_is_named(bad: str) -> None:
    """File, line, key, what is wrong and what a canary has: exit code 2 before anything runs."""
    canary, says = BAD[bad]

    error = refused(lines({**GOOD, "id": "first"}, canary))

    assert error.message.startswith("c.jsonl: line 2: ")
    assert says in error.message
    assert (2, True) == (error.exit_code, bool(error.hint))


def test_half_a_line_is_named() -> None:
    """A file that was cut off says so, with line and column."""
    error = refused(lines(GOOD, {**GOOD, "id": "b"})[:-20])

    says("core", "half a line is named", error.message)
    assert "one JSON object" in error.hint


def test_an_id_stands_once() -> None:
    """Ids name records: the second use names both lines."""
    says("core", "an id stands once", refused(lines(GOOD, {**GOOD, "id": "b"}, GOOD)).message)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_is_refused(text: str) -> None:
    """No canary, no evidence."""
    assert "no canaries" in refused(text).message


@pytest.mark.parametrize(
    ("expect", "kind"),
    [
        ({"equals": "x"}, "text"),
        ({"equals": ""}, "text"),
        ({"regex": "x"}, "text"),
        ({"json_schema": {}}, "json"),
        ({"tool_call": {"name": "f"}}, "tool"),
        ({"tool_calls": []}, "tool"),
    ],
)
def test_the_kind_of_an_expectation(expect: dict[str, Any], kind: str) -> None:
    """Each form belongs to one pass rate, empty ones too."""
    expectation = Canary.model_validate({**GOOD, "expect": expect}).expect

    assert expectation is not None
    assert kind == expectation.kind


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever a file holds, it is canaries or an InputError, never another error."""
    try:
        canaries = parse(text, "c")
    except InputError:
        return

    assert canaries


def turn(number: int, **fields: Any) -> dict[str, Any]:
    """Return a turn whose messages begin with those of the turn before."""
    messages = [{"role": "user", "content": str(at)} for at in range(number)]
    return {"id": f"t{number}", "conversation": "talk", "turn": number, "messages": messages, **fields}


@pytest.mark.parametrize(
    ("test_case", "turns"),
    [
        ("a turn that is left out", [turn(1), turn(3)]),
        ("a conversation without its beginning", [turn(2)]),
        ("a turn with another beginning", [turn(1), turn(2, messages=[{"role": "user", "content": "other"}] * 2)]),
        ("a conversation in two places", [turn(1), turn(1, id="u", conversation="other"), turn(2)]),
        ("a conversation without a turn", [turn(1, turn=None)]),
    ],
)
def test_turns_that_a_cache_could_not_resume_are_refused(test_case: str, turns: list[dict[str, Any]]) -> None:
    """The turns of a conversation stand together, in their order, and each prompt begins with the one before."""
    says("canaries", test_case, refused(lines(*turns)).message)


def test_turns_of_a_conversation_are_canaries() -> None:
    """Beside canaries that are no turns."""
    canaries = parse(lines(turn(1), turn(2), GOOD), "talk.jsonl")

    assert [("talk", 1), ("talk", 2), (None, None)] == [(canary.conversation, canary.turn) for canary in canaries]


@pytest.mark.parametrize(("text", "says", "hint"), [
    (lines({**GOOD, "messages": "hi"}), "messages: must be a list", "has id and messages"),
    (json.dumps([GOOD]), "must be an object in braces", "has id and messages"),
    (lines({**GOOD, "messages": [{"role": "usr", "content": "hi"}]}), "did you mean 'user'?", "has id and messages"),
    (lines({**GOOD, "messages": [{"role": "user", "content": " "}]}), "message has no content", "has id and messages"),
])  # fmt: skip
def test_a_line_of_another_shape_is_named_in_words_of_json(text: str, says: str, hint: str) -> None:
    """As other tools have them; a message whose role is mistyped, and one that is empty."""
    error = refused(text)

    assert says in error.message
    assert error.hint.partition(hint)[1]
