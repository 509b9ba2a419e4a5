"""The effect of order within pairs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gatekeeper.analysis.metrics.order_effect import order_bias, order_effects
from gatekeeper.analysis.metrics.paired_answers import PairedAnswers
from gatekeeper.core.records import Generation
from tests.builders.slo import evidence, generation, steady

TOKENS = 20


def paired(
    gains: tuple[float, float], *, noise: float = 0.02, pairs: int = 72, canaries: int = 24, seed: int = 1
) -> PairedAnswers:
    """Pairs in random order; *gains* are those of the candidate and of plain decoding where they come second."""
    random = np.random.default_rng(seed)
    heights = random.normal(0, 0.1, canaries)
    answers, plain = list[Generation](), list[Generation]()
    for number in range(pairs):
        drafting_second = bool(random.random() < 0.5)
        for arm, gain, arms in (("candidate", gains[0], answers), ("plain", gains[1], plain)):
            is_second = drafting_second == (arm == "candidate")
            log = heights[number % canaries] + gain * is_second + random.normal(0, noise)
            step = (0.02 if arm == "candidate" else 0.03) * math.exp(-log)
            answer = steady(step, TOKENS, sent_s=10.0 * number + 5.0 * is_second)
            arms.append(generation(answer, f"c{number % canaries}", arm=arm, pair=str(number)))
    return evidence(answers, plain)


def test_a_gain_of_one_arm_after_the_other_is_a_finding() -> None:
    """Speculative decoding that is 6 % faster right after plain decoding's answer reads 3 % better than it is; where
    the arms ran apart there is no order within a pair.
    """
    biased = paired((0.06, 0.0))
    (finding,) = order_effects(biased, "work, soak-1")
    bias = order_bias(biased)

    assert "order_effect" == finding.kind
    assert bias is not None
    assert bias.lo < 0.03 < bias.hi
    assert () == order_effects(replace(biased, interleaved=False), "work, soak-1")


@pytest.mark.parametrize("gains", [(0.0, 0.0), (0.04, 0.04), (0.02, 0.0)])
def test_what_leaves_the_ratio_alone_is_no_finding(gains: tuple[float, float]) -> None:
    """No effect, one that both arms have alike, and one that moves the ratio by less than 2 %."""
    assert () == order_effects(paired(gains), "work, soak-1")


def test_too_few_repeats_show_no_effect() -> None:
    """Canaries that were answered once each say nothing about the order."""
    assert order_bias(paired((0.2, 0.0), pairs=24)) is None


@pytest.mark.whole
def test_noise_is_rarely_taken_for_an_effect() -> None:
    """Of 75 soaks without any effect at most one has the finding."""
    soaks = (paired((0.0, 0.0), noise=0.1, pairs=50, seed=seed) for seed in range(75))

    assert sum(bool(order_effects(soak, "work, soak-1")) for soak in soaks) <= 1
