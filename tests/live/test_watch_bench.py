"""The bench of the watch: its outcomes over whole months equal a guard's, round by round."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from bench import watch
from gatekeeper.analysis.stats import sequential
from gatekeeper.core.judgement import Outcome
from gatekeeper.live.guards.guard_judgement import judge_series
from gatekeeper.live.guards.guard_values import (
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
