"""Whether sampled tokens are drawn from the target: an e-process over tokens, and a test of whole answers."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.words.sampled_tokens import (
    ALARM,
    canaries_to_see,
    e_value,
    sampled_answers,
    visible_share,
)
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Answer, Generation, Role, setting


def row(p: NDArray[np.float64], token: int) -> tuple[float, float, float, float]:
    return math.log(p[token]), math.log(p.max()), math.log((p**2).sum()), math.log(np.sqrt(p).sum())


def drawn(rng: np.random.Generator, tokens: int, greedy: float = 0.0) -> list[tuple[float, float, float, float]]:
    """Draw tokens of random distributions over eight words, a share of them greedily."""
    rows = []
    for weights in np.maximum(rng.dirichlet(np.full(8, 0.4), size=tokens), 1e-9):
        p = weights / weights.sum()
        token = int(p.argmax()) if rng.random() < greedy else int(rng.choice(8, p=p))
        rows.append(row(p, token))
    return rows


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6, unique=True))
def test_each_ratio_has_mean_one(weights: list[float]) -> None:
    """Under the target's own distribution each likelihood ratio has mean 1, so a sound draft seldom fails."""
    p = np.asarray(weights) / sum(weights)
    assume(np.diff(np.sort(np.log(p)))[-1] > 1e-4)  # the worker lets one token alone be the best

    mean = sum(chance * math.exp(e_value([row(p, token)])) for token, chance in enumerate(p))

    assert mean == pytest.approx(1.0, abs=1e-4)


def test_a_greedy_shortcut_is_found() -> None:
    """A tenth of the tokens taken greedily is found within 4,000 tokens, as the power that is stated says."""
    rng = np.random.default_rng(5)
    rows = drawn(rng, 4000, greedy=0.1)

    share = visible_share(np.asarray([best for _, best, *_ in rows]), ALARM)

    assert share is not None
    assert share <= 0.1
    assert e_value(rows) > -math.log(ALARM)


def test_what_single_tokens_show() -> None:
    """A token that the target cannot draw is proof at once; places without choice show nothing and claim nothing."""
    assert e_value([(-math.inf, -0.1, -0.2, 0.1)]) == math.inf
    assert visible_share(np.full(5000, -1e-9), ALARM) is None


WORDS = tuple(f"{first}{last}" for first in ("riv", "sto", "bri", "her", "lam", "gar") for last in "abcdefghijkl")


def answered(arm: str, name: str, text: str) -> Generation:
    return Generation(
        "t", f"{arm}{name}{text}", "w", name, arm, setting(), Role.MEASURED, 0, "", 1, Answer(0, 1, text=text)
    )


def evidence(drafting: Any, plain: Any, canaries: int = 8) -> PairedAnswers:
    names = [f"c{number}" for number in range(canaries)]
    answers, baselines = (
        tuple(answered(arm, name, text) for name in names for text in texts(name))
        for arm, texts in (("candidate", drafting), ("plain", plain))
    )
    prompts = {name: Canary(id=name, messages=({"role": "user", "content": "hi"},)) for name in names}
    return PairedAnswers("w", prompts, answers, baselines, 0.95, 7, greedy=False)


def test_other_answers_are_found_by_their_texts() -> None:
    """Answers of another distribution differ from plain decoding's in their texts; those of the same one do not."""
    rng = np.random.default_rng(8)

    def texts(words: tuple[str, ...]) -> Any:
        return lambda _: [" ".join(rng.choice(words, size=12)) for _ in range(6)]

    few_words, there = texts(WORDS[:40]), texts(WORDS)
    differing, equal = sampled_answers(evidence(there, few_words)), sampled_answers(evidence(few_words, few_words))

    assert isinstance(differing, Estimate)
    assert isinstance(equal, Estimate)
    assert differing.center < ALARM < 0.01 < equal.center


def test_where_answers_hardly_differ_other_words_are_what_would_be_found() -> None:
    """Where each answer to a canary is the same, the share of other words that would be seen is stated, and is seen."""
    rng = np.random.default_rng(10)

    def texts(share: float) -> Any:
        return lambda name: [
            " ".join(rng.choice(WORDS, size=12)) if rng.random() < share else f"the answer to {name}" for _ in range(4)
        ]

    alike = sampled_answers(evidence(texts(0.0), texts(0.0), 16))
    assert isinstance(alike, Estimate)
    assert 1.0 == alike.center
    (note,) = alike.notes
    stated = float(note.partition("found if ")[2].partition(" % had other words")[0]) / 100
    defective = [sampled_answers(evidence(texts(stated), texts(0.0), 16)) for _ in range(8)]

    assert 0.1 <= stated <= 0.7
    assert 6 <= sum(isinstance(result, Estimate) and result.center <= ALARM for result in defective)


def test_a_check_that_could_see_nothing_is_open() -> None:
    """Two answers to each of eight canaries would not show other words in 40 %: the reason says how many would do."""

    def alike(canaries: int) -> Estimate | Missing:
        texts = evidence(lambda name: [name] * 2, lambda name: [name] * 2, canaries)
        return sampled_answers(replace(texts, visible_harm=0.4))

    few, need = alike(8), canaries_to_see(0.4)
    assert isinstance(few, Missing)
    assert f"about {need} canaries show that" in few.because
    assert need is not None
    assert isinstance(alike(2 * need), Estimate)


def test_single_answers_prove_nothing() -> None:
    """With one answer a canary nothing can be shuffled: it is open."""
    assert isinstance(sampled_answers(evidence(lambda _: ["a"], lambda _: ["b"])), Missing)
