"""What a server tells of the passes that verified its tokens."""

from dataclasses import replace

import pytest

from gatekeeper.analysis.metrics.words.scored_answers import (
    AT_ONCE,
    FEWEST,
    WHOLE,
    WINDOW,
    find_partings,
    later_leads,
    leads_of,
    left_to_continue,
    plain_lead,
    read_whole,
    windows,
)
from gatekeeper.core.records import Likely, Scored, token_number


@pytest.mark.parametrize(
    ("name", "number"),
    [("#12", 12), ("#", None), ("##", None), ("#foo", None), ("12", None), ("#٣", None), ("#²", None)],
)
def test_a_text_that_looks_like_a_number_is_a_text(name: str, number: int | None) -> None:
    """A token may be a heading's mark: its name is no number, whatever a server sends."""
    assert number == token_number(name)


@pytest.mark.parametrize(("name", "number"), [("#12", 12), ("###", -1)])
def test_a_token_that_is_not_the_likeliest_is_seen(name: str, number: int) -> None:
    """The written token is less likely in its own pass than another one: its place, that token and the lead."""
    likeliest = ((Likely(name, -0.1), Likely("a", -2.5)), (Likely("b", -0.2),), ())
    scored = Scored("w", "c", "candidate", tokens=("a", "b", "c"), logprobs=(-2.5, -0.2, 0.0), likeliest=likeliest)

    (place,) = find_partings(scored)

    assert (0, number) == place[:2]
    assert place.gap == pytest.approx(2.4)


def answer(arm: str, tokens: str, after: int = 0, lead: float = 2.0) -> Scored:
    likeliest = tuple((Likely(token, -0.1), Likely("?", -0.1 - lead)) for token in tokens)
    return Scored("w", "c", arm, tokens=tuple(tokens), logprobs=(-0.1,) * len(tokens), likeliest=likeliest, after=after)


def test_plain_decoding_goes_on_from_each_token_that_the_draft_wrote_otherwise() -> None:
    """After each parting the rest of the drafted answer is left to compare, until it is."""
    drafting, plain = answer("candidate", "abXdeYg"), answer("plain", "abcdefg")
    second, third = answer("plain", "defg", after=3), answer("plain", "g", after=6)

    assert (drafting, 3, 4) == left_to_continue([drafting, plain])
    assert (drafting, 6, 1) == left_to_continue([drafting, plain, second])
    assert left_to_continue([drafting, plain, second, third]) is None


@pytest.mark.parametrize(
    "plain", [None, Scored("w", "c", "plain", fault="died"), answer("plain", "abX"), answer("plain", "abXdeZ")]
)
def test_nothing_is_left_where_nothing_can_be_compared(plain: Scored | None) -> None:
    """Without a plain answer, after a fault, after plain decoding's own end and at the last token nothing goes on."""
    assert left_to_continue([answer("candidate", "abXdeY"), *([plain] if plain else [])]) is None


def continue_to_the_end(drafting: Scored, plain: Scored) -> list[Scored]:
    """Return what plain decoding writes after beginnings of an answer, where it would write the words of *plain*."""
    records: list[Scored] = []
    while (remaining := left_to_continue([drafting, plain, *records])) is not None:
        text = "".join(plain.tokens[remaining.after : remaining.after + remaining.tokens])
        records.append(answer("plain", text, after=remaining.after))
    return records


def test_a_long_answer_is_continued_piece_by_piece() -> None:
    """Where nothing differs for a whole piece, the next one begins behind it and is longer, up to a limit."""
    drafting, plain = answer("candidate", "X" + "d" * 100), answer("plain", "a" + "d" * 100)

    pieces = continue_to_the_end(drafting, plain)

    assert [1, 5, 15, 45, 77] == [piece.after for piece in pieces]
    assert [FEWEST, 10, 30, AT_ONCE, 24] == [len(piece.tokens) for piece in pieces]


def test_leads_after_a_beginning_are_those_of_the_drafted_answers_own_places() -> None:
    """The place and the lead of each later parting, and the leads of all places that were compared."""
    drafting, second = answer("candidate", "abXdeYg"), answer("plain", "defg", after=3, lead=8.0)
    plain = answer("plain", "abcdefg")

    first, place = plain_lead(plain, drafting)
    ((later, later_place),) = later_leads([second], drafting)

    assert ("at token 3", "at token 6") == (place, later_place)
    assert [2.0, 8.0] == pytest.approx([first, later])
    assert [2.0] * 3 + [8.0] * 3 == pytest.approx(leads_of((drafting, plain), (second,))["c"])


def told(arm: str, tokens: str, after: int = 0, lead: float = 2.0, canary: str = "c") -> Scored:
    return replace(answer(arm, tokens, after, lead), canary=canary)


def test_two_pieces_of_a_drafted_answer_are_read_first() -> None:
    """In its middle, and behind three quarters; the first alone of a shorter answer; none where no pass is reported."""
    silent = replace(answer("candidate", "d" * 100), likeliest=((),) * 100)

    assert [50, 75] == [piece.after for piece in windows(answer("candidate", "d" * 100))]
    assert [WINDOW] == [piece.after for piece in windows(answer("candidate", "d" * 2 * WINDOW))]
    assert () == windows(answer("candidate", "d" * (2 * WINDOW - 1))) == windows(silent)


def test_answers_whose_leads_moved_most_are_read_whole() -> None:
    """So many for each workload, those without a piece, and all where plain decoding prefers another token."""
    drafted = [told("candidate", "d" * 20, canary=f"{number:02}") for number in range(WHOLE + 4)]
    pieces = [
        told("plain", "d" * WINDOW, after=10, lead=2 + int(drafting.canary) / 9, canary=drafting.canary)
        for drafting in drafted
    ]
    records = {("w", drafting.canary): [drafting, piece] for drafting, piece in zip(drafted, pieces, strict=True)}
    short = {("w", "short"): [told("candidate", "d" * 9, canary="short")]}
    other_canary = told("plain", "y" * WINDOW, after=10, lead=9.0, canary="00")

    assert [f"{number:02}" for number in range(4, WHOLE + 4)] == [name for _, name in read_whole(records, {"w": 1})]
    assert WHOLE + 2 == len(read_whole(records, {"w": WHOLE + 2}))
    assert ("w", "short") == read_whole(records | short, {"w": 1})[-1]
    assert len(records) == len(read_whole(records | {("w", "00"): [drafted[0], other_canary]}, {"w": 1}))
