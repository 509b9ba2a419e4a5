"""What a server tells of the passes that verified its tokens."""

import pytest

from gatekeeper.analysis.metrics.words.scored_answers import parted
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
