"""Versions compared canary by canary, with what both ends show."""

import math

import numpy as np
import pytest

from gatekeeper.analysis.stats.run_to_run import Values
from gatekeeper.core.verdict import Estimate, Missing
from gatekeeper.regression.version_comparison import ROUNDS, Interval, VersionComparison

CANARIES = 24


class Versions:
    """Versions of known levels; canaries differ by 10 % and answers by *noise*."""

    def __init__(self, levels: tuple[float, ...], noise: float, *, broken: tuple[int, ...] = ()) -> None:
        self.levels, self.noise, self.broken = levels, noise, broken
        self.random = np.random.default_rng(7)
        self.heights = self.random.normal(0, 0.1, CANARIES)
        self.logs: dict[int, list[tuple[str, float]]] = {}

    def measure(self, position: int, rounds: int) -> Values | Missing:
        logs = self.logs.setdefault(position, [])
        while len(logs) < rounds * CANARIES:
            shift = math.log(self.levels[position])
            logs += [
                (f"c{n}", float(h + shift + self.random.normal(0, self.noise))) for n, h in enumerate(self.heights)
            ]
        return Missing("does not start") if position in self.broken else logs

    def rounds(self) -> dict[int, int]:
        return {position: len(logs) // CANARIES for position, logs in self.logs.items()}

    def comparison(self, *, higher_is_better: bool = True) -> VersionComparison:
        return VersionComparison(self.measure, CANARIES, logs=True, higher_is_better=higher_is_better)


def test_a_small_loss_is_found_though_canaries_differ_by_more() -> None:
    """
    Five per cent at 4 % noise of a pair, where canaries differ by 10 %: the ends differ, and the change is proven.
    """
    comparison = Versions((1, 1, 1, 0.95, 0.95), 0.04).comparison()

    assert isinstance(comparison.compare_ends(4), Estimate)
    words, bounds = comparison.search(4)

    assert ("good", "bad", Interval(2, 3)) == (words[2], words[3], bounds)
    assert comparison.is_change(bounds)


def test_a_large_loss_takes_one_round_and_a_small_one_more() -> None:
    """
    A loss of a third is clear at once. One of 3 % has the ends answered again before anything lies between them.
    """
    large, small = Versions((1, 0.67), 0.04), Versions((1, 0.97), 0.04)

    large.comparison().compare_ends(1)
    small.comparison().compare_ends(1)

    assert {0: 1, 1: 1} == large.rounds()
    assert {0: ROUNDS[-1], 1: ROUNDS[-1]} == small.rounds()


@pytest.mark.parametrize("levels", [(1, 1), (1, 1.3)])
def test_ends_that_are_alike_or_the_other_way_round_have_no_change(levels: tuple[float, float]) -> None:
    """
    Nothing is searched where the last version is as good as the first, or better.
    """
    assert isinstance(Versions(levels, 0.04).comparison().compare_ends(1), Missing)


def test_a_latency_that_rises_is_a_loss() -> None:
    """
    Of a metric that should be low, the version with more of it is the bad one.
    """
    comparison = Versions((1, 1, 1.2), 0.04).comparison(higher_is_better=False)

    assert isinstance(comparison.compare_ends(2), Estimate)
    assert ("good", "bad") == (comparison.word(1, 2), comparison.word(2, 2))


def test_a_version_with_part_of_the_loss_is_as_the_nearer_end() -> None:
    """
    A loss in two steps: a version with a third of it is as the good end, with two thirds as the bad one.
    """
    comparison = Versions((1, 0.9, 0.8, 0.7), 0.02).comparison()

    assert ("good", "bad") == (comparison.word(1, 3), comparison.word(2, 3))


def test_two_equal_versions_are_never_the_change() -> None:
    """
    Where one of two equal versions was taken for good and the other for bad, no change is proven between them.
    """
    versions = Versions((1, 0.9, 0.9, 0.8), 0.04)

    assert not versions.comparison().is_change(Interval(1, 2))
    assert {1: ROUNDS[-1], 2: ROUNDS[-1]} == versions.rounds()


def test_a_version_that_shows_nothing_is_unclear() -> None:
    """
    What cannot be measured is passed over for its neighbour.
    """
    comparison = Versions((1, 1, 0.5, 0.5), 0.04, broken=(1,)).comparison()

    words, bounds = comparison.search(3)

    assert ("unclear", Interval(0, 2)) == (words[1], bounds)


def test_a_share_that_falls_to_zero_is_a_loss() -> None:
    """
    Counts are compared as they are: where nothing is accepted any more there is no log.
    """
    levels = (0.8, 0.8, 0.0)
    comparison = VersionComparison(
        lambda position, _: [(f"c{n}", levels[position]) for n in range(8)], 8, logs=False, higher_is_better=True,
        rounds=(1,),
    )  # fmt: skip

    assert isinstance(comparison.compare_ends(2), Estimate)
    assert ("good", Interval(1, 2)) == (comparison.word(1, 2), comparison.search(2)[1])
