"""The search for the most streams that keep a bound: few probes, and an interval that holds the planted boundary."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.analysis.stats.bound_tests import is_broken, is_kept
from gatekeeper.analysis.stats.intervals import WeightedValues, samples_needed
from gatekeeper.analysis.stats.stream_search import (
    MOST_FULL,
    MOST_SHORT,
    SHORT,
    Reach,
    StreamProbe,
    StreamReading,
    most_streams,
)
from gatekeeper.core.verdict import Outcome

Q, BOUND = 0.95, 1.0


def searched(
    read: Callable[[StreamProbe], StreamReading], limit: int, start: int = 1, longest: float = 0.0
) -> tuple[Reach, list[StreamProbe]]:
    """Search with what *read* shows of each probe."""
    search, probes = most_streams(limit, 0.05, start, longest), list[StreamProbe]()
    probe = next(search)
    while True:
        probes.append(probe)
        try:
            probe = search.send(read(probe))
        except StopIteration as ended:
            return ended.value, probes


def exact(capacity: int) -> Callable[[StreamProbe], StreamReading]:
    """Return a system without noise whose latency rises in a straight line, and meets its bound at *capacity*."""

    def read(probe: StreamProbe) -> StreamReading:
        share = (probe.streams + 5) / (capacity + 5)
        outcome = Outcome.PASS if probe.full else Outcome.UNPROVEN
        return StreamReading(Outcome.FAIL if share > 1 else outcome, share)

    return read


def noisy(capacity: int, spread: float, random_numbers: random.Random) -> Callable[[StreamProbe], StreamReading]:
    """Return a system whose 95 % quantile of log-normal latencies meets its bound half a stream above *capacity*.

    A probe with more answers has those of the one before with as many streams; each answer takes a second.
    """
    drawn: dict[int, list[float]] = {}

    def read(probe: StreamProbe) -> StreamReading:
        scale = (probe.streams + 5) / (capacity + 5.5) / np.exp(1.644854 * spread)
        count = probe.times * max(samples_needed(Q, 1 - probe.error) if probe.full else SHORT, probe.streams)
        answers = drawn.setdefault(probe.streams, [])
        answers += [scale * random_numbers.lognormvariate(0, spread) for _ in range(count - len(answers))]
        values = WeightedValues.of((str(number), [(value, 1.0)]) for number, value in enumerate(answers[:count]))
        share, seconds = sorted(answers[:count])[math.ceil(Q * count) - 1], count / probe.streams
        if is_broken(values, BOUND, Q, probe.error_broken):
            return StreamReading(Outcome.FAIL, share, seconds)
        proven = probe.full and is_kept(values, BOUND, Q, probe.error)
        return StreamReading(Outcome.PASS if proven else Outcome.UNPROVEN, share, seconds)

    return read


@given(st.integers(1, 64), st.integers(0, 70), st.integers(1, 64))
def test_without_noise_the_boundary_is_found_to_the_stream(limit: int, capacity: int, start: int) -> None:
    """
    Wherever the search starts, both ends are the boundary; beyond the limit the upper end is open.
    """
    reach, probes = searched(exact(capacity), limit, min(start, limit))

    assert Reach(min(capacity, limit), capacity if capacity < limit else None) == reach
    assert sum(not probe.full for probe in probes) <= MOST_SHORT
    assert sum(probe.full for probe in probes) <= MOST_FULL


def test_few_levels_are_probed() -> None:
    """
    Of 64 levels some nine are probed, one or two of them in full.
    """
    counts = [searched(exact(capacity), 64)[1] for capacity in range(1, 64)]

    assert max(map(len, counts)) <= 11
    assert sum(map(len, counts)) / len(counts) < 9
    assert sum(probe.full for probes in counts for probe in probes) / len(counts) < 1.4


@given(st.integers(0, 40), st.floats(0.02, 0.5), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_ends_are_in_order(capacity: int, spread: float, random_numbers: random.Random) -> None:
    """
    Whatever noise shows, the lower end is not above the upper one, and the search ends.
    """
    reach, probes = searched(noisy(capacity, spread, random_numbers), 64)

    assert reach.least <= (64 if reach.most is None else reach.most)
    assert len(probes) <= MOST_SHORT + MOST_FULL


@pytest.mark.whole
@pytest.mark.parametrize("longest", [0.0, pytest.param(1e9, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_the_planted_boundary_lies_inside(spread: float, longest: float) -> None:
    """
    Of 200 searches with planted boundaries each end misses in at most 5 %, also where they go on until they have
    decided, and the lower one proves most of the truth.
    """
    random_numbers = random.Random(7)
    planted = [random_numbers.randint(1, 48) for _ in range(200)]

    reaches = [searched(noisy(capacity, spread, random_numbers), 64, 1, longest)[0] for capacity in planted]

    too_high = sum(reach.least > capacity for reach, capacity in zip(reaches, planted, strict=True))
    too_low = sum((reach.most or 64) < capacity for reach, capacity in zip(reaches, planted, strict=True))
    assert too_high <= 0.05 * len(planted)
    assert too_low <= 0.05 * len(planted)
    assert np.mean([reach.least / capacity for reach, capacity in zip(reaches, planted, strict=True)]) > 0.5


@pytest.mark.parametrize("capacity", [12, 20])
def test_more_time_leaves_one_level(capacity: int) -> None:
    """
    Two or more levels remain where the search may not go on; where it may, neighbours get more answers until one does,
    and not after the time is over.
    """

    def widths(longest: float) -> list[int]:
        reaches = [searched(noisy(capacity, 0.05, random.Random(seed)), 32, 4, longest)[0] for seed in range(5)]
        return [(32 if reach.most is None else reach.most) - reach.least for reach in reaches]

    assert sum(widths(0.0)) > 0
    assert [0] * 5 == widths(1e9)
    _, probes = searched(noisy(capacity, 0.05, random.Random(1)), 32, 4, 1e-9)
    assert all(probe.times == 1 for probe in probes)


@pytest.mark.parametrize("at", [0, 1, 7, 63])
def test_what_is_never_measured_proves_nothing(at: int) -> None:
    """
    Probes without a value keep the interval open on both ends.
    """
    reach, _ = searched(lambda _: StreamReading(Outcome.UNPROVEN, None), 64, at + 1)

    assert Reach(0, None) == reach
