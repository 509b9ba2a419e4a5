"""Whether plain decoding repeats its own words, canary by canary."""

from dataclasses import replace
from typing import Any

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.core.records import Generation
from tests.builders.golden_words import says
from tests.builders.slo import FAST, answer, because, canary, evidence, generation, known

METRIC = "plain_repeat_agreement"


def plain(name: str, number: int, text: str = "ok", **more: Any) -> Generation:
    return generation(answer(text=text, **more), name, arm="plain", key=f"{name}.{number}")


def test_one_canary_of_four_that_differs_is_a_quarter() -> None:
    """All answers to a canary must be equal; the candidate's are not among them."""
    answers = [plain(f"c-{at}", number) for at in range(4) for number in range(3)]
    answers[1] = plain("c-0", 1, "other")
    candidate = [generation(answer(text="else"), f"c-{at}") for at in range(4)]

    share = known(estimate(METRIC, evidence(candidate, answers)))

    assert (0.75, 0.75, 0.75, 4) == (share.center, share.lo, share.hi, share.n)
    # After the ladder has ended at plain decoding, its answers are those of the setting that is judged.
    assert 0.75 == known(estimate(METRIC, evidence(answers))).center
    assert "temperature 0" in because(estimate(METRIC, evidence(answers, greedy=False)))


def test_two_successful_answers_that_plain_decoding_wrote_are_needed() -> None:
    """One answer, a failed one, and one that a forced pass stands in for prove nothing about a repeat."""
    twice = [plain("c-0", number) for number in range(2)]
    failed = [plain("c-1", 0), plain("c-1", 1, fault="died")]
    stand_in = replace(generation(answer(text="ok"), "c-2", setting=FAST), arm="plain")
    everyone = [canary(f"c-{at}") for at in range(3)]

    missing = estimate(
        METRIC, evidence([generation(answer(), "c-0")], [*twice, *failed, plain("c-2", 0), stand_in], everyone)
    )

    says("estimates", "two successful answers that plain decoding wrote are needed", because(missing))
