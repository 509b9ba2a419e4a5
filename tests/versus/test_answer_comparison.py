"""What the answers of two systems show beside their speed: words, prompts, caches."""

from typing import Any

import pytest

from gatekeeper.core.document import document_of
from gatekeeper.core.records import Claims, Generation
from gatekeeper.versus.answer_comparison import cache_doubt, compare_words, unequal_prompts
from tests.builders.slo import answer, generation


def written(*texts: str, name: str = "c", **more: Any) -> list[Generation]:
    """Return these answers to one canary."""
    return [generation(answer(text=text, sent_s=float(turn), **more), name) for turn, text in enumerate(texts)]


def calling(arguments: str) -> Generation:
    call = {"id": arguments, "function": {"name": "book", "arguments": arguments}}
    return generation(answer(text="", tool_calls=(call,)), "c")


def test_the_earliest_first_difference_is_shown() -> None:
    """Of three canaries two differ: each with what both begin with, and the words of each side from there on."""
    a = [*written("the sun", name="x"), *written("a b c", name="y"), *written("same", name="z")]
    b = [*written("the moon", name="x"), *written("a B c", name="y"), *written("same", name="z")]

    words = compare_words(a, b)

    assert (3, ()) == (words.canaries, words.unsteady)
    assert [("y", 2, "b c", "B c"), ("x", 4, "sun", "moon")] == [
        (place.canary, place.characters, place.a, place.b) for place in words.differences
    ]
    assert 1 == document_of(words)["same"]


def test_a_side_that_does_not_repeat_its_answer_is_named() -> None:
    """B answers in other words when a canary comes again: it is named, and the canary is not counted as the same."""
    words = compare_words(written("yes", "yes"), written("yes", "yes!"))

    assert ("B",) == words.unsteady
    assert ["c"] == [place.canary for place in words.differences]


def test_failed_answers_have_no_words() -> None:
    """A canary that one side never answered is in neither count."""
    words = compare_words(written("yes"), written("y", fault="timeout: 5 s"))

    assert (0, ()) == (words.canaries, words.differences)


def test_spaces_in_a_call_are_not_words() -> None:
    """Servers write the JSON of a tool call with other spaces and in another order; another value is another word."""
    a = [calling('{"room": "x", "day": "monday"}')]

    assert not compare_words(a, [calling('{"day":"monday","room":"x"}')]).differences
    assert compare_words(a, [calling('{"day":"friday","room":"x"}')]).differences


def test_prompts_of_another_length_are_named() -> None:
    """Another chat template makes the prompts longer; where the lengths are alike or unknown, nothing is said."""
    a, b, unknown = (written("ok", prompt_tokens=tokens) for tokens in (20, 24, None))

    assert "20 and 24 tokens" in (unequal_prompts(a, b) or "")
    assert unequal_prompts(a, a) is None
    assert unequal_prompts(a, unknown) is None


@pytest.mark.parametrize(
    ("cached", "uncached", "is_doubtful"),
    [(0, False, False), (None, True, False), (None, False, True), (12, False, True), (12, True, True)],
)
def test_a_prompt_that_may_come_from_a_cache_is_no_first_token(
    cached: int | None, *, uncached: bool, is_doubtful: bool
) -> None:
    """A cache that is off, or reported as unused in each answer, leaves no doubt; any other does."""
    answers = written("ok", claims=Claims(cached_tokens=cached))

    assert is_doubtful == (cache_doubt("B", answers, uncached=uncached) is not None)
