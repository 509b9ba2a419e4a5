"""The bench of what observing costs: two loops in turns over the same answers, and its interval."""

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mlx_lm")

from bench import observer_effect
from bench.observer_effect import BLOCK, Start, bare_loop, blocks_of, result_of


def pieces(tokens: int, pulled: list[str], name: str, odd_token: int | None = None) -> Iterator[Any]:
    """Yield an answer's pieces, and note who pulled each."""
    for number in range(tokens):
        pulled.append(name)
        finish = "length" if number == tokens - 1 else None
        yield SimpleNamespace(token=-1 if number == odd_token else number, finish_reason=finish)


def test_both_loops_take_turns_over_one_answer() -> None:
    """Each whole block is pulled by one loop, then by the other, from the same seed; the first token and the block with
    the end are left out.
    """
    pulled: list[str] = []
    seeds: list[int] = []
    sides = ((pieces(3 * BLOCK + 4, pulled, "bare"), bare_loop), (pieces(3 * BLOCK + 4, pulled, "ours"), bare_loop))

    blocks = blocks_of(sides, 7, seeds.append, lambda: None)

    turns = [pulled[2 + 2 * BLOCK * block :][: 2 * BLOCK] for block in range(3)]
    assert (3, [7, 7, 8, 8, 9, 9, 10, 10, 11, 11]) == (len(blocks), seeds)
    assert all(len(set(turn[:BLOCK])) == len(set(turn[BLOCK:])) == 1 and len(set(turn)) == 2 for turn in turns)


def test_different_answers_are_no_measurement() -> None:
    """A loop that gets other tokens ends the bench."""
    pulled: list[str] = []
    seeds: list[int] = []
    sides = ((pieces(30, pulled, "bare"), bare_loop), (pieces(30, pulled, "ours", odd_token=BLOCK), bare_loop))

    with pytest.raises(ValueError, match="different answers"):
        blocks_of(sides, 1, seeds.append, lambda: None)


def test_a_planted_cost_and_the_driving_are_found() -> None:
    """A loop that is 1 % slower, and driven for 1 % of the time, reads 0.99 * 0.99; one busy block does not move it."""
    blocks = [(1000, 1010)] * 20 + [(1000, 9000)]

    result = result_of("plain", [Start(blocks, driving=0.01), Start(blocks, driving=0.01)])

    assert math.isclose(1000 / 1010 * 0.99, result.ratio)
    assert (2, 42, BLOCK * 1e6) == (result.starts, result.blocks, result.bare_tokens_per_s)
    assert result.ratio < observer_effect.GOAL
