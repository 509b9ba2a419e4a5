"""The cost model: from rounds and their times to break-even and advice."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.sweep import cost_model
from gatekeeper.analysis.sweep.cost_explanation import CostExplanation, explanations
from gatekeeper.core.records import Answer, Generation, Role, Rounds, setting
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.verdict import Missing
from tests.builders.golden_words import says

CHANCES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def spoken(
    rounds: Rounds | None, *, gap_ms: float, tokens: int = 3, count: int = 20, draft: str | None = "d"
) -> Generation:
    """An answer of *count* rounds, each *gap_ms* apart and of *tokens* tokens."""
    arrivals = []
    for number in range(count):
        at = round(number * gap_ms * 1e6)
        arrivals += [Arrival(at + step, 1, drafted=step < tokens - 1) for step in range(tokens)]
    answer = Answer(0, arrivals[-1].at_ns, tuple(arrivals), output_tokens=len(arrivals), rounds=rounds)
    arm = "plain" if draft is None else "candidate"
    return Generation("t", "k", "w", "c", arm, setting(draft=draft), Role.MEASURED, 0, "", 1, answer)


def counted(length: int, chance: float) -> Rounds:
    """A thousand rounds in which every position is accepted with the same chance."""
    tried, accepted, reached = [], [], 1000.0
    for _ in range(length):
        tried.append(round(reached))
        reached *= chance
        accepted.append(round(reached))
    return Rounds(1000, 1000 * length, sum(accepted), tuple(tried), tuple(accepted))


def seen(length: int, round_ms: float, *, chance: float = 0.8, draft: str = "d") -> cost_model.MeasuredRounds:
    knobs = setting(draft=draft, num_draft_tokens=length)
    rounds = cost_model.measure_rounds(knobs, [spoken(counted(length, chance), gap_ms=round_ms)], 0.001)
    assert isinstance(rounds, cost_model.MeasuredRounds)
    return rounds


@given(st.floats(0, 0.999), st.integers(1, 16))
def test_even_chances_give_the_published_formula(chance: float, length: int) -> None:
    """
    With one chance a for all positions, tokens per round are (1 - a^(k+1)) / (1 - a).
    """
    published = (1 - chance ** (length + 1)) / (1 - chance)

    assert math.isclose(published, cost_model.expected_tokens([chance] * length), rel_tol=1e-9)


@given(CHANCES)
def test_a_round_yields_at_least_the_targets_own_token(chances: list[float]) -> None:
    """
    Tokens per round lie between 1 and k + 1.
    """
    tokens = cost_model.expected_tokens(chances)

    assert 1 <= tokens <= len(chances) + 1 + 1e-9


@given(st.floats(1, 8), st.integers(1, 8))
def test_break_even_pays_for_its_round(cost: float, length: int) -> None:
    """
    At the break-even chance a round yields exactly what it costs; a round dearer than k + 1 has none.
    """
    chance = cost_model.break_even_chance(cost, length)

    assert (cost > length + 1) == (chance is None)
    if chance is not None:
        assert math.isclose(cost, cost_model.expected_tokens([chance] * length), rel_tol=1e-6)


def test_costs_are_read_off_the_line_through_the_round_times() -> None:
    """
    Rounds of 24, 26 and 30 ms at lengths 2, 3 and 5 are a verify pass of 20 ms and 2 ms a proposal, without a misfit.
    """
    cost = cost_model.costs([seen(2, 24), seen(3, 26), seen(5, 30)], 0.02)["d"]

    assert (0.020, 0.002, 0.0) == pytest.approx((cost.verify, cost.step, cost.misfit), abs=1e-6)
    assert "2, 3, 5" in cost.source


def test_a_bent_line_says_how_far_it_is_off() -> None:
    """
    Round times that lie on no line are reported with their largest distance from it.
    """
    cost = cost_model.costs([seen(2, 24), seen(3, 34), seen(5, 30)], 0.02)["d"]

    assert cost.misfit is not None
    assert cost.misfit > 0.1


def test_a_second_draft_borrows_the_verify_pass() -> None:
    """
    A draft with one length takes the target's verify pass from the other draft's fit, and says so.
    """
    cost = cost_model.costs([seen(2, 24), seen(4, 28), seen(4, 24, draft="light")], 0.02)["light"]

    assert (0.020, 0.001) == pytest.approx((cost.verify, cost.step), abs=1e-6)
    assert "another draft's fit" in cost.source


def test_one_length_alone_assumes_the_verify_pass() -> None:
    """
    With one length the verify pass is assumed to take a plain token's time, and the text says that it is assumed.
    """
    cost = cost_model.costs([seen(4, 28)], 0.02)["d"]

    assert (0.020, 0.002) == pytest.approx((cost.verify, cost.step), abs=1e-6)
    assert "assumed" in cost.source


def test_an_impossible_line_is_not_used() -> None:
    """
    Longer rounds that take less time give no negative draft step.
    """
    cost = cost_model.costs([seen(2, 30), seen(6, 24)], 0.02)["d"]

    assert cost.step >= 0


def explained(*settings: cost_model.MeasuredRounds, measured: float | None = None) -> list[CostExplanation]:
    names = {str(number): rounds for number, rounds in enumerate(settings)}
    ratios = dict.fromkeys(names, measured) if measured is not None else {}
    explanation_by_name = explanations(names, 0.02, {name: ratio for name, ratio in ratios.items() if ratio})
    return [explanation for explanation in explanation_by_name.values() if isinstance(explanation, CostExplanation)]


def test_the_model_tells_a_win_and_its_break_even() -> None:
    """
    A round of 28 ms at 20 ms a token costs 1.4 tokens: at length 4 it breaks even at an acceptance of 0.1.
    """
    first, _ = explained(seen(4, 28, chance=0.9), seen(2, 24, chance=0.9))

    assert 0.1 == pytest.approx(first.break_even_acceptance, abs=1e-4)
    says("sweeps", "the model tells a win and its break even", first.because)


def test_a_shorter_draft_is_advised_where_proposals_are_refused() -> None:
    """
    Where each proposal costs much and few are accepted, the model names the length it expects more of.
    """
    long, _ = explained(seen(6, 44, chance=0.5), seen(2, 28, chance=0.5))

    assert "num_draft_tokens = " in long.because
    assert "num_draft_tokens = 6" not in long.because


def test_a_dear_draft_is_told_from_a_dear_verify_pass() -> None:
    """
    Where a free draft would win, a lighter one is advised; where verifying alone costs more than it can save, none is.
    """
    dear_draft = explained(seen(2, 60), seen(4, 100))[0]
    dear_verify = explained(seen(2, 200), seen(4, 201))[0]

    says("sweeps", "a dear draft is told from a dear verify pass", dear_draft.because)
    assert "no draft can help" in dear_verify.because


def test_times_that_cannot_be_give_no_advice() -> None:
    """
    A verify pass reads the weights that a plain token reads: where it seems to take less time, the times are noise.
    """
    explanation = explained(seen(1, 18.4, chance=0.02), seen(2, 24, chance=0.02))[0]

    assert "too noisy" in explanation.because
    assert (False, False) == ("expected" in explanation.because, "break-even" in explanation.because)
    assert (None, None) == (explanation.break_even_acceptance, explanation.document()["break_even_chance"])


def test_a_round_as_short_as_a_plain_token_has_no_break_even() -> None:
    """
    Where a round costs no more than one token, any acceptance pays, and 0.00 would say nothing.
    """
    explanation = explained(seen(4, 20))[0]

    assert "break-even" not in explanation.because
    assert None is explanation.break_even_acceptance


def test_a_measurement_far_from_the_model_is_said() -> None:
    """
    Where the measured ratio is not what the model gives, the reader is told that something is missing from it.
    """
    explanation = explained(seen(4, 28), seen(2, 24), measured=0.5)[0]

    assert "the estimate leaves out" in explanation.because


def test_what_can_not_be_explained_says_why() -> None:
    """
    No counters, a silent draft and a missing baseline each give a reason and no number.
    """
    knobs = setting(draft="d", num_draft_tokens=2)
    unseen = cost_model.measure_rounds(knobs, [spoken(None, gap_ms=20)], 0.001)
    silent = cost_model.measure_rounds(knobs, [spoken(Rounds(10, 0, 0), gap_ms=20, tokens=1)], 0.001)
    without = explanations({"t": seen(2, 24)}, None, {})

    assert "does not report rounds" in str(unseen)
    assert "proposed no tokens" in str(silent)
    assert isinstance(without["t"], Missing)
