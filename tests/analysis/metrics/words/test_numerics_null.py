"""The null of the numerics: its tolerance, its flips, and when divergences are more than it."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, poisson

from gatekeeper.analysis.metrics.words.numerics_null import CONTENT, FALSE_ALARM, UNITS, ComparedLeads, Null, null_of
from gatekeeper.core.judgement import Missing
from gatekeeper.core.records import Numerics


def read(gaps: list[float], wide_gaps: list[float | None], unit: float = 0.0, fault: str | None = None) -> Numerics:
    return Numerics("w", "c", 5, tuple(range(len(gaps))), tuple(gaps), tuple(wide_gaps), unit, fault=fault)


def null(*records: Numerics, level: float = 0.98) -> Null:
    noise = null_of(records, level)
    assert isinstance(noise, Null)
    return noise


CHANGES = st.lists(st.tuples(st.floats(0, 30), st.floats(-30, 30)), min_size=1, max_size=200)


@given(CHANGES)
def test_with_few_places_the_largest_change_is_the_tolerance(pairs: list[tuple[float, float]]) -> None:
    """Then no change is larger; how often larger ones come is bounded from the fourth largest on."""
    noise = null(read([gap for gap, _ in pairs], [wide_gap for _, wide_gap in pairs]))

    assert noise.tolerance == max(abs(gap - wide_gap) for gap, wide_gap in pairs)
    changes = sorted(abs(gap - wide_gap) for gap, wide_gap in pairs)
    fourth = changes[max(0, len(changes) - 4)]
    beyond = sum(change > fourth for change in changes)
    assert noise.reference == fourth
    assert noise.larger == pytest.approx(binomtest(beyond, len(pairs)).proportion_ci(0.96).high, abs=1e-9)


def test_with_many_places_an_order_statistic_bounds_the_content() -> None:
    """It is the smallest change that CONTENT of the places stay below, at the confidence of the run."""
    count, level = 20_000, 0.98
    noise = null(read([1.0] * count, [1.0 + number / count for number in range(count)]), level=level)
    rank = round(noise.tolerance * count)

    assert binom.cdf(rank, count, CONTENT) >= level > binom.cdf(rank - 2, count, CONTENT)


def test_the_tolerance_is_never_less_than_two_units_of_the_logits() -> None:
    """Each of two logits is rounded; where a third one leads, the whole lead was lost; failed readings show nothing."""
    assert UNITS * 0.125 == null(read([1.0], [1.0], unit=0.125)).tolerance
    assert 0.75 == null(read([0.75, 2.0], [None, 2.0])).tolerance
    assert isinstance(null_of([read([1.0], [0.5], fault="died")], 0.98), Missing)


@given(st.lists(st.floats(0.11, 20), max_size=60), st.lists(st.floats(0.2, 20), max_size=200), st.floats(0.001, 0.5))
def test_divergences_beyond_the_tolerance_are_held_against_the_leads_of_all_places(
    unexplained: list[float], leads: list[float], rate: float
) -> None:
    """A place with k times the tolerance as lead counts a k-th to the fourth of the null's rate; Poisson's test decides
    with half of the error for the largest lead, and a sixteenth for the number beyond each doubling of the tolerance.
    """

    def expected(least: float) -> float:
        return sum(rate * (0.1 / lead) ** 4 for lead in leads if lead >= least)

    largest = max(unexplained, default=math.inf)
    chances = [2 * poisson.sf(0, expected(largest)) if unexplained else 1.0]
    chances += [
        16 * poisson.sf(sum(lead > bound for lead in unexplained) - 1, expected(bound))
        for bound in (0.1 * 2**doubling for doubling in range(8))
    ]
    assume(not 0.99 < min(chances) / FALSE_ALARM < 1.01)  # sums in another order round elsewhere

    refuted = Null(0.1, rate).refutes(ComparedLeads(tuple(unexplained), tuple(leads)))

    assert refuted == (min(chances) < FALSE_ALARM)


@given(st.lists(st.floats(0.2, 20) | st.sampled_from([2.0, 9.0]), max_size=200), st.floats(0.001, 0.5))
def test_what_would_be_seen_is_refuted(leads: list[float], rate: float) -> None:
    """So many divergences at such leads are refuted, also where other workloads share the error."""
    noise, places = Null(0.1, rate), ComparedLeads(places=tuple(leads))
    visible = noise.visible(leads)
    assume(visible is not None)
    number, least = visible or (0, 0.0)

    larger = math.nextafter(least, math.inf) if number > 1 else least
    assert noise.refutes(ComparedLeads((larger,) * number, tuple(leads)), places)


@pytest.mark.parametrize(
    ("larger", "lead", "places", "allowed", "refuted"),
    [
        (0.03, 3.0, (3.0,) * 2400, 1, 3),  # noise of which 3 % is above 0.3 turns one in 140 runs
        (0.0125, 8.0, (0.4,) * 1000 + (8.0,) * 1000, 0, 2),
        (0.0125, 0.4, (0.4,) * 1000 + (8.0,) * 1000, 4, 40),
        (0.03, 0.3001, (0.3001,) * 267, 8, 40),  # none has a lead that numerics would not turn, and eight are expected
    ],
)
def test_so_many_divergences_at_a_lead_are_numerics(
    larger: float, lead: float, places: tuple[float, ...], allowed: int, refuted: int
) -> None:
    """Divergences are refuted by their number and by how much the target preferred another token."""
    noise = Null(0.3, larger)

    assert [False, True] == [noise.refutes(ComparedLeads((lead,) * count, places)) for count in (allowed, refuted)]


def test_divergences_of_all_workloads_count_together_where_one_has_too_few() -> None:
    """One divergence at a large lead in each of four workloads is a defect."""
    noise, single = Null(0.3, 0.0125), ComparedLeads((2.0,), (2.0,) * 500)
    three_more = single + single + single

    assert [False, True] == [noise.refutes(single, elsewhere) for elsewhere in (None, three_more)]
    assert not noise.refutes(ComparedLeads((), single.places), three_more)
    assert not noise.refutes(ComparedLeads((0.4,), (0.4,) * 500), three_more)
