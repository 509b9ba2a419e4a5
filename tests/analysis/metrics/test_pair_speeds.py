"""Ratios of speeds: how much sooner the same work is done, and how that is spread over prompts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.analysis.metrics.prompt_speeds import EACH, prompt_speeds
from gatekeeper.core.document import document_of
from gatekeeper.core.metrics import SPEED_RATIOS
from gatekeeper.core.records import Answer
from tests.builders.slo import Twins, evidence, known, steady, twins

HALF_NONE = 3 / (1 / 2.2 + 2 / 0.85)
"""A third of the prompts at 2.2x and the others at 0.85x, by the time of all."""


def repeated(count: int, repeats: int, candidate: Callable[[int], Answer], plain: Callable[[int], Answer]) -> Twins:
    """Return so many pairs of each canary."""
    arms: Twins = ([], [])
    for turn in range(repeats):
        for arm, records in zip(arms, twins(count, candidate, plain), strict=True):
            arm += [replace(record, pair=f"{turn}.{record.pair}") for record in records]
    return arms


def half_none(wobble: float = 0.0) -> PairedAnswers:
    """Twelve canaries of twelve tokens, each answered four times, now a little faster and now a little slower."""
    turns = iter(range(1000))

    def mine(at: int) -> Answer:
        gap = 0.1 / (2.2 if at < 4 else 0.85) * (1 + wobble * (-1) ** (next(turns) // 12))
        return steady(gap, 12, first_s=gap)

    return evidence(*repeated(12, 4, mine, lambda _: steady(0.1, 12, first_s=0.1)))


@pytest.mark.parametrize("metric", SPEED_RATIOS)
def test_a_ratio_is_how_much_sooner_the_same_work_is_done(metric: str) -> None:
    """A third at 2.2x and the rest at 0.85x are 1.07x by the time of all, where a mean says 1.17x."""
    assert pytest.approx(HALF_NONE, rel=1e-4) == known(estimate(metric, half_none())).center


@pytest.mark.parametrize("metric", SPEED_RATIOS)
def test_long_prompts_weigh_more(metric: str) -> None:
    """Six answers of 100 tokens at 0.8x and six of 10 tokens at 2x take longer than plain decoding."""
    length = [100] * 6 + [10] * 6
    candidate, plain = twins(
        12,
        lambda at: steady(0.1 / (0.8 if at < 6 else 2.0), length[at], first_s=0.0),
        lambda at: steady(0.1, length[at], first_s=0.0),
    )

    assert known(estimate(metric, evidence(candidate, plain))).center < 0.9


def test_prompts_that_are_proven_slower_are_named() -> None:
    """Beside the ratio of the work stand the typical speed-up and the prompts that lose."""
    speeds = prompt_speeds("throughput_ratio", half_none(wobble=0.01))

    assert speeds is not None
    assert pytest.approx(1.17, abs=0.01) == speeds.typical.center
    assert tuple(f"c-{at:03}" for at in range(4, 12)) == speeds.slower
    written: dict[str, Any] = document_of(speeds)
    assert ("c-004", 12, EACH) == (written["slower"][0], written["canaries"], written["confidence"])


def test_one_pair_a_prompt_shows_no_single_prompt() -> None:
    """Without repeats the noise of an answer is unknown, and no prompt is called slower; without pairs nothing is."""
    once = evidence(*twins(12, lambda _: steady(0.2), lambda _: steady(0.1)))

    speeds = prompt_speeds("throughput_ratio", once)

    assert speeds is not None
    assert speeds.slower is None
    assert prompt_speeds("throughput_ratio", replace(once, pairs=())) is None
