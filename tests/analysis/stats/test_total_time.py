"""The ratio of total times: its logs average it, and scatter as it does."""

import math
from itertools import product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.analysis.stats import fixed_canaries, intervals
from gatekeeper.analysis.stats.intervals import by_canary
from gatekeeper.analysis.stats.total_time import linearise_times
from gatekeeper.core.judgement import Missing

SECONDS = st.floats(0.1, 100)
TIMES = st.lists(st.tuples(st.sampled_from("abcdef"), SECONDS, SECONDS), min_size=1, max_size=20)


@given(TIMES)
def test_the_mean_log_is_the_log_of_total_over_total(times: list[tuple[str, float, float]]) -> None:
    """The mean of canaries' mean logs is the log of the summed mean times."""
    by_name = by_canary((name, seconds) for name, *seconds in times)
    plain, candidate = (
        math.fsum(fmean(seconds[arm] for seconds in each) for each in by_name.values()) for arm in (0, 1)
    )

    log_times = linearise_times(times)

    means = [fmean(logs) for logs in by_canary(log_times.logs).values()]
    assert pytest.approx(math.log(plain / candidate), abs=1e-9) == fmean(means)
    assert log_times.weights is not None
    assert pytest.approx(1.0) == fmean(log_times.weights.values())


@pytest.mark.parametrize("canaries", [8, 200])
def test_the_interval_for_prompts_like_them_is_the_jackknifes(canaries: int) -> None:
    """However unequal the canaries are: the ratio's own error where each of them is left out in turn."""
    random = np.random.default_rng(5)
    lengths, noise = np.exp(0.7 * random.standard_normal(canaries)), np.exp(0.2 * random.standard_normal((2, canaries)))
    times = [(f"c-{at:03}", *seconds) for at, seconds in enumerate((lengths * noise).T.tolist())]

    interval = intervals.mean_log(linearise_times(times).pseudovalues(), 0.95)

    sums = (lengths * noise).sum(axis=1)
    left_one_out = np.log((sums[0] - lengths * noise[0]) / (sums[1] - lengths * noise[1]))
    error = math.sqrt((canaries - 1) / canaries * float(((left_one_out - left_one_out.mean()) ** 2).sum()))
    assert not isinstance(interval, Missing)
    assert pytest.approx(math.log(sums[0] / sums[1])) == math.log(interval.center)
    half = math.log(interval.hi / interval.lo) / 2
    assert pytest.approx(intervals.student_quantile(0.95, canaries - 1) * error, rel=1e-9) == half


def test_noise_that_grows_with_the_length_of_a_canary_is_not_understated() -> None:
    """What twenty short canaries vary by is the noise of a long one as well."""
    lengths = {"long": 20.0, **{f"c-{at}": 1.0 for at in range(20)}}
    times = [
        (name, length, length * (1.0 if name == "long" else 1 + 0.1 * (-1) ** turn))
        for turn, (name, length) in product(range(2), lengths.items())
    ]
    log_times = linearise_times(times)

    alike, weighed = (
        fixed_canaries.mean_of_logs(log_times.logs, 0.95, len(lengths), (), weights)
        for weights in (None, log_times.weights)
    )

    assert alike is not None
    assert weighed is not None
    assert math.log(weighed.hi / weighed.lo) > 3 * math.log(alike.hi / alike.lo)
