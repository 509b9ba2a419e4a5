"""One objective against one estimate, by properties: no gap in the evidence is ever good news."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.metrics.checks import check
from gatekeeper.core.judgement import Estimate, Missing, Outcome, fact, worst
from gatekeeper.core.slo import Objective
from tests.builders.slo import objective

FIGURES = st.floats(-1e6, 1e6)
BOUNDS = st.sampled_from(["at_least", "at_most"])
GOODNESS = {Outcome.PASS: 2, Outcome.UNPROVEN: 1, Outcome.FAIL: 0}


def promised(bound: str, threshold: float) -> Objective:
    return Objective.model_validate(objective("ttft_delta", **{bound: threshold}))


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    lo, center, hi = sorted(draw(st.tuples(FIGURES, FIGURES, FIGURES)))
    return Estimate(center, lo, hi, 9)


@given(BOUNDS, FIGURES, estimates(), st.floats(0, 1e6), st.floats(0, 1e6))
def test_wider_bounds_never_improve(bound: str, threshold: float, interval: Estimate, down: float, up: float) -> None:
    """Less certainty turns a pass or a fail into unproven, and never an unproven into anything."""
    wider = Estimate(interval.center, interval.lo - down, interval.hi + up, interval.n)

    sharp, vague = (check(promised(bound, threshold), bounds).outcome for bounds in (interval, wider))

    assert vague in {sharp, Outcome.UNPROVEN}


@given(BOUNDS, FIGURES, estimates(), st.floats(0, 1e6))
def test_a_stricter_promise_never_improves(bound: str, threshold: float, interval: Estimate, stricter: float) -> None:
    """Asking for more cannot turn a fail into a pass."""
    harder = threshold + stricter if bound == "at_least" else threshold - stricter

    easy, hard = (check(promised(bound, at), interval).outcome for at in (threshold, harder))

    assert GOODNESS[hard] <= GOODNESS[easy]


@given(FIGURES, estimates())
def test_the_two_bounds_mirror_each_other(threshold: float, interval: Estimate) -> None:
    """At least x of a value is at most -x of its negative."""
    mirrored = Estimate(-interval.center, -interval.hi, -interval.lo, interval.n)

    original = check(promised("at_least", threshold), interval).outcome
    outcome = check(promised("at_most", -threshold), mirrored).outcome

    assert original is outcome


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    "broken", [(INF, INF, INF), (-INF, -INF, -INF), (NAN, NAN, NAN), (NAN, 1, 1), (1, NAN, 1), (1, 1, NAN)]
)
@pytest.mark.parametrize(("bound", "threshold"), [("at_least", 0.5), ("at_most", 2.0)])
def test_no_number_is_never_good_news(bound: str, threshold: float, broken: tuple[float, float, float]) -> None:
    """A value that overflowed, and one NaN among it and its bounds, prove nothing in either direction."""
    assert Outcome.UNPROVEN is check(promised(bound, threshold), Estimate(*broken, 9)).outcome


def test_missing_is_unproven() -> None:
    """No estimate is unproven, with its reason and its count, and no figure at all."""
    result = check(promised("at_least", 0.2), Missing("too few canaries", 4))

    assert (Outcome.UNPROVEN, "too few canaries", 4) == (result.outcome, result.because, result.n)
    assert (None, None, None) == (result.center, result.lo, result.hi)


@pytest.mark.parametrize("bound", ["at_least", "at_most"])
def test_an_open_interval_is_judged_by_its_other_end(bound: str) -> None:
    """A bound without a far side (too few samples) still proves or breaks by the near one, and is written as null."""
    open_end = Estimate(1.3, 1.2, math.inf, 9) if bound == "at_least" else Estimate(1.3, -math.inf, 1.4, 9)

    proven, doubted = (
        check(promised(bound, at), open_end) for at in ((1.2, 1.25) if bound == "at_least" else (1.4, 1.35))
    )

    assert (Outcome.PASS, Outcome.UNPROVEN) == (proven.outcome, doubted.outcome)
    assert None in {proven.lo, proven.hi}


@pytest.mark.parametrize(
    ("bound", "lo", "hi", "outcome"),
    [
        ("at_least", 1.16, 1.4, Outcome.PASS),
        ("at_least", 1.1599, 1.4, Outcome.UNPROVEN),
        ("at_least", 1.0, 1.16, Outcome.UNPROVEN),
        ("at_least", 1.0, 1.1599, Outcome.FAIL),
        ("at_most", 1.0, 1.16, Outcome.PASS),
        ("at_most", 1.0, 1.1601, Outcome.UNPROVEN),
        ("at_most", 1.16, 1.4, Outcome.UNPROVEN),
        ("at_most", 1.1601, 1.4, Outcome.FAIL),
    ],
)
def test_exactly_at_the_threshold(bound: str, lo: float, hi: float, outcome: Outcome) -> None:
    """The threshold itself passes the objective; only what lies wholly beyond it breaks it."""
    assert outcome is check(promised(bound, 1.16), Estimate((lo + hi) / 2, lo, hi, 9)).outcome


def test_bounds_are_rounded_before_they_are_compared() -> None:
    """What differs after the sixth significant digit differs by the machine, not by the subject."""
    result = check(promised("at_least", 1.16), Estimate(1.2, 1.1599999, 1.3, 9))

    assert (Outcome.PASS, 1.16) == (result.outcome, result.lo)


@pytest.mark.parametrize(("first", "second"), [*itertools.product(Outcome, repeat=2)])
def test_a_whole_is_as_good_as_its_worst_part(first: Outcome, second: Outcome) -> None:
    """In whatever order; nothing at all proves nothing."""
    assert min(GOODNESS[first], GOODNESS[second]) == GOODNESS[worst([first, second])]
    assert Outcome.UNPROVEN is worst(())


@pytest.mark.parametrize(
    ("bound", "interval", "outcome", "because"),
    [
        ("at_least", fact(0.5, 9), Outcome.PASS, "+50 %, at least +20 % required"),
        ("at_least", Estimate(0.5, 0.4, 0.6, 9), Outcome.PASS, "+50 % [+40, +60], at least +20 % required"),
        ("at_most", fact(0.5, 9), Outcome.FAIL, "+50 %, above the allowed +20 %"),
        ("at_most", Estimate(0.5, 0.4, 0.6, 9), Outcome.FAIL, "+50 % [+40, +60], above the allowed +20 %"),
        (
            "at_least",
            Estimate(0.5, 0.1, 0.6, 9),
            Outcome.UNPROVEN,
            "+50 % [+10, +60]; the limit of +20 % lies inside: not decided; more canaries would narrow it",
        ),
        (
            "at_most",
            Estimate(math.inf, 0.1, math.inf, 9),
            Outcome.UNPROVEN,
            "the measured value is not a finite number",
        ),
        (
            "at_least",
            fact(0.5, 9, "one note", "another"),
            Outcome.PASS,
            "+50 %, at least +20 % required; one note; another",
        ),
    ],
)
def test_a_check_says_in_words_what_it_found(bound: str, interval: Estimate, outcome: Outcome, because: str) -> None:
    """The sentence of a check names the value or the interval, the objective, and what travelled with the number."""
    result = check(promised(bound, 0.2), interval)

    assert (outcome, because, "a test promises it") == (result.outcome, result.because, result.why)
    assert tuple(value if math.isfinite(value) else None for value in (interval.center, interval.lo, interval.hi)) == (
        result.center,
        result.lo,
        result.hi,
    )


def test_readings_of_the_host_are_no_canaries() -> None:
    """More of them take a longer soak."""
    bound = Objective.model_validate(objective("footprint_growth", at_most=1e5))

    growth = check(bound, Estimate(0.0, -2e5, 2e5, 65))

    assert growth.because.endswith("not decided; a longer soak would narrow it")
