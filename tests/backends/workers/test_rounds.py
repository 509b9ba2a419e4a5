"""Rounds are counted as mlx-lm decodes: property-tested against a model of it, and proven on the real one."""

import importlib
import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.backends.workers.rounds import count_rounds, rounds_from
from gatekeeper.core.records import Rounds
from tests.backends.conftest import MODELS, canary


@given(
    seed=st.integers(0, 10**6),
    draft_tokens=st.integers(0, 9),
    max_tokens=st.integers(1, 60),
    ends_at=st.integers(1, 60),
    chance=st.floats(0, 1),
)
def test_flags_tell_the_rounds(seed: int, draft_tokens: int, max_tokens: int, ends_at: int, chance: float) -> None:
    """From the flags alone come the rounds, proposals, acceptances and positions of the decoding that made them,
    wherever the limit or the end of the answer cuts it.
    """
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


def test_missing_counters_are_noticed() -> None:
    """Rounds written without a counter are refused, not read as zero."""
    with pytest.raises(KeyError, match="accepted"):
        rounds_from({"rounds": 1, "drafted": 4})


class Counting:
    """Stands in for a draft and counts its forwards after the prefill."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.forwards = 0

    def __call__(self, tokens: Any, *args: Any, **more: Any) -> Any:
        # One token, or two after a round that accepted all; the prompt's chunks are longer.
        self.forwards += tokens.shape[1] <= 2
        return self._model(tokens, *args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@pytest.mark.nightly
@pytest.mark.mlx
def test_drafted_is_what_the_draft_computed() -> None:
    """The proposals counted from the flags are exactly the forward passes the real draft made."""
    mlx_lm = pytest.importorskip("mlx_lm")
    generation = importlib.import_module("mlx_lm.generate")
    target, tokenizer = mlx_lm.load(str(MODELS["little-target"]))[:2]
    draft = mlx_lm.load(str(MODELS["little-draft"]))[0]
    cases = itertools.product(("list", "prose"), (1, 4, 7), (1, 2, 9, 64))

    counts, expected = [], []
    for name, draft_tokens, max_tokens in cases:
        prompt = tokenizer.apply_chat_template(list(canary(name).messages), add_generation_prompt=True)
        counting = Counting(draft)
        pieces = list(
            generation.stream_generate(
                target,
                tokenizer,
                prompt,
                max_tokens=max_tokens,
                draft_model=counting,
                num_draft_tokens=draft_tokens,
            )
        )
        flags = [piece.from_draft for piece in pieces]
        counts.append(count_rounds(flags, draft_tokens=draft_tokens, max_tokens=max_tokens).drafted)
        expected.append(counting.forwards)

    assert expected == counts


def test_more_drafted_tokens_in_a_row_than_a_round_proposes_are_counted() -> None:
    """An engine that drops a round's last token is a result: its flags are counted, and nothing fails."""
    assert (2, 6, 5) == _counts(count_rounds([True] * 6 + [False], draft_tokens=3, max_tokens=9))


def _counts(rounds: Rounds) -> tuple[int, int, int]:
    return rounds.rounds, rounds.drafted, rounds.accepted
