"""The little pair in numpy, as `bench.exactness` reads it: the tokens of the worker with the same noise and defect."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx_lm")

import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import generate_step

from bench.exactness.many_answers import Kernel, LittleModel, Prompts, plain_answers, speculating_answers
from bench.exactness.perturbed import OtherKernel, speculating_with
from bench.exactness.planted import Defect, Kind, Noise, hash_of

pytestmark = [pytest.mark.mlx, pytest.mark.nightly]

ROOT = Path(__file__).parents[3]
DRAFT_TOKENS, LIMIT = 3, 32


class Arms:
    """The same prompts for the real pair and for the one in numpy."""

    def __init__(self) -> None:
        self.target, self.tokenizer = load(str(ROOT / "models/little-target"))[:2]
        self.draft = load(str(ROOT / "models/little-draft"))[0]
        self.models = LittleModel(ROOT / "models/little-target"), LittleModel(ROOT / "models/little-draft")
        canaries = [
            json.loads(line)
            for kind in ("code", "prose", "math")
            for line in (ROOT / f"canaries/little/{kind}.jsonl").read_text().splitlines()[:1]
        ]
        prompts = [
            self.tokenizer.apply_chat_template(canary["messages"], add_generation_prompt=True) for canary in canaries
        ]
        self.prompts = Prompts(
            tuple(map(tuple, prompts)),
            (LIMIT,) * len(canaries),
            np.array([hash_of(prompt[:-1]) for prompt in prompts], np.uint64),
            end=next(iter(self.tokenizer.eos_token_ids)),
        )

    def decoded(self, pieces: Callable[[Any, int], Iterator[tuple[Any, bool]]]) -> list[list[tuple[int, bool]]]:
        answers = []
        for prompt, limit in zip(self.prompts.tokens, self.prompts.limits, strict=True):
            tokens: list[tuple[int, bool]] = []
            for token, drafted in pieces(mx.array(prompt), limit):
                tokens.append((int(token), drafted))
                if tokens[-1][0] == self.prompts.end:
                    break
            answers.append(tokens)
        return answers


@pytest.fixture
def arms() -> Arms:
    return Arms()


@pytest.mark.parametrize(
    ("kind", "inner"), [(None, False), *((kind, kind in {Kind.STALE, Kind.GRAMMAR}) for kind in sorted(Kind))]
)
def test_numpy_writes_the_tokens_of_the_worker(arms: Arms, kind: Kind | None, inner: bool) -> None:
    """The table's short cut is the worker's arithmetic: the same tokens, drafted or not, with noise and any defect."""
    defect = None if kind is None else Defect(kind, 0.2, 2)
    noise = (Noise(0.0), Noise(0.2, 1)) if inner else (Noise(0.2, 1), Noise(0.0))
    target, step = OtherKernel(arms.target, *noise, defect), speculating_with(defect)

    plain = arms.decoded(
        lambda prompt, limit: ((token, False) for token, _ in generate_step(prompt, target, max_tokens=limit))
    )
    drafted = arms.decoded(
        lambda prompt, limit: (
            (token, flag)
            for token, _, flag in step(prompt, target, arms.draft, num_draft_tokens=DRAFT_TOKENS, max_tokens=limit)
        )
    )

    kernel = Kernel(*noise, defect)
    answers = plain_answers(arms.models[0], arms.prompts, kernel)
    speculating = speculating_answers(*arms.models, arms.prompts, kernel, DRAFT_TOKENS)
    assert [[token for token, _ in answer] for answer in plain] == [answer.tokens for answer in answers]
    assert drafted == [list(zip(answer.tokens, answer.drafted, strict=True)) for answer in speculating]
