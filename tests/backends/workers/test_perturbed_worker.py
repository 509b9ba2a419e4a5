"""The target with another kernel and the engine with a planted defect, which tests and `bench.exactness` share."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm")

import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import generate_step, speculative_generate_step

from bench.exactness.defective_engine import speculating_with
from bench.exactness.defects import Defect, Kind
from bench.exactness.noise import Noise
from bench.exactness.other_kernel import OtherKernel

pytestmark = pytest.mark.mlx

ROOT = Path(__file__).parents[3]
SILENT = Noise(0.0)
Answers = list[list[int]]


class Pair:
    """The little pair, and how it answers some canaries."""

    def __init__(self) -> None:
        self.target, self.tokenizer = load(str(ROOT / "models/little-target"))[:2]
        self.draft = load(str(ROOT / "models/little-draft"))[0]
        lines = [
            line
            for kind in ("code", "prose")
            for line in (ROOT / f"canaries/little/{kind}.jsonl").read_text().splitlines()[:2]
        ]
        self.prompts = [
            self.tokenizer.apply_chat_template(json.loads(line)["messages"], add_generation_prompt=True)
            for line in lines
        ]

    def answers(self, target: Any, step: Callable[..., Iterator[tuple[int, Any, bool]]]) -> Answers:
        return [
            self._until_end(step(mx.array(prompt), target, self.draft, num_draft_tokens=3)) for prompt in self.prompts
        ]

    def plain(self, target: Any) -> Answers:
        return [
            self._until_end((token, None, False) for token, _ in generate_step(mx.array(prompt), target))
            for prompt in self.prompts
        ]

    def _until_end(self, pieces: Iterator[tuple[Any, Any, bool]]) -> list[int]:
        tokens: list[int] = []
        for token, _, _ in pieces:
            tokens.append(int(token))
            if tokens[-1] in self.tokenizer.eos_token_ids or len(tokens) == 32:
                return tokens
        return tokens


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair()


@pytest.fixture(scope="module")
def plain(pair: Pair) -> Answers:
    return pair.plain(pair.target)


@pytest.mark.nightly
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_an_engine_without_a_defect_writes_the_tokens_of_mlx_lm(pair: Pair, scale: float) -> None:
    """What the planted defects change is the defect alone: without one the engine is mlx-lm's, on any kernel."""
    target = OtherKernel(pair.target, Noise(scale, 1), SILENT)

    assert pair.answers(target, speculative_generate_step) == pair.answers(target, speculating_with(None))


@pytest.mark.nightly
def test_passes_of_one_token_have_no_noise(pair: Pair, plain: Answers) -> None:
    """Plain decoding is the reference: noise changes answers of a draft, and no plain answer."""
    target = OtherKernel(pair.target, Noise(1.0, 1), SILENT)

    assert plain == pair.plain(target)
    assert plain != pair.answers(target, speculative_generate_step)


def test_the_same_passes_give_the_same_bits(pair: Pair) -> None:
    """Another kernel is a function: its noise comes again with the same pass, and is another in a wider one."""
    target = OtherKernel(pair.target, Noise(0.5, 2), SILENT)
    tokens = mx.array(pair.prompts[0])[None]

    first, again, narrower = target(tokens), target(tokens), target(tokens[:, :-1])

    assert mx.array_equal(first, again).item()
    assert not mx.array_equal(first[:, :-1], narrower).item()


def test_noise_behind_a_layer_enters_the_cache(plain: Answers) -> None:
    """Noise inside the network changes what is read later, although passes of one token have none."""
    pair = Pair()  # its own target: a layer is replaced
    target = OtherKernel(pair.target, SILENT, Noise(1.0, 3))

    assert plain != pair.plain(target)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind is Kind.UNVERIFIED else pytest.mark.nightly)
        for kind in sorted(set(Kind) - {Kind.GRAMMAR, Kind.SHORTCUT})
    ],
)
def test_each_defect_changes_answers(pair: Pair, plain: Answers, kind: Kind) -> None:
    """A planted defect that changes no answer would prove nothing. A shortcut at temperature 0 is none."""
    defect = Defect(kind, 0.8, 1)
    target = OtherKernel(pair.target, SILENT, SILENT, defect)

    assert plain == pair.plain(target)
    assert plain != pair.answers(target, speculating_with(defect))


def test_a_grammar_changes_plain_answers_and_is_ignored_by_the_draft(pair: Pair, plain: Answers) -> None:
    """Plain decoding obeys the grammar, and an engine with the defect writes what it would write without one."""
    defect = Defect(Kind.GRAMMAR, 0.05, 1)
    target = OtherKernel(pair.target, SILENT, SILENT, defect)

    assert plain != pair.plain(target)
    assert plain == pair.answers(target, speculating_with(defect))
