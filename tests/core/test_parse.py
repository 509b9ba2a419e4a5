"""Foreign text: every value in range comes back, everything else is the one documented error."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core import parse
from gatekeeper.core.parse import ParseError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64) + 1, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(VALUES)
def test_every_json_value_in_range_is_read_as_it_was_written(value: object) -> None:
    """What json writes comes back the same, from text and from bytes."""
    text = json.dumps(value)

    assert value == parse.json_value(text) == parse.json_value(text.encode())


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "EOF", id="empty"),
        pytest.param("{} x", "trailing", id="more-behind"),
        pytest.param("NaN", "not JSON", id="nan"),
        pytest.param('{"a": Infinity}', "not JSON", id="infinity"),
        pytest.param("1e999", "too large", id="exponent"),
        pytest.param("[" + "9" * 400 + ".5]", "too large", id="400-digits-and-a-half"),
        pytest.param("1" * 21, "64 bits", id="21-digits"),
        pytest.param("1" * 401, "64 bits", id="401-digits"),
        pytest.param(str(-(2**64)), "64 bits", id="65-bits"),
        pytest.param("1" * 5000, "out of range", id="5000-digits"),
        pytest.param(deep(102), "100 levels", id="102-levels"),
        pytest.param(deep(100_000), "recursion", id="100000-levels"),
        pytest.param('["\\ud800"]', "not JSON", id="half-an-escaped-character"),
        pytest.param('"\ud800"', "surrogate", id="half-a-character"),
        pytest.param('"a\x00b"', "control", id="raw-nul"),
        pytest.param(" " * 65 + "1", "longer than 64", id="too-long"),
    ],
)
def test_json_out_of_range_is_one_error_that_says_why(text: str, why: str) -> None:
    """Whatever is wrong with a JSON text, ParseError says it, for text and for bytes."""
    most = 64 if text.startswith(" ") else parse.JSON_BYTES

    with pytest.raises(ParseError, match=why):
        parse.json_value(text, most=most)
    if "\ud800" not in text:
        with pytest.raises(ParseError, match=why):
            parse.json_value(text.encode(), most=most)


def test_what_servers_write_is_read_where_it_is_wanted_and_nothing_else_is() -> None:
    """A server may send a character in two pieces, and Python's NaN for what it cannot compute; depth, size and finite
    numbers are held to all the same.
    """
    assert ["\ud83d", None] == parse.json_value('["\\ud83d", NaN]', from_server=True)
    assert [None, None] == parse.json_value(b"[NaN, -Infinity]", from_server=True)
    for text in (deep(102), deep(100_000), '["\\ud800", 1e999]', "[NaN, 1e999]", "1" * 5000, '["\\ud800", 1' * 21):
        with pytest.raises(ParseError):
            parse.json_value(text, from_server=True)


def test_a_json_object_is_an_object() -> None:
    """Another value than an object is refused by name."""
    assert {"a": 1} == parse.json_object(b'{"a": 1}')
    with pytest.raises(ParseError, match="not a JSON object"):
        parse.json_object("[1]")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("a = ", "line 1|end of document", id="no-value"),
        pytest.param("a = " + deep(1500), "100 levels.*line 1", id="1500-levels"),
        pytest.param("#\na = " + deep(101), "100 levels.*line 2", id="101-levels"),
        pytest.param("#\na" + " = { a" * 110 + " = 1" + " }" * 110, "100 levels.*line 2", id="110-tables"),
        pytest.param("a = " + "1" * 5000, "digits", id="5000-digits"),
        pytest.param("a = 0x" + "f" * 5000, "64 bits", id="5000-hex-digits"),
        pytest.param("a = 1\nb = 0x" + "f" * 17, "64 bits.*line 2", id="17-hex-digits"),
        pytest.param("a = 9999-12-31T23:59:59-23:59", "year 9999", id="year-9999"),
        pytest.param("\na" + ".a" * 100_000 + " = 1", "line 2", id="100000-dots"),
        pytest.param('a = 1\nb = "\ud800"', "surrogate.*line 2", id="half-a-character"),
        pytest.param("#" * (parse.TOML_CHARACTERS + 1), "longer than", id="too-long"),
    ],
)
def test_toml_out_of_range_is_the_same_error(text: str, why: str) -> None:
    """Nesting, digits, size and dates of a TOML file have limits too."""
    with pytest.raises(ParseError, match=why):
        parse.toml_table(text)


@pytest.mark.parametrize(
    ("read", "good"),
    [
        pytest.param(parse.integer, {"0": 0, " -12 ": -12, "+7": 7, str(2**64 - 1): 2**64 - 1}, id="integer"),
        pytest.param(parse.number, {"0": 0.0, "-1.5e3": -1500.0, " .5": 0.5, "7.": 7.0}, id="number"),
        pytest.param(
            parse.moment,
            {
                "2026-11-20T09:12:00Z": datetime(2026, 11, 20, 9, 12, tzinfo=UTC),
                "2026-11-20T09:12:00.5+02:00": datetime(2026, 11, 20, 7, 12, 0, 500_000, tzinfo=UTC),
            },
            id="moment",
        ),
    ],
)
def test_numbers_and_instants_are_read_from_plain_text(read: Callable[[str], Any], good: dict[str, Any]) -> None:
    """Numbers are decimal and ASCII, instants have a zone and come back in UTC; anything else is refused."""
    assert good == {text: read(text) for text in good}
    for text in ("", "x", "nan", "inf", "-Infinity", "1_0", "٣", "1e1e1", "0x10", "1e999", "1" * 400, "1 2", "\ud800"):
        with pytest.raises(ParseError):
            read(text)


@pytest.mark.parametrize(
    "text", ["2026-11-20T09:12:00", "2026-11-20", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "now"]
)
def test_an_instant_without_a_zone_or_out_of_range_is_refused(text: str) -> None:
    """An instant that could not be compared with another, or moved by a day, is no instant."""
    with pytest.raises(ParseError):
        parse.moment(text)


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_whatever_text_comes_in_there_is_a_value_or_the_one_error(text: str) -> None:
    """No text makes a parser raise anything but ParseError."""
    for read in (parse.json_value, parse.toml_table, parse.integer, parse.number, parse.moment):
        try:
            read(text)
        except ParseError as error:
            str(error).encode()


PIECES = st.lists(st.sampled_from(["{", "}", "[", "]", ",", ":", '"', "0", "1e999", "7" * 21, "NaN", " "]), max_size=6)
TEXTS = st.lists(st.builds("".join, PIECES) | VALUES.map(json.dumps), max_size=5)


@given(TEXTS)
def test_texts_that_are_read_at_once_are_what_each_is_alone(texts: list[str]) -> None:
    """Where one text is refused, or ends in another, none are read at once."""
    values = parse.json_values([text.encode() for text in texts])

    assert values is None or values == [parse.json_value(text, from_server=True) for text in texts]


def test_texts_of_ordinary_answers_are_read_at_once() -> None:
    """Chunks of an answer need no look one by one; one of a hundred levels does, and no text is none to read."""
    chunks = [json.dumps({"choices": [{"delta": {"content": word}}]}).encode() for word in ("a", "\u2028", "]")]

    assert [json.loads(chunk) for chunk in chunks] == parse.json_values(chunks)
    assert parse.json_values([*chunks, b"[" * 101 + b"]" * 101]) is None
    assert parse.json_values([b'{"a": 1}, 0, {"b": 2}', b'{"c": [{"d": 3}', b'{"e": 4}]}']) is None
    assert parse.json_values([]) is None
