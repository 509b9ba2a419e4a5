"""The comparison of runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gatekeeper.analysis.verdict.against_certified import compare_inputs
from gatekeeper.core.manifest import File
from gatekeeper.deploy.compare import contrast
from gatekeeper.report.data.compared_runs import ComparedFigure
from tests.builders.manifest import manifest, model
from tests.builders.slo import slo

sorted_three = st.lists(st.floats(0.01, 100), min_size=3, max_size=3).map(sorted)


def interval(lo: float, center: float, hi: float, *, n: int = 9) -> ComparedFigure:
    return ComparedFigure(center, lo, hi, n)


@given(sorted_three, sorted_three, st.integers(1, 40))
def test_a_difference_is_called_alike_from_both_sides(first: list[float], second: list[float], count: int) -> None:
    """What is better from one side is worse from the other; intervals with each other's centre show nothing."""
    a, b = interval(*first), interval(*second)

    findings = {contrast("throughput_ratio", *pair, count=count).says for pair in ((a, b), (b, a))}

    assert findings in ({"no difference shown"}, {"better", "worse"})
    if first[0] <= second[1] <= first[2] and second[0] <= first[1] <= second[2]:
        assert {"no difference shown"} == findings


def test_two_equal_runs_are_rarely_called_different() -> None:
    """Of 400 pairs of equal runs with nine figures each, at most one in twenty has a figure that is better or worse."""
    logs, wrong = np.random.default_rng(7).normal(0.4, 0.1, (400, 2, 9, 24)), 0
    ends = np.stack(stats.t.interval(0.9, 23, logs.mean(axis=-1), stats.sem(logs, axis=-1)), axis=-1)
    for pair_ends in ends:
        a, b = ([interval(*np.exp([lo, (lo + hi) / 2, hi]).tolist(), n=24) for lo, hi in run] for run in pair_ends)
        wrong += any(contrast("ttft", *pair, count=9).says != "no difference shown" for pair in zip(a, b, strict=True))

    assert wrong <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95)


@pytest.mark.parametrize(
    ("metric", "more"), [("decode_throughput", "better"), ("ttft", "worse"), ("ttft_delta", "worse")]
)
def test_more_is_better_or_worse_as_the_metric_has_it(metric: str, more: str) -> None:
    """A higher throughput is better, a higher latency worse; both are proven where the intervals are far apart."""
    apart = contrast(metric, interval(1, 1.1, 1.2), interval(1.3, 1.4, 1.5))
    open_one = contrast(metric, interval(1, 1.1, 1.2), interval(1.1, 1.2, 1.3))

    assert (more, True) == (apart.says, apart.proven)
    assert ("no difference shown", False) == (open_one.says, open_one.proven)


@pytest.mark.parametrize(
    ("a", "b", "end"),
    [(None, None, "in either"), (None, interval(1, 1, 1), "in A"), (interval(1, 1, 1), None, "in B")],
)
def test_what_was_not_measured_is_reported(a: ComparedFigure | None, b: ComparedFigure | None, end: str) -> None:
    """A missing figure is no zero and no change."""
    finding = contrast("throughput_ratio", a, b)

    assert (None, True) == (finding.change, finding.says.endswith(end))


def test_a_change_is_relative_and_of_a_delta_absolute() -> None:
    """A ratio from 2 to 1 lost half; a TTFT delta from +10 % to +30 % rose by 20 points."""
    assert -0.5 == contrast("throughput_ratio", interval(2, 2, 2), interval(1, 1, 1)).change
    assert 0.2 == contrast("ttft_delta", interval(0.1, 0.1, 0.1), interval(0.3, 0.3, 0.3)).change


def test_what_matters_is_told_from_what_may_be_the_cause() -> None:
    """Another chip or target is another experiment; a draft or version may have been changed on purpose."""
    objectives = slo()
    before = manifest(host={"chip": "Apple M4", "os": "26.1", "uptime_s": 5}, versions={"mlx-lm": "1"})
    after = manifest(
        host={"chip": "Apple M5", "os": "26.2", "uptime_s": 9}, versions={"mlx-lm": "2"}, drafts=(), target=None
    )

    matter, causes = compare_inputs(before, after, objectives, objectives)

    assert {"target", "host.chip"} == set(matter)
    assert {"drafts", "host.os", "versions.mlx-lm"} == set(causes)


def test_a_model_is_its_digest_and_a_file_its_checksum() -> None:
    """Other weights are another target, named once; a file that was only renamed is the same."""
    before = manifest(slo=File(name="a.toml", sha256="1"), profile=File(name="p", sha256="2"))
    after = manifest(
        slo=File(name="b.toml", sha256="1"), profile=File(name="p", sha256="3"), target=model("org/big", {"w": "4"})
    )

    assert (["target", "profile"], []) == compare_inputs(before, after, slo(), slo())
