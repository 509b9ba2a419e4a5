"""Whether an answer is right: every form of `expect`, strictly and leniently."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.answer_grading import Grade, grade
from gatekeeper.core.canary import Canary
from tests.builders.slo import answer, canary

RIGHT, LOOSE, WRONG = (True, True), (False, True), (False, False)


def marks(expect: dict[str, Any], text: str = "", calls: tuple[dict[str, Any], ...] = (), **more: Any) -> Any:
    found = grade(canary(expect=expect), answer(text=text, tool_calls=calls, **more))
    assert isinstance(found, Grade)
    return (found.strict, found.lenient)


def call(name: str = "get_weather", **arguments: Any) -> dict[str, Any]:
    """Write a call as the OpenAI API does: the arguments are JSON in a string."""
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_nothing_expected_is_not_marked() -> None:
    """
    A canary without `expect` is there for its speed.
    """
    assert grade(canary(), answer(text="anything")) is None


def test_a_faulty_answer_is_wrong() -> None:
    """
    The right text of an answer that failed is wrong, strictly and leniently.
    """
    assert WRONG == marks({"equals": "yes"}, "yes", fault="cut off")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Blue", RIGHT),
        ("  Blue\n", RIGHT),
        ("blue.", LOOSE),
        ("**BLUE**", LOOSE),
        ("It is Blue", WRONG),
        ("", WRONG),
    ],
)
def test_equals(text: str, expected: tuple[bool, bool]) -> None:
    """
    `equals` is the whole answer but for outer white space; leniently case and punctuation do not count.
    """
    assert expected == marks({"equals": "Blue"}, text)


@pytest.mark.parametrize(
    ("text", "expected"), [("1. red", RIGHT), ("So:\n1. red", WRONG), ("Answer: ONE", WRONG), ("", WRONG)]
)
def test_regex(text: str, expected: tuple[bool, bool]) -> None:
    """
    `regex` is searched for, and anchors mean what they say.
    """
    assert expected == marks({"regex": "^1\\."}, text)


def test_regex_leniently_ignores_case() -> None:
    """
    The lenient mark of a pattern is the same search without case.
    """
    assert (RIGHT, LOOSE) == (marks({"regex": "oslo"}, "in oslo"), marks({"regex": "oslo"}, "in Oslo"))


SCHEMA = {"json_schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"id": 3}', RIGHT),
        ('\n {"id": 3} \n', RIGHT),
        ('Here you are: {"id": 3}', LOOSE),
        ('```json\n{"id": 3}\n```', LOOSE),
        ('```\n{"id": 3}\n```\nDone.', LOOSE),
        ('{"id": 3} and {"id": 4}', WRONG),
        ('{"name": "x"}', WRONG),
        ('{"id": "3"}', WRONG),
        ('{"id": true}', WRONG),
        ('{"id": NaN}', WRONG),
        ('{"id": 3', WRONG),
        ("[3]", WRONG),
        ("", WRONG),
    ],
)
def test_json_schema(text: str, expected: tuple[bool, bool]) -> None:
    """
    Strictly the whole answer is one valid JSON document; leniently one may stand inside a fence or other text.
    """
    assert expected == marks(SCHEMA, text)


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a":' * 50_000, "```json\n" + "[" * 50_000 + "```"])
def test_bottomless_json_is_wrong_not_a_crash(text: str) -> None:
    """
    A model stuck on an opening bracket fails its canary; it does not bring down the judge.
    """
    assert WRONG == marks(SCHEMA, text)


WEATHER: dict[str, Any] = {
    "tool_call": {"name": "get_weather", "arguments": {"city": ["Oslo", "Oslo, Norway"], "unit": ["C", ""], "days": 3}}
}


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ((call(city="Oslo", unit="C", days=3),), RIGHT),
        ((call(city="Oslo, Norway", days=3),), RIGHT),
        ((call(city="oslo", days=3),), LOOSE),
        ((call(city="Oslo", days="3"),), LOOSE),
        ((call(city="Bergen", days=3),), WRONG),
        ((call(city="Oslo"),), WRONG),
        ((call(city="Oslo", days=3, mood="good"),), WRONG),
        ((call(city="Oslo", days=True),), WRONG),
        ((call("get_time", city="Oslo", days=3),), WRONG),
        ((call(city="Oslo", days=3), call(city="Oslo", days=3)), WRONG),
        ((), WRONG),
    ],
    ids=[
        "exact",
        "optional left out",
        "case",
        "number as text",
        "other value",
        "missing",
        "unknown",
        "bool for int",
        "other name",
        "twice",
        "none",
    ],
)
def test_tool_call(calls: tuple[dict[str, Any], ...], expected: tuple[bool, bool]) -> None:
    """
    One exact call: lists are choices, "" among them makes the argument optional, and nothing else may be passed.
    """
    assert expected == marks(WEATHER, calls=calls)


@pytest.mark.parametrize(
    ("wanted", "given_value"), [(1, True), (True, 1), (0, False), ([[1]], [True]), ({"a": True}, {"a": 1})]
)
def test_true_is_not_one(wanted: Any, given_value: Any) -> None:
    """
    Python says True == 1; a tool does not, at any depth.
    """
    expect = {"tool_call": {"name": "f", "arguments": {"x": wanted}}}

    assert WRONG == marks(expect, calls=(call("f", x=given_value),))


def test_a_number_is_its_value() -> None:
    """
    JSON has one kind of number: 3.0 is 3.
    """
    assert RIGHT == marks({"tool_call": {"name": "f", "arguments": {"x": 3}}}, calls=(call("f", x=3.0),))


def test_a_list_valued_argument_is_written_as_a_choice_of_lists() -> None:
    """
    Since a list means a choice, a list that is meant stands inside another.
    """
    expect = {"tool_call": {"name": "f", "arguments": {"x": [["a", "b"]]}}}

    assert RIGHT == marks(expect, calls=(call("f", x=["a", "b"]),))
    assert WRONG == marks(expect, calls=(call("f", x="a"),))


PARALLEL: dict[str, Any] = {
    "tool_calls": [
        {"name": "f", "arguments": {"x": [1, 2]}},
        {"name": "f", "arguments": {"x": [1]}},
    ]
}


@given(st.permutations([call("f", x=1), call("f", x=2)]))
def test_parallel_calls_come_in_any_order(calls: list[dict[str, Any]]) -> None:
    """
    Each expected call is used once, and a choice that fits two is not wasted on the wrong one.
    """
    assert RIGHT == marks(PARALLEL, calls=tuple(calls))


def test_parallel_calls_are_counted() -> None:
    """
    One call cannot stand for two, and two equal ones do not cover a call that none of them is.
    """
    assert WRONG == marks(PARALLEL, calls=(call("f", x=1),))
    assert WRONG == marks(PARALLEL, calls=(call("f", x=2), call("f", x=2)))


def test_no_call_expected() -> None:
    """
    An empty `tool_calls` wants an answer that calls nothing.
    """
    assert (RIGHT, WRONG) == (marks({"tool_calls": []}), marks({"tool_calls": []}, calls=(call(),)))


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
    """
    Whatever a subject sends as a call is marked, never an error of ours.
    """
    assert WRONG == marks(WEATHER, calls=(garbled,))


def test_no_arguments_may_be_written_as_nothing() -> None:
    """
    Some servers write the arguments of a call without any as an empty string.
    """
    expect = {"tool_call": {"name": "ping"}}

    assert RIGHT == marks(expect, calls=({"function": {"name": "ping", "arguments": ""}},))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("abO. ", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["city", "unit", "days", "x"]), JSON_VALUES, max_size=4), st.text(max_size=30))
def test_strict_implies_lenient(arguments: dict[str, Any], text: str) -> None:
    """
    Whatever passes strictly passes leniently, for every form.
    """
    forms: list[dict[str, Any]] = [{"equals": "Blue"}, {"regex": "b"}, SCHEMA, WEATHER, PARALLEL]

    for form in forms:
        strict, lenient = marks(form, text, (call(**arguments),))
        assert lenient or not strict


@given(JSON_VALUES)
def test_every_value_equals_itself(value: Any) -> None:
    """
    A call with exactly the expected value passes, whatever the value; a list is a choice and stands in a list.
    """
    wanted = Canary.model_validate(
        {
            "id": "c",
            "messages": [{"role": "user"}],
            "expect": {"tool_call": {"name": "f", "arguments": {"x": [value]}}},
        }
    )

    assert Grade(strict=True, lenient=True) == grade(wanted, answer(tool_calls=(call("f", x=value),)))
