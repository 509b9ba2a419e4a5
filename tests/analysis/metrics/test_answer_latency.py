"""The time of whole answers against an oracle: NumPy's quantile, and SciPy's binomial for its order statistics."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gatekeeper.analysis.metrics.estimate import estimate
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Answer
from tests.builders.golden_words import says
from tests.builders.slo import answer, evidence, spread

LEVEL = 0.95


def lasting(seconds: float) -> Answer:
    """Return an answer that ended so many seconds after its request, however late its tokens came."""
    sent = answer([0.1, 0.2])
    return replace(sent, ended_ns=sent.sent_ns + round(seconds * 1e9))


@given(st.lists(st.floats(0.2, 600).map(lambda seconds: round(seconds, 6)), min_size=59, max_size=140))
def test_its_quantile_and_bounds_are_those_of_the_oracle(seconds: list[float]) -> None:
    """One answer a canary: the centre is NumPy's 95 % quantile, the bounds are the order statistics of the binomial."""
    answers = spread(len(seconds), lambda number: lasting(seconds[number]))

    interval = estimate("answer_latency_p95", replace(evidence(answers), frozen=False, interleaved=False))

    ordered = np.sort(seconds)
    below = stats.binom.cdf(np.arange(len(seconds)), len(seconds), 0.95)  # of k - 1, for the k-th
    lo = ordered[np.flatnonzero(1 - below >= LEVEL)[-1]]
    hi = ordered[np.flatnonzero(below >= LEVEL)[0]]
    assert isinstance(interval, Estimate)
    assert pytest.approx((lo, np.quantile(seconds, 0.95), hi)) == (interval.lo, interval.center, interval.hi)
    assert (len(seconds), "population") == (interval.n, interval.scope)


def test_an_answer_that_came_whole_counts() -> None:
    """A server that does not stream shows one arrival or none; its answers have a time all the same."""
    unstreamed = spread(60, lambda _: replace(lasting(2.5), arrivals=()))

    interval = estimate("answer_latency_p95", evidence(unstreamed))

    assert isinstance(interval, Estimate)
    assert pytest.approx((2.5, 2.5, 2.5)) == (interval.lo, interval.center, interval.hi)


def test_failed_answers_and_few_canaries_prove_nothing() -> None:
    """A failed answer's time is no answer's, and 58 canaries are too few for a bound on the slowest twentieth."""
    failed = spread(60, lambda number: replace(lasting(1.0), fault="died" if number > 57 else None))

    few = estimate("answer_latency_p95", evidence(failed))

    assert isinstance(few, Missing)
    says("estimates", "failed answers and few canaries prove nothing", few.because)
