"""Rounds are counted as mlx-lm decodes: property-tested against a model of it, and proven on the real one."""

import random

from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.backends.workers.rounds import count_rounds
from gatekeeper.core.records import Rounds


@given(
    seed=st.integers(0, 10**6),
    draft_tokens=st.integers(0, 9),
    max_tokens=st.integers(1, 60),
    ends_at=st.integers(1, 60),
    chance=st.floats(0, 1),
)
def test_flags_tell_the_rounds(seed: int, draft_tokens: int, max_tokens: int, ends_at: int, chance: float) -> None:
    """From the flags alone come rounds, proposals, acceptances and positions, wherever an answer is cut."""
    draw = random.Random(seed)
    flags: list[bool] = []
    rounds = drafted = accepted = 0
    tried, accepted_at = [0] * draft_tokens, [0] * draft_tokens
    while len(flags) < min(max_tokens, ends_at):
        width = min(draft_tokens, max_tokens - len(flags))
        rounds, drafted = rounds + 1, drafted + width
        for position in range(width + 1):
            if len(flags) == min(max_tokens, ends_at):
                break
            agrees = position < width and draw.random() < chance
            if position < width:
                tried[position] += 1
            accepted_at[position : position + 1] = (
                [accepted_at[position] + 1] if agrees else accepted_at[position : position + 1]
            )
            accepted += agrees
            flags.append(agrees)
            if not agrees:
                break

    counted = count_rounds(flags, draft_tokens=draft_tokens, max_tokens=max_tokens)

    assert Rounds(rounds, drafted, accepted, tuple(tried), tuple(accepted_at)) == counted


def test_more_drafted_tokens_in_a_row_than_a_round_proposes_are_counted() -> None:
    """An engine that drops a round's last token is a result: its flags are counted, and nothing fails."""
    assert (2, 6, 5) == _counts(count_rounds([True] * 6 + [False], draft_tokens=3, max_tokens=9))


def _counts(rounds: Rounds) -> tuple[int, int, int]:
    return rounds.rounds, rounds.drafted, rounds.accepted
