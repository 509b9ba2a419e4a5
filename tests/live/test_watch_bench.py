"""The bench of the watch: its outcomes over whole months equal a guard's, round by round."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from bench import watch, watch_falls
from gatekeeper.analysis.stats import sequential
from gatekeeper.core.judgement import Outcome
from gatekeeper.live.guards import fall_detection
from gatekeeper.live.guards.guard_judgement import judge_series
from gatekeeper.live.guards.guard_values import (
    LEAST_SPREAD,
    MIN_SHARE_VALUES,
    BoundSeries,
    GuardSeries,
    certified_spread,
    median_bounds,
    median_min_values,
    share_bounds,
)

HOW: dict[str, tuple[BoundSeries, Callable[[float], int]]] = {
    "throughput_ratio": (sequential.interval, lambda _: sequential.MIN_CANARIES),
    "acceptance_rate": (median_bounds, median_min_values),
    "error_rate": (share_bounds, lambda _: MIN_SHARE_VALUES),
}
WORSE = watch.Truth("worse", ratio=0.7, acceptance=0.4, errors=0.3)


@pytest.mark.parametrize("metric", sorted(HOW))
def test_every_look_of_the_bench_is_the_guards_own(metric: str) -> None:
    """After each pair of a route that turns bad the bench crosses the bound exactly where the guard does."""
    condition = watch.Condition("made", 0.15, 60.0, hard=0.4)
    policy = watch.policy(condition)
    error, guard = watch.error_of(policy), next(guard for guard in policy.guard if guard.metric == metric)
    differ = certified_spread(policy.route[0].measured.throughput_ratio)
    drawn = watch.drawn(
        [(watch.HEALTHY[2], 60), (WORSE, 100), (watch.HEALTHY[0], 80)], condition, np.random.default_rng(3)
    )
    values = {"throughput_ratio": drawn.logs, "acceptance_rate": drawn.accepted, "error_rate": drawn.failed}[metric]
    values = values[np.isfinite(values)]

    laid = watch.crossed(metric, values, error, condition.differ)

    bounded, least = HOW[metric]
    if metric == "throughput_ratio":
        bounded = partial(sequential.interval, least_spread=differ)
    rounds = [
        judge_series(
            guard, GuardSeries(tuple(values[:count].tolist()), 1, bounded, least), error, watch.CONFIDENCE
        ).outcome
        for count in range(1, len(values) + 1)
    ]
    assert [outcome is Outcome.FAIL for outcome in rounds] == laid.tolist()
    assert laid.any()


def test_a_crossing_counts_once_it_has_held() -> None:
    """Two minutes are three rounds of a minute; where a pair comes every ten minutes one round holds as long by
    itself.
    """
    guard = watch.policy(watch.CONDITIONS[0]).guard[0]
    flags = np.array([True, True, False, True, True, True])

    runs_held = [watch._held(flags, guard, watch.Condition("made", 0.1, every_s)) for every_s in (60.0, 600.0)]

    assert [[False] * 5 + [True], flags.tolist()] == [flags_held.tolist() for flags_held in runs_held]


def test_no_answer_at_all_turns_a_route_down() -> None:
    """Eight failed answers, and two more while it holds."""
    row = watch.losses(watch.CONDITIONS[0], watch.LOSSES[-1], runs=5, seed=1)

    assert (1.0, 9.0) == (row.turned_down, row.pairs)


def test_the_bench_detects_a_fall_as_the_package_does() -> None:
    """A route of the bench is turned down at the first value at which the package detects a fall that lasts long
    enough.
    """
    units = [*watch_falls.canaries(20.0, [(0.8, 3600.0), (0.4, 3600.0)], 0.15, np.random.default_rng(2))]
    need = watch_falls.evidence(20.0)

    down = watch_falls.turned_down(units, need)

    results = [
        fall_detection.detect(units[: count + 1], watch_falls.BOUND, LEAST_SPREAD, need) for count in range(len(units))
    ]
    seconds = [
        unit.at_ns / 1e9
        for unit, fall in zip(units, results, strict=True)
        if fall is not None and unit.at_ns - fall.since_ns >= watch_falls.FOR_S * 1e9
    ]
    assert seconds[0] == down
    assert 3600 < seconds[0] < 3600 + 900


def test_counters_of_busy_traffic_show_a_collapse_within_two_windows() -> None:
    """At five answers a minute, a collapse to half turns the route down within ten minutes in the median run."""
    row = watch_falls.watched("counters", "", 5.0, 0.4, 0.15, 20, 1, month=False)

    assert 1.0 == row.seen
    assert row.minutes is not None
    assert row.minutes <= 10
