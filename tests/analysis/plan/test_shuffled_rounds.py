"""Shuffled rounds: each item once a round, and no round like the last."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.plan.planned_request import in_shuffled_rounds


@given(st.integers(1, 30), st.integers(0, 20), st.text(max_size=5))
def test_each_item_comes_once_a_round(count: int, rounds: int, seed: str) -> None:
    """Whatever the seed, whole rounds have every item alike often."""
    counter = Counter(in_shuffled_rounds(range(count), number, seed) for number in range(count * rounds))

    assert dict.fromkeys(range(count), rounds) == {number: counter[number] for number in range(count)}


def test_rounds_are_shuffled_anew_and_always_alike() -> None:
    """No round has the order of the file or of the round before, and the same seed gives the same orders."""
    first, second, again = (
        [in_shuffled_rounds(range(24), number, seed) for number in range(at, at + 24)]
        for at, seed in ((0, "json"), (24, "json"), (0, "json"))
    )

    assert first == again
    assert list(range(24)) not in (first, second)
    assert first != second
