"""The machine of a soak: its findings, and whether plain decoding kept its speed, a second source of thermal zeros."""

from dataclasses import replace

import pytest

from gatekeeper.analysis.conclude import conclude
from gatekeeper.analysis.stats.series_change import Change
from gatekeeper.analysis.verdict.host_checks import baseline_held, host_checks
from tests.builders.case import WINNING, bare, with_soak

STEADY, NOISY = Change(0.01, 0.015), Change(-0.06, 0.04)
SLOWER, FASTER = Change(-0.08, 0.02), Change(0.08, 0.02)


@pytest.mark.parametrize(
    ("drifts", "confirmed"),
    [
        ([STEADY, None], True),
        ([STEADY, NOISY], None),
        ([NOISY, SLOWER], False),
        ([FASTER], False),
        ([None], None),
    ],
)
def test_a_drift_contradicts_where_it_is_proven(drifts: list[Change | None], confirmed: bool | None) -> None:
    """A drift that chance may have made neither confirms nor contradicts the sensors."""
    assert confirmed is baseline_held(drifts, 0.05, 0.95)


@pytest.mark.parametrize(
    ("backend", "kinds"),
    [({"backend": "scripted", "script": "truth.json"}, set()), ({"backend": "mlx"}, {"virtual_mac", "translated"})],
)
def test_a_machine_counts_where_it_computes(backend: dict[str, str], kinds: set[str]) -> None:
    """A virtual Mac disqualifies what was measured on it, and says nothing of a simulated system."""
    case = bare({"easy": WINNING}, subject={"target": "t", "drafts": ["heavy", "light"], **backend})
    (soak,) = conclude(case).needs
    machine = {"platform": "macos", "machine": "VirtualMac2,1", "translated": True}
    case = replace(with_soak(case, soak, WINNING), conditions={soak.name: [machine, machine]})

    _, findings = host_checks(case, soak)

    assert kinds == {finding.kind for finding in findings}
