"""What a server tells of the passes that verified its tokens."""

import pytest

from gatekeeper.analysis.metrics.words.scored_answers import (
    ANSWERS,
    AT_ONCE,
    FEWEST,
    READING,
    later_leads,
    leads_of,
    left_to_continue,
    parted,
    plain_lead,
)
from gatekeeper.core.records import Likely, Scored, token_number


@pytest.mark.parametrize(
    ("name", "number"),
    [("#12", 12), ("#", None), ("##", None), ("#foo", None), ("12", None), ("#٣", None), ("#²", None)],
)
def test_a_text_that_looks_like_a_number_is_a_text(name: str, number: int | None) -> None:
    """
    A token may be a heading's mark: its name is no number, whatever a server sends.
    """
    assert number == token_number(name)


@pytest.mark.parametrize(("name", "number"), [("#12", 12), ("###", -1)])
def test_a_token_that_is_not_the_likeliest_is_seen(name: str, number: int) -> None:
    """
    The written token is less likely in its own pass than another one: its place, that token and the lead.
    """
    likeliest = ((Likely(name, -0.1), Likely("a", -2.5)), (Likely("b", -0.2),), ())
    scored = Scored("w", "c", "candidate", tokens=("a", "b", "c"), logprobs=(-2.5, -0.2, 0.0), likeliest=likeliest)

    (place,) = parted(scored)

    assert (0, number) == place[:2]
    assert place.gap == pytest.approx(2.4)


def answer(arm: str, tokens: str, after: int = 0, lead: float = 2.0) -> Scored:
    likeliest = tuple((Likely(token, -0.1), Likely("?", -0.1 - lead)) for token in tokens)
    return Scored("w", "c", arm, tokens=tuple(tokens), logprobs=(-0.1,) * len(tokens), likeliest=likeliest, after=after)


def test_plain_decoding_goes_on_from_each_token_that_the_draft_wrote_otherwise() -> None:
    """
    After each place where both arms part, the rest of the drafted answer is left to compare, until it is compared.
    """
    drafting, plain = answer("candidate", "abXdeYg"), answer("plain", "abcdefg")
    second, third = answer("plain", "defg", after=3), answer("plain", "g", after=6)

    assert (drafting, 3, 4) == left_to_continue([drafting, plain])
    assert (drafting, 6, 1) == left_to_continue([drafting, plain, second])
    assert left_to_continue([drafting, plain, second, third]) is None


@pytest.mark.parametrize(
    "plain", [None, Scored("w", "c", "plain", fault="died"), answer("plain", "abX"), answer("plain", "abXdeZ")]
)
def test_nothing_is_left_where_nothing_can_be_compared(plain: Scored | None) -> None:
    """
    Without a plain answer, after a fault, after plain decoding's own end and at the last token nothing goes on.
    """
    assert left_to_continue([answer("candidate", "abXdeY"), *([plain] if plain else [])]) is None


def test_a_beginning_that_cannot_be_read_is_made_longer() -> None:
    """
    A token more each time, and not for ever.
    """
    drafting, plain = answer("candidate", "abX" + "d" * 40), answer("plain", "abcd")
    unread = [Scored("w", "c", "plain", after=after, fault="unread") for after in range(3, 16)]

    assert (drafting, 5, 10) == left_to_continue([drafting, plain, *unread[:2]])
    assert left_to_continue([drafting, plain, *unread]) is None


def continue_to_the_end(drafting: Scored, plain: Scored) -> list[Scored]:
    """Return what plain decoding writes after beginnings of an answer, where it would write the words of *plain*."""
    records: list[Scored] = []
    while (remaining := left_to_continue([drafting, plain, *records])) is not None:
        text = "".join(plain.tokens[remaining.after : remaining.after + remaining.tokens])
        records.append(answer("plain", text, after=remaining.after))
    return records


def test_a_long_answer_is_continued_piece_by_piece() -> None:
    """
    Where nothing differs for a whole piece, the next one begins behind it and is longer, up to a limit.
    """
    drafting, plain = answer("candidate", "X" + "d" * 100), answer("plain", "a" + "d" * 100)

    pieces = continue_to_the_end(drafting, plain)

    assert [1, 5, 15, 45, 77] == [piece.after for piece in pieces]
    assert [FEWEST, 10, 30, AT_ONCE, 24] == [len(piece.tokens) for piece in pieces]


def test_a_piece_where_plain_decoding_ends_is_the_last_one() -> None:
    """
    Fewer tokens than were to be written: there is nothing more to compare.
    """
    drafting, plain = answer("candidate", "X" + "d" * 100), answer("plain", "a" + "d" * 8)

    assert [1, 5] == [piece.after for piece in continue_to_the_end(drafting, plain)]


@pytest.mark.parametrize(("every", "compared"), [(8, 400), (6, 340), (1, 80)])
def test_tokens_that_often_differ_are_read_to_the_end_and_take_no_longer_than_some_answers(
    every: int, compared: int
) -> None:
    """
    Pieces are as long as what lies between differences, so that what follows one is short.
    """
    words = "abcdefghijklmnopqrst" * 20
    drafting = answer("candidate", "".join("X" if place % every == 0 else word for place, word in enumerate(words)))

    pieces = continue_to_the_end(drafting, answer("plain", words))

    assert compared <= pieces[-1].after + every
    assert sum(READING + len(piece.tokens) for piece in pieces) < ANSWERS * len(words) + READING + AT_ONCE


def test_leads_after_a_beginning_are_those_of_the_drafted_answers_own_places() -> None:
    """
    The place and the lead of each later parting, and the leads of all places that were compared.
    """
    drafting, second = answer("candidate", "abXdeYg"), answer("plain", "defg", after=3, lead=8.0)
    plain = answer("plain", "abcdefg")

    first, place = plain_lead(plain, drafting)
    ((later, later_place),) = later_leads([second], drafting)

    assert ("at token 3", "at token 6") == (place, later_place)
    assert [2.0, 8.0] == pytest.approx([first, later])
    assert [2.0] * 3 + [8.0] * 3 == pytest.approx(leads_of((drafting, plain), (second,))["c"])
