"""Which passes an answer had, by what was drafted and chosen in each."""

from dataclasses import replace

import pytest

from gatekeeper.analysis.metrics.words.replayed_rounds import ImpossibleRoundsError, round_passes
from gatekeeper.core.records import Answer, Rounds
from gatekeeper.core.records.arrivals import Arrival

TOKENS = [(5, True), (6, True), (7, False), (8, False), (9, True)]
"""Of three rounds of two drafted tokens: both kept, none kept, and an end at the first one."""
ROUNDS = Rounds(3, 6, 3, proposals="5 6;1 2;9 3", chosen="5 6 7;8 4 4;9 3 3")


def answer(rounds: Rounds = ROUNDS, tokens: list[tuple[int, bool]] | None = None) -> Answer:
    arrivals = tuple(Arrival(at, 1, drafted, token) for at, (token, drafted) in enumerate(tokens or TOKENS, start=1))
    return Answer(0, 99, arrivals=arrivals, rounds=rounds)


def test_passes_follow_from_what_was_drafted() -> None:
    """Each pass emits what was kept and one token of the target's, and reads the rejected tokens behind it."""
    assert ((3,), (1, 1, 2), (1, 9, 3)) == round_passes(answer())


@pytest.mark.parametrize(
    "rounds",
    [
        replace(ROUNDS, proposals="5 1;1 2;9 3"),
        replace(ROUNDS, proposals="5 6;1 2"),
        replace(ROUNDS, chosen="5 6 7;4 4 4;9 3 3"),
        replace(ROUNDS, chosen="5 6 7;8 4 4"),
    ],
    ids=["a kept token was not drafted", "a round is missing", "another token was chosen", "a pass is missing"],
)
def test_tokens_that_no_round_emits_are_impossible(rounds: Rounds) -> None:
    """An answer that its rounds cannot have given shows a wrong engine, whatever its words are."""
    with pytest.raises(ImpossibleRoundsError):
        round_passes(answer(rounds))


def test_rounds_that_were_not_kept_show_nothing() -> None:
    """Without proposals there is nothing to read again, and nothing wrong."""
    assert round_passes(answer(replace(ROUNDS, proposals=""))) is None
