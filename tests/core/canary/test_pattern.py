"""Patterns of canaries: matches are found exactly where `re` finds them, and no pattern takes long on any text."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.core.canary.pattern import compile_pattern
from gatekeeper.core.parse import ParseError

CANARIES = Path(__file__).parents[3] / "canaries"
SINGLE = [*"abAB1 é.^$", r"\n", r"\w", r"\W", r"\s", r"\d", "[ab]", "[^a]", "[a-b1]", r"\b", r"\B", r"\A", r"\Z"]
REPEATS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?", "{2,}"]
AROUND = ["(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?m:", "(?s:", "(?-i:", "("]


def bigger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})")
        | st.tuples(inner, st.sampled_from(REPEATS)).map(lambda two: f"(?:{two[0]}){two[1]}")
        | st.tuples(st.sampled_from(AROUND), inner).map(lambda two: f"{two[0]}{two[1]})")
    )


PATTERNS = st.tuples(
    st.sampled_from(["", "", "(?m)", "(?s)", "(?i)", "(?a)"]),
    st.recursive(st.sampled_from(SINGLE), bigger, max_leaves=8),
).map("".join)


@given(PATTERNS, st.text("aab\n cAB_1é", max_size=9))
def test_a_match_is_found_exactly_where_re_finds_one(pattern: str, text: str) -> None:
    """Whatever the pattern and the text, the answer is that of `re.search`."""
    try:
        reference = re.compile(pattern)
    except re.error:
        with pytest.raises(ParseError):
            compile_pattern(pattern)
        return

    assert (reference.search(text) is not None) == compile_pattern(pattern)(text)


def shipped() -> list[str]:
    lines = [line for path in sorted(CANARIES.rglob("*.jsonl")) for line in path.read_text().split("\n") if line]
    patterns = {(json.loads(line).get("expect") or {}).get("regex") for line in lines}
    # `re` needs longer than a test may for these: two repeats of words inside a third.
    return sorted(pattern for pattern in patterns if pattern and r"\W*\w+" not in pattern)


TEXTS = [
    "",
    "no",
    "1. one\n2. two\n3) three\nanswer: 7\n" * 3,
    "Step 1: 6 * 7 = 42.\nThe answer is 42.0",
    "aabbcc " * 9,
]


def test_shipped_patterns_grade_as_re_does() -> None:
    """Every pattern of a shipped canary finds the same as `re`."""
    patterns = shipped()

    for pattern in patterns:
        assert [bool(re.search(pattern, text)) for text in TEXTS] == [compile_pattern(pattern)(text) for text in TEXTS]
    assert 100 < len(patterns)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        pytest.param("^(a+)+$", "a" * 20_000 + "b", id="a-repeat-in-a-repeat"),
        pytest.param("x(a|aa)+$", "a" * 20_000, id="two-ways-to-match-one-text"),
        pytest.param("x.*.*.*.*.*.*", "a" * 20_000, id="many-repeats-in-a-row"),
        pytest.param("c(a*b?)*$", "ab" * 2000, id="a-repeat-of-what-may-be-empty"),
        pytest.param("q((((a|b?)*c?)*d?)*e?)*f?$", "abcde" * 500, id="repeats-five-deep"),
        pytest.param("(a?){4000000000}b", "a" * 5000, id="four-billion-times"),
        pytest.param("((a{1000}){1000}){1000}", "a" * 5000, id="a-thousand-times-thrice"),
        pytest.param(r"(?s)(?!.*z.*z).*q", "a" * 20_000, id="a-look-ahead-at-each-place"),
        pytest.param(r"^(?:\W*\w+){35,75}\W*$", "word, " * 2000, id="words-counted-as-shipped-canaries-do"),
    ],
)
def test_no_pattern_takes_long(pattern: str, text: str) -> None:
    """Patterns that take `re` minutes or for ever are answered; here there is no match."""
    assert not compile_pattern(pattern)(text)


def test_a_search_that_costs_too_much_ends() -> None:
    """A million steps over a hundred thousand characters are given up, the same on every machine."""
    with pytest.raises(ParseError, match="costs too much"):
        compile_pattern("(ab?){1000000}$")("a" * 50_000)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        pytest.param("(", "unterminated", id="no-end"),
        pytest.param("a{100000000000000000000}", "too large", id="1e20-times"),
        pytest.param("(" * 1900, "nested too deeply|missing|unterminated", id="1900-brackets"),
        pytest.param("(" * 60 + ")" * 60, "50 groups", id="60-groups"),
        pytest.param("x" * 2001, "longer than 2000", id="2001-characters"),
        pytest.param(r"(a+)\1", "back-reference", id="back-reference"),
        pytest.param("(?>a+)b", "atomic group", id="atomic-group"),
        pytest.param("a++b", "possessive", id="possessive-repeat"),
        pytest.param("(a)?(?(1)b|c)", "conditional", id="conditional-group"),
        pytest.param("([a-z])" * 9 + "".join(rf"\{at}" for at in range(1, 10)), "back-reference", id="multiplied"),
    ],
)
def test_a_pattern_without_a_bound_is_refused(pattern: str, why: str) -> None:
    """What cannot be searched in bounded time is ParseError when it is read."""
    with pytest.raises(ParseError, match=why):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?:([a-z])\1)+$",
        r"^(red|blue) \1",
        r"(a|bb)c(d|[ef])\1\2$",
        r"(?i)^(r[ea]d) \1 \1",
        r"((a|b)c)\1",
        r"(x)\1|y",
    ],
)
def test_a_reference_to_few_words_is_written_out(pattern: str) -> None:
    """A back-reference to a group of a few words finds what it does in `re`."""
    texts = [
        "aabbcc",
        "aabbc",
        "red red",
        "red blue",
        "bbcebbe",
        "acdae",
        "RED rEd red",
        "rad red",
        "acac",
        "acbc",
        "xx",
        "y",
    ]

    assert [bool(re.search(pattern, text)) for text in texts] == [compile_pattern(pattern)(text) for text in texts]
