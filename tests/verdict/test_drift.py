"""The drift of plain decoding over a soak."""

import math
from dataclasses import replace

import pytest

from gatekeeper.terms.metrics import RATIOS
from gatekeeper.terms.outcome import Estimate
from gatekeeper.terms.records import Role
from gatekeeper.verdict.derive import estimate
from gatekeeper.verdict.drift import drift
from tests.verdict.made import (
    Twins,
    because,
    evidence,
    generation,
    known,
    steady,
    twins,
)


def drifting(change: float, repeats: int = 4) -> Twins:
    """Return four canaries asked *repeats* times over 600 s, plain decoding's speed changing by *change* on the way."""
    ours, theirs = [], []
    for repeat in range(repeats):
        for at in range(5):
            sent = 600 * (repeat * 5 + at) / (repeats * 5)
            gap = 0.1 * math.exp(-change * sent / 600)
            pair = f"{repeat}.{at}"
            ours.append(generation(steady(gap / 2, sent_s=sent), f"c-{at}", pair=pair))
            theirs.append(generation(steady(gap, sent_s=sent), f"c-{at}", arm="plain", role=Role.SENTINEL, pair=pair))
    return ours, theirs


def test_drift_by_hand() -> None:
    """
    Plain decoding that loses 20 % in log speed over the soak is seen to lose nearly that; centring takes a little.
    """
    found = known(drift(evidence(*drifting(-0.2))))

    assert -0.21 < found.center < -0.16
    assert found.hi < 0


@pytest.mark.parametrize("metric", sorted(RATIOS))
def test_drift_leaves_ratios_unproven(metric: str) -> None:
    """
    A host that slowed down by more than the SLO allows proves no ratio; it is not called slow.
    """
    ours, theirs = drifting(-0.2)

    assert "drifted" in because(estimate(metric, evidence(ours, theirs)))
    assert isinstance(estimate(metric, evidence(ours, theirs, drift_limit=0.5)), Estimate)


def test_a_steady_host_does_not_drift() -> None:
    """
    The same speed throughout is no drift.
    """
    found = known(drift(evidence(*drifting(0.0))))

    assert pytest.approx(0.0, abs=1e-9) == found.center


def test_canaries_of_different_speed_are_no_drift() -> None:
    """
    Each canary is compared with itself: a slow one asked late is not a slow host, and once asked tells nothing.
    """
    ours, theirs = twins(9, lambda _: steady(0.05), lambda at: steady(0.1 * (1 + at), sent_s=60.0 * at))

    assert "too few" in because(drift(evidence(ours, theirs)))


def test_drift_looks_at_the_last_segment_alone() -> None:
    """
    A resumed soak starts its clock anew; the interrupted stretch is not laid beside it.
    """
    _, old = drifting(-0.5)
    _, new = drifting(0.0)
    theirs = [*old, *(replace(one, segment=1, key=f"1{one.key}") for one in new)]

    assert pytest.approx(0.0, abs=1e-9) == known(drift(evidence([], theirs))).center
