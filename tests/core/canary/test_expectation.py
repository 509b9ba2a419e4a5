"""Grades of answers: every form of `expect`."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.canary import Canary
from tests.builders.slo import answer, canary


def right(expect: dict[str, Any], text: str = "", calls: tuple[dict[str, Any], ...] = (), **more: Any) -> bool:
    grade = canary(expect=expect).grade(answer(text=text, tool_calls=calls, **more))
    assert grade is not None
    return grade


def call(name: str = "get_weather", **arguments: Any) -> dict[str, Any]:
    """Write a call as the OpenAI API does: the arguments are JSON in a string."""
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_nothing_expected_is_not_graded() -> None:
    """A canary without `expect` is there for its speed."""
    assert canary().grade(answer(text="anything")) is None


def test_a_faulty_answer_is_wrong() -> None:
    """The right text of an answer that failed is wrong."""
    assert not right({"equals": "yes"}, "yes", fault="cut off")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Blue", True),
        ("  Blue\n", True),
        ("blue.", False),
        ("**BLUE**", False),
        ("It is Blue", False),
        ("", False),
    ],
)
def test_equals(text: str, expected: bool) -> None:
    """`equals` is the whole answer but for outer white space."""
    assert expected == right({"equals": "Blue"}, text)


@pytest.mark.parametrize(
    ("text", "expected"), [("1. red", True), ("So:\n1. red", False), ("1. Red", False), ("", False)]
)
def test_regex(text: str, expected: bool) -> None:
    """`regex` is searched for, anchors mean what they say, and another case is another text."""
    assert expected == right({"regex": "^1\\. r"}, text)


SCHEMA = {"json_schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"id": 3}', True),
        ('\n {"id": 3} \n', True),
        ('Here you are: {"id": 3}', False),
        ('```json\n{"id": 3}\n```', False),
        ('```\n{"id": 3}\n```\nDone.', False),
        ('{"id": 3} and {"id": 4}', False),
        ('{"name": "x"}', False),
        ('{"id": "3"}', False),
        ('{"id": true}', False),
        ('{"id": NaN}', False),
        ('{"id": 3', False),
        ("[3]", False),
        ("", False),
    ],
)
def test_json_schema(text: str, expected: bool) -> None:
    """The whole answer is one valid JSON document; one inside a fence or other text is wrong."""
    assert expected == right(SCHEMA, text)


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a":' * 50_000, "```json\n" + "[" * 50_000 + "```"])
def test_bottomless_json_is_wrong_not_a_crash(text: str) -> None:
    """A model stuck on an opening bracket fails its canary; it does not bring down the judge."""
    assert not right(SCHEMA, text)


WEATHER: dict[str, Any] = {
    "tool_call": {"name": "get_weather", "arguments": {"city": ["Oslo", "Oslo, Norway"], "unit": ["C", ""], "days": 3}}
}


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ((call(city="Oslo", unit="C", days=3),), True),
        ((call(city="Oslo, Norway", days=3),), True),
        ((call(city="oslo", days=3),), False),
        ((call(city="Oslo", days="3"),), False),
        ((call(city="Bergen", days=3),), False),
        ((call(city="Oslo"),), False),
        ((call(city="Oslo", days=3, mood="good"),), False),
        ((call(city="Oslo", days=True),), False),
        ((call("get_time", city="Oslo", days=3),), False),
        ((call(city="Oslo", days=3), call(city="Oslo", days=3)), False),
        ((), False),
    ],
)
def test_tool_call(calls: tuple[dict[str, Any], ...], expected: bool) -> None:
    """One exact call: lists are choices, "" among them makes the argument optional, and nothing else may be passed."""
    assert expected == right(WEATHER, calls=calls)


@pytest.mark.parametrize(
    ("expected_value", "given_value"), [(1, True), (True, 1), (0, False), ([[1]], [True]), ({"a": True}, {"a": 1})]
)
def test_true_is_not_one(expected_value: Any, given_value: Any) -> None:
    """Python says True == 1; a tool does not, at any depth."""
    expect = {"tool_call": {"name": "f", "arguments": {"x": expected_value}}}

    assert not right(expect, calls=(call("f", x=given_value),))
    assert right({"tool_call": {"name": "f", "arguments": {"x": 3}}}, calls=(call("f", x=3.0),)), "3.0 is 3"


def test_a_list_valued_argument_is_written_as_a_choice_of_lists() -> None:
    """Since a list means a choice, a list that is meant stands inside another."""
    expect = {"tool_call": {"name": "f", "arguments": {"x": [["a", "b"]]}}}

    assert right(expect, calls=(call("f", x=["a", "b"]),))
    assert not right(expect, calls=(call("f", x="a"),))


PARALLEL: dict[str, Any] = {
    "tool_calls": [
        {"name": "f", "arguments": {"x": [1, 2]}},
        {"name": "f", "arguments": {"x": [1]}},
    ]
}


@given(st.permutations([call("f", x=1), call("f", x=2)]))
def test_parallel_calls_come_in_any_order(calls: list[dict[str, Any]]) -> None:
    """Each expected call is used once, and a choice that fits two is not wasted on the wrong one; none wants none."""
    assert right(PARALLEL, calls=tuple(calls))
    assert not right(PARALLEL, calls=(call("f", x=1),))
    assert not right(PARALLEL, calls=(call("f", x=2), call("f", x=2)))
    assert right({"tool_calls": []})
    assert not right({"tool_calls": []}, calls=(call(),))


@pytest.mark.parametrize(
    "garbled",
    [
        {"function": {"name": "get_weather", "arguments": "{city: Oslo"}},
        {"function": {"name": "get_weather", "arguments": "[1]"}},
        {"function": {"name": "get_weather", "arguments": "[" * 50_000}},
        {"function": {"name": "get_weather", "arguments": None}},
        {"function": {"name": None}},
        {"function": None},
        {"function": "get_weather"},
        {},
    ],
)
def test_garbled_calls_are_wrong_not_a_crash(garbled: dict[str, Any]) -> None:
    """Whatever a subject sends as a call is graded, never an error of ours."""
    assert not right(WEATHER, calls=(garbled,))
    # Some servers write the arguments of a call without any as an empty string.
    assert right({"tool_call": {"name": "ping"}}, calls=({"function": {"name": "ping", "arguments": ""}},))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("abO. ", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(JSON_VALUES)
def test_every_value_equals_itself(value: Any) -> None:
    """A call with exactly the expected value passes, whatever the value; a list is a choice and stands in a list."""
    prompt = Canary.model_validate(
        {
            "id": "c",
            "messages": [{"role": "user"}],
            "expect": {"tool_call": {"name": "f", "arguments": {"x": [value]}}},
        }
    )

    assert prompt.grade(answer(tool_calls=(call("f", x=value),)))


@pytest.mark.parametrize(
    ("expect", "text"),
    [
        pytest.param({"regex": "^(a+)+$"}, "a" * 5000 + "b", id="repeat-in-a-repeat"),
        pytest.param({"json_schema": {"pattern": "^(a|aa)+$"}}, f'"{"a" * 5000}b"', id="pattern-in-a-schema"),
        pytest.param({"json_schema": {"items": {"$ref": "#"}}}, "[" * 100_000, id="100000-brackets"),
        pytest.param({"json_schema": {}}, "9" * 5000, id="5000-digits"),
        pytest.param({"json_schema": {}}, '{"a": 1e999}', id="larger-than-any-float"),
        pytest.param({"json_schema": {}}, '"\\ud800"', id="half-a-character"),
        pytest.param({"json_schema": {"multipleOf": 0.1}}, "1" * 300, id="multiple-of-300-digits"),
    ],
)
def test_an_answer_made_to_break_the_grader_is_wrong(expect: dict[str, Any], text: str) -> None:
    """An answer that no parser can take, or that a pattern would search for ever, is a wrong answer."""
    assert not right(expect, text)


def test_thirty_calls_are_matched_at_once() -> None:
    """Calls may come in any order; a wrong one among thirty does not cost trying every order."""
    expected = [{"name": "f", "arguments": {"a": ["x", number]}} for number in range(30)]
    wrong = [call("f", a="x") for _ in range(29)]

    assert right({"tool_calls": expected}, calls=(*wrong, call("f", a=29)))
    assert not right({"tool_calls": expected}, calls=(*wrong, call("g", a=29)))
