"""The windows of a soak."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.core.records import Answer, Generation
from gatekeeper.core.slo import Soak
from gatekeeper.core.verdict import Missing
from tests.builders.slo import answer, because, counted, evidence, generation, known


def windowed(rates: Sequence[tuple[int, int] | None], **more: Any) -> list[Generation]:
    """Return one answer in the middle of each 120 s window with (accepted, drafted), or none; the first starts at 0."""
    first = generation(answer([0.1], rounds=counted(0, 0, 0)), "first", **more)
    return [first] + [
        generation(answer([1.0], sent_s=120 * at + 60, rounds=counted(1, rate[1], rate[0])), f"w-{at}", **more)
        for at, rate in enumerate(rates)
        if rate is not None
    ]


def test_low_for_more_than_two_windows_is_at_least_x() -> None:
    """
    Two low windows in a row are forgiven (their third is high); three are the smallest of the largest.
    """
    two_low = windowed([(8, 10), (3, 10), (2, 10), (8, 10), (7, 10)])
    three_low = windowed([(8, 10), (3, 10), (2, 10), (1, 10), (7, 10)])

    forgiven, caught = (known(estimate("acceptance_window_min", evidence(one))).center for one in (two_low, three_low))

    assert (0.8, 0.3) == (forgiven, caught)


@pytest.mark.parametrize("duration", ["60 s", "600 s", "3600 s"])
@pytest.mark.parametrize(("falls_at", "lowest"), [(0.3, 0.2), (0.7, 0.8)])
def test_the_rule_can_fire_in_a_soak_of_any_length(duration: str, falls_at: float, lowest: float) -> None:
    """
    Windows are a fifth of the soak: acceptance that falls after 30 % of it fills three, one that falls after 70 % not.
    """
    soaked = Soak.model_validate({"duration": duration})
    each = soaked.duration / 100
    made = [
        generation(
            answer([each], sent_s=at * each, ended_s=0.9 * each, rounds=counted(1, 10, 8 if high else 2)), str(at)
        )
        for at, high in enumerate(at / 100 < falls_at for at in range(100))
    ]

    seen = known(estimate("acceptance_window_min", replace(evidence(made), window_s=soaked.window_s)))

    assert lowest == seen.center


def test_windows_pool_tokens_not_answers() -> None:
    """
    One long answer at 10 % outweighs a short one at 100 % in the same window.
    """
    answers = windowed([(1, 2), (1, 2), (1, 2)])
    long = generation(answer([1.0], sent_s=70, rounds=counted(9, 98, 10)), "long")
    both = [*answers, *(replace(long, key=str(at), answer=_later(long.answer, 120.0 * at)) for at in range(3))]

    assert pytest.approx(11 / 100) == known(estimate("acceptance_window_min", evidence(both))).center


def _later(one: Answer, seconds: float) -> Answer:
    shift = round(seconds * 1e9)
    return replace(one, sent_ns=one.sent_ns + shift, ended_ns=one.ended_ns + shift)


def test_windows_do_not_join_across_segments_or_gaps() -> None:
    """
    Three windows in a row are three of one unbroken stretch; two before an interruption and one after are not.
    """
    broken = [*windowed([(5, 10), (5, 10)]), *windowed([(5, 10)], segment=1)]
    holed = windowed([(5, 10), (5, 10), None, (5, 10), (5, 10)])

    assert "three consecutive" in because(estimate("acceptance_window_min", evidence(broken)))
    assert "three consecutive" in because(estimate("acceptance_window_min", evidence(holed)))


def test_windows_are_counted_from_the_first_answer_of_their_stretch() -> None:
    """
    The clock of each stretch starts with it: answers 10 s before and after a border of its windows lie apart.
    """
    at = [(0, 8), (110, 8), (130, 1), (250, 1), (370, 1)]
    one, two = (
        [
            generation(_later(answer([1.0], rounds=counted(1, 10, good)), began + sent), f"{sent}", segment=segment)
            for sent, good in at
        ]
        for segment, began in ((0, 1000.0), (1, 70.0))
    )

    assert 0.1 == known(estimate("acceptance_window_min", evidence(one))).center
    assert 0.1 == known(estimate("acceptance_window_min", evidence([*one, *two]))).center
    assert 8 == known(estimate("acceptance_window_min", evidence([*one, *two]))).n


def test_a_window_that_drafted_nothing_accepted_nothing() -> None:
    """
    Three windows whose answers drafted nothing are an acceptance of zero, once anything was drafted at all.
    """
    found = known(estimate("acceptance_window_min", evidence(windowed([(0, 0), (0, 0), (0, 0), (9, 10)]))))

    assert (0.0, 4) == (found.center, found.n)


def test_windows_say_how_many_there_were() -> None:
    """
    Nothing drafted and too few windows are two reasons, each with the windows that were seen.
    """
    silent, short = windowed([(0, 0), (0, 0)]), windowed([(5, 10), (5, 10)])

    assert Missing("no answer drafted anything", 2) == estimate("acceptance_window_min", evidence(silent))
    assert Missing("the soak has no three consecutive windows with drafted tokens", 2) == estimate(
        "acceptance_window_min", evidence(short)
    )


def test_an_answer_that_ends_on_a_border_belongs_to_the_next_window() -> None:
    """
    A window is half open: 120 s after the first answer was sent the second one has begun.
    """
    answers = [
        generation(answer([0.5, 1.0], sent_s=sent, rounds=counted(1, 10, good)), f"{sent}")
        for sent, good in ((0, 1), (119, 9), (240, 1), (360, 1))
    ]

    assert 0.9 == known(estimate("acceptance_window_min", evidence(answers))).center
