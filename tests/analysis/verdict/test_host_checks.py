"""Whether plain decoding held its speed, as the second source of a thermal zero."""

import pytest

from gatekeeper.analysis.verdict.host_checks import baseline_held
from gatekeeper.core.verdict import Estimate, Missing

STEADY, NOISY = Estimate(0.01, -0.02, 0.04, 60), Estimate(-0.06, -0.13, 0.01, 60)
SLOWER, FASTER = Estimate(-0.08, -0.12, -0.04, 60), Estimate(0.08, 0.04, 0.12, 60)


@pytest.mark.parametrize(
    ("drifts", "confirmed"),
    [
        ([STEADY, Missing("too few")], True),
        ([STEADY, NOISY], None),
        ([NOISY, SLOWER], False),
        ([FASTER], False),
        ([Missing("too few")], None),
    ],
)
def test_a_drift_contradicts_where_it_is_proven(drifts: list[Estimate | Missing], confirmed: bool | None) -> None:
    """
    A drift that chance may have made neither confirms nor contradicts the sensors.
    """
    assert confirmed is baseline_held(drifts, 0.05)
