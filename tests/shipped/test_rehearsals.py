"""Shipped SLO files on simulated machines of their kind: promoted and graded back, each for the reason meant.

The Mac mini M4 with 24 GB has a file of its own, `test_m4_24gb.py`. Nothing here ran on a Mac.
"""

from pathlib import Path

import pytest

from bench.rehearsal import Rehearsed, rehearse
from bench.simulated_mac import host_of, script_of
from gatekeeper.core.system import inputs

SLOS = Path(__file__).resolve().parents[2] / "slos"
SLOWER = "no draft setting is faster than plain decoding"


def rehearsed(name: str, machine: str, truth: float | None) -> Rehearsed:
    given = inputs.read(SLOS / f"{name}.toml")
    script = script_of(machine, given.slo, given.canaries, truth)
    return rehearse(given.slo, given.canaries, script, 1, profile=given.profile, host=host_of(given.slo))


@pytest.mark.parametrize(
    ("name", "machine", "truth", "code", "back"),
    [
        ("m4-16gb", "m4", None, 0, {}),
        ("m4-16gb", "m4", 0.9, 1, dict.fromkeys(("json", "tools", "chat"), SLOWER)),
        ("m2-ultra-64gb-4b", "m2-ultra-4b", None, 0, dict.fromkeys(("chat", "random"), "throughput_ratio: ")),
        ("m2-ultra-64gb-4b", "m2-ultra-4b", 0.9, 0, dict.fromkeys(("code", "json", "chat", "random"), SLOWER)),
    ],
    ids=lambda value: str(value) if isinstance(value, str | float) else "",
)
def test_a_shipped_slo_ends_for_the_reason_meant(
    name: str, machine: str, truth: float | None, code: int, back: dict[str, str]
) -> None:
    """
    What drafts faster on that machine is promoted, and the rest decodes plainly because of its speed.
    """
    verdict = rehearsed(name, machine, truth).verdict

    steps = {one.workload: one.because for one in verdict.transitions}
    assert code == verdict.exit_code
    assert set(back) == {one.name for one in verdict.workloads if one.outcome == "graded_back"}
    assert set(back) == {one.name for one in verdict.workloads if one.outcome != "promoted"}
    assert [] == [name for name, because in back.items() if because not in steps[name]]
