"""The ceiling: from times of passes to the most a draft can give, and the acceptance at which one pays."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ceiling import measured_logs, predicted_ratio, total_rounds
from gatekeeper.analysis.sweep.ceiling import LENGTHS, WIDTHS, Ceiling, ceiling_of, rounds_of_answers
from gatekeeper.core.records import Answer, Claims, PassTimes, Rounds
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.verdict import Missing
from tests.builders.slo import generation

LEVEL = 0.95
COSTS = st.lists(st.floats(0.3, 20), min_size=15, max_size=15)
Cost = Callable[[int], float]


def turn(cost: Cost, *, token: float = 0.02, draft: Cost | None = None) -> PassTimes:
    """One turn without noise: *cost* of a width in plain tokens, and of a draft length where there is a *draft*."""
    rounds = {} if draft is None else {length: token * draft(length) for length in LENGTHS}
    return PassTimes(token, {width: token * cost(width) for width in WIDTHS}, rounds)


def measured(*turns: PassTimes) -> Ceiling:
    ceiling = ceiling_of(turns, LEVEL)
    assert isinstance(ceiling, Ceiling)
    return ceiling


def simulated(chances: list[float], rounds: int, seed: int) -> Rounds:
    """Draw rounds of as many drafted tokens as there are *chances*, each accepted until the first that is not."""
    draw = random.Random(seed)
    accepted = [0] * len(chances)
    for _ in range(rounds):
        for position, chance in enumerate(chances):
            if draw.random() >= chance:
                break
            accepted[position] += 1
    tried = (rounds, *accepted[:-1])
    return Rounds(rounds, rounds * len(chances), sum(accepted), tried, tuple(accepted))


@given(COSTS, st.lists(st.floats(0, 1), min_size=1, max_size=15), st.integers(0, 9))
def test_a_speed_is_predicted_for_any_acceptance_by_position(
    costs: list[float], chances: list[float], seed: int
) -> None:
    """
    Tokens over the time of simulated rounds is what the ceiling predicts of them, however acceptance falls by position.
    """
    ceiling = measured(*[turn(lambda _: 1.0, draft=lambda length: costs[length - 1])] * 6)
    rounds = simulated(chances, 50, seed)
    cost = costs[len(chances) - 1]
    emitted = rounds.rounds + rounds.accepted

    expected = emitted / (rounds.rounds * cost)
    at_length = ceiling.rounds[len(chances) - 1]

    assert math.isclose(expected, predicted_ratio(ceiling, rounds) or 0, rel_tol=1e-9)
    assert expected <= at_length.most.center * (1 + 1e-9) <= ceiling.most.center * (1 + 2e-9)


def test_the_tokens_that_a_decode_speed_is_of_are_predicted() -> None:
    """
    A server claims what came after the stop token too, which never arrived: three rounds gave nine tokens after the
    prompt's, not twelve. The first pass of an answer takes longer, plain or not.
    """
    times = [0, *[30] * 4, *[60] * 4, 90]
    arrivals = tuple(Arrival(at * 10**6, tokens=1) for at in times)
    answer = Answer(0, 91 * 10**6, arrivals, output_tokens=11, claims=Claims(drafted=9, accepted=9, rounds=3))
    ceiling = measured(*[replace(turn(lambda _: 1.0, draft=lambda _: 2.0), anew=0.01)] * 6)

    rounds = total_rounds([generation(answer)], together_s=0.001)

    assert Rounds(3, 9, 6) == rounds
    assert math.isclose(9 / 6, predicted_ratio(ceiling, rounds) or 0)
    assert math.isclose(9.5 / 6.5, predicted_ratio(ceiling, rounds, answers=1) or 0)


def test_a_round_that_came_with_the_prompt_is_no_part_of_a_speed() -> None:
    """
    Of three rounds that were counted, the first gave the first token, and the last was cut short: 8 tokens of two.
    """
    arrivals = tuple(Arrival(at * 10**6, tokens=1) for at in [*[0] * 5, *[30] * 5, *[60] * 3])
    answer = Answer(0, 61 * 10**6, arrivals, output_tokens=13, rounds=Rounds(rounds=3, drafted=12, accepted=12))

    assert Rounds(2, 8, 6) == total_rounds([generation(answer)], together_s=0.001)


def test_a_drafted_answer_is_compared_with_the_plain_ones_around_it() -> None:
    """
    A machine that becomes twice as slow between two plain answers has the mean of their speeds, as of the logarithms.
    """
    answers = [
        replace(generation(Answer(0, 0, (Arrival(0, tokens=1), Arrival(gap, tokens=1)))), trial=trial)
        for trial, gap in (("0", 10), ("2", 10), ("0", 20), ("4", 5), ("0", 5))
    ]

    logs = [log for length in (2, 4) for values in measured_logs(answers, length, 0.0).values() for log in values]

    assert [math.log(2**0.5), math.log(2)] == pytest.approx(logs)


@given(COSTS, st.integers(1, 15))
def test_a_draft_pays_where_the_break_even_says_so(costs: list[float], length: int) -> None:
    """
    At the break-even a round gives exactly plain speed; it always pays at a cost of one token, never from k + 1 on.
    """
    at_length = measured(*[turn(lambda width: costs[max(0, width - 2)])] * 6).rounds[length - 1]
    needed = at_length.break_even.center

    assert math.isclose(at_length.cost.center, 1 + length * needed, rel_tol=1e-9)
    assert (costs[length - 1] < 1) == (at_length.cost.center < 1)
    assert {"always": needed <= 0, "never": needed >= 1, "above": 0 < needed < 1}[at_length.pays]


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_the_most_lies_inside_its_interval(noise: float) -> None:
    """
    With noise, a machine that slows down and slow passes, 95 % of intervals hold the largest ratio, whichever the k.
    """
    truth = {width: 1 + 0.09 * (width - 1) + (0.5 if width > 8 else 0) for width in WIDTHS}
    most = max((length + 1) / truth[length + 1] for length in LENGTHS)
    hits = 0
    for seed in range(100):
        draw = random.Random(seed)
        turns = [_noisy(truth, number, noise, draw) for number in range(24)]
        interval = measured(*turns).most
        hits += interval.lo <= most <= interval.hi

    assert hits >= 95


def _noisy(truth: Mapping[int, float], number: int, noise: float, draw: random.Random) -> PassTimes:
    slower = 0.02 * (1 + 0.05 * number) * (3 if number == 11 else 1)

    def time(cost: float) -> float:
        return slower * cost * math.exp(draw.gauss(0, noise)) * (4 if draw.random() < 0.01 else 1)

    return PassTimes(time(1.0), {width: time(cost) for width, cost in truth.items()})


def test_a_drift_of_the_machine_moves_no_ratio() -> None:
    """
    Times are compared within a turn: a machine that becomes three times as slow has the same costs, exactly.
    """
    steady = measured(*[turn(lambda width: 1 + width / 10)] * 12)
    slowing = measured(*(turn(lambda width: 1 + width / 10, token=0.02 * (1 + number / 6)) for number in range(12)))

    costs, slowing_costs = ([cost.cost.center for cost in ceiling.rounds] for ceiling in (steady, slowing))
    assert costs == pytest.approx(slowing_costs)


def test_only_measured_lengths_are_claimed() -> None:
    """
    A server whose vocabulary allows some widths says nothing about the others, nor about longer rounds.
    """
    turns = [PassTimes(1.0, {width: float(width) for width in (1, 2, 3, 5)})] * 6

    ceiling = measured(*turns)

    assert [1, 2, 4] == [cost.length for cost in ceiling.rounds]
    assert predicted_ratio(ceiling, Rounds(10, 50, 5)) is None
    assert predicted_ratio(ceiling, Rounds(0, 0, 0)) is None


@pytest.mark.parametrize(
    "turns",
    [
        [],
        [turn(lambda width: width)] * 4,
        [turn(lambda _: 0.0)] * 6,
        [turn(lambda _: math.nan)] * 6,
        [PassTimes(1.0, {1: 1.0})] * 6,
        [turn(lambda _: -1.0)] * 6,
    ],
)
def test_what_was_not_measured_has_no_figure(turns: list[PassTimes]) -> None:
    """
    No turns, too few of them, times of nothing or below it and a single width give a reason, and never a number.
    """
    assert isinstance(ceiling_of(turns, LEVEL), Missing)


@given(
    st.dictionaries(
        st.integers(2, 15), st.tuples(st.floats(0.01, 9), st.integers(2, 40), st.integers(0, 14)), min_size=1
    ),
    st.floats(0, 1),
    st.floats(0.0, 0.01),
)
def test_rounds_are_told_apart_from_requests_and_drafted_tokens(
    timed: dict[int, tuple[float, int, int]], request_s: float, token_s: float
) -> None:
    """
    Of answers of any number of rounds, the last of which draft less, the time of a whole round at each length is found.
    Without the short answers it is not claimed.
    """
    rows = [
        (length, Rounds(count, length * count - cut, 0), request_s + count * round_s - cut * token_s)
        for length, (round_s, count, cut) in timed.items()
    ]
    least, longest = min(timed), max(timed)
    short = [
        (length, Rounds(1, 1, 0), request_s + timed[length][0] - (length - 1) * token_s) for length in (least, longest)
    ]
    # What a pair of answers shows of the two common times: their shares in it must differ.
    shares = [length - 1 - (timed[length][2] - length + 1) / (timed[length][1] - 1) for length in (least, longest)]

    times = rounds_of_answers([*rows, *short])

    assert rounds_of_answers(rows) == {}
    if abs(shares[0] - shares[1]) > 0.01:
        assert {length: round_s for length, (round_s, _, _) in timed.items()} == pytest.approx(
            times, rel=1e-4, abs=1e-6
        )
