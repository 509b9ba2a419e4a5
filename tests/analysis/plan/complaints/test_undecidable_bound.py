"""Bounds against the certified run that two soaks cannot tell apart."""

import math
import re

import numpy as np
import pytest

from gatekeeper.analysis.plan.complaints.complaint import Complaint
from gatekeeper.analysis.plan.complaints.undecidable_bound import undecidable_bounds
from gatekeeper.analysis.plan.ladder import look_levels
from gatekeeper.analysis.stats import run_to_run
from gatekeeper.core.judgement import Estimate
from gatekeeper.core.slo import Slo
from tests.builders.slo import objective, slo

CANARIES, PAIRS = 24, 50


def promised(bound: float, **soak: object) -> Slo:
    compared = objective("throughput_ratio", at_least=bound, against="certified")
    return slo(objective("throughput_ratio", at_least=1.05), compared, soak={"duration": "600 s", **soak})


def complaints(written: Slo, pairs: float = PAIRS) -> list[Complaint]:
    name = written.workload[0].name
    return list(undecidable_bounds(written, {name: pairs}, {name: CANARIES}))


def suggested(complaint: Complaint) -> float:
    (bound,) = re.findall(r"at_least = (\d\.\d+)", complaint.hint)
    return float(bound)


def simulated(heights: np.ndarray, count: int, random: np.random.Generator) -> list[tuple[str, float]]:
    """Return log ratios of pairs, with the noise of two answers each."""
    noise = random.normal(0, 0.05 * math.sqrt(2), count)
    return [(f"c{n % CANARIES}", float(heights[n % CANARIES] + noise[n])) for n in range(count)]


def test_the_suggested_bound_is_proven_where_nothing_changed() -> None:
    """A bound of 0.97 after ten minutes is refused. Two simulated soaks of the same system at the assumed noise prove
    the suggested one in seven of ten cases or more, and 0.97 itself in less than that.
    """
    written = promised(0.97)
    (complaint,) = complaints(written)
    random, looks = np.random.default_rng(4), ((600.0, PAIRS), (3600.0, 6 * PAIRS))
    lows = []
    for _ in range(30):
        heights = random.normal(0, 0.1, CANARIES)
        then, now = (simulated(heights, count, random) for count in (PAIRS, 6 * PAIRS))
        ratio = run_to_run.ratio(now, then, look_levels(written, looks)[-1], CANARIES, logs=True)
        assert isinstance(ratio, Estimate)
        lows.append(ratio.lo)

    assert np.mean([lo >= suggested(complaint) for lo in lows]) >= 0.7 > np.mean([lo >= 0.97 for lo in lows])
    assert [] == complaints(promised(suggested(complaint)))


def test_a_longer_soak_decides_a_closer_bound() -> None:
    """The suggested duration is enough: so many more pairs prove the bound."""
    (complaint,) = complaints(promised(0.97))
    (minutes,) = re.findall(r'duration = "(\d+)m"', complaint.hint)

    assert [] == complaints(
        promised(0.97, duration=f"{minutes}m", max_duration=f"{6 * int(minutes)}m"), PAIRS * int(minutes) / 10
    )


@pytest.mark.parametrize("bound", [1.0, 1.02])
def test_no_soak_proves_that_nothing_was_lost(bound: float) -> None:
    """A bound of 1 or more has no duration that would do, only a lower bound."""
    (complaint,) = complaints(promised(bound), 10_000)

    assert "duration" not in complaint.hint
    assert suggested(complaint) < 1
