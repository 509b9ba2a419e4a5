"""Power without root: energy counters become power, through a stand-in for the package that only a Mac can load."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from gatekeeper.host import macos
from gatekeeper.host.macos import zeus
from gatekeeper.host.sources import Status

FIRST: dict[str, int | None] = {"cpu_total_mj": 1000, "gpu_mj": 5000, "ane_mj": 0}


def counters(monkeypatch: pytest.MonkeyPatch, *readings: dict[str, int | None]) -> zeus.EnergyCounters:
    """Return the source on a chip with these readings, one a second."""
    monitor_readings = iter([SimpleNamespace(**reading) for reading in readings])
    stand_in = ModuleType(zeus.MODULE)
    stand_in.AppleEnergyMonitor = lambda: SimpleNamespace(get_cumulative_energy=lambda: next(monitor_readings))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, zeus.MODULE, stand_in)
    clock = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr("gatekeeper.host.macos.zeus.time.monotonic_ns", lambda: next(clock))
    return zeus.EnergyCounters()


def test_energy_becomes_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The first reading is stale; then it is millijoules over seconds: 2 W of the processor, 8.5 W of the GPU, their sum.
    """
    source = counters(monkeypatch, FIRST, {"cpu_total_mj": 3000, "gpu_mj": 13500, "ane_mj": 0})

    first, second = source.read(), source.read()

    assert {Status.STALE} == set(first.values())
    assert {"cpu_power": 2.0, "gpu_power": 8.5, "package_power": 10.5} == second


@pytest.mark.parametrize(("after", "gpu"), [({"gpu_mj": None}, Status.ABSENT), ({"gpu_mj": 4000}, Status.STALE)])
def test_a_counter_that_is_missing_or_fell_is_no_power(
    monkeypatch: pytest.MonkeyPatch, after: dict[str, int | None], gpu: Status
) -> None:
    """
    A chip without a counter has no such power, and a counter that fell has none now: never zero or a sum of the rest.
    """
    source = counters(monkeypatch, FIRST, FIRST | {"cpu_total_mj": 2000} | after)

    source.read()

    assert {"cpu_power": 1.0, "gpu_power": gpu, "package_power": gpu} == source.read()


def test_it_is_a_source_only_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without the package a Mac has the other sources; a package that cannot be loaded is an absent one.
    """
    monkeypatch.setattr(zeus, "find_spec", lambda _name: None)
    without = [source.name for source in macos.sources(tuple)]
    monkeypatch.setattr(zeus, "find_spec", lambda _name: object())
    having = [source.name for source in macos.sources(tuple)]
    monkeypatch.setitem(sys.modules, zeus.MODULE, None)

    with pytest.raises(OSError, match=zeus.MODULE):
        zeus.EnergyCounters().read()

    assert {"zeus"} == {*having} - {*without}
    assert having.index("macmon") < having.index("zeus")
