"""The decreed footprint: what the script says of memory is what a host would see."""

import statistics
from itertools import pairwise

import pytest

from gatekeeper.backends.scripted.backend import readings
from gatekeeper.backends.scripted.script import Script

MINUTES = [float(second) for second in range(600)]


def held(process: str = "", **memory: object) -> list[float]:
    return readings(Script.model_validate({"memory": {"active": "1 GB", **memory}}), MINUTES, process)


def test_a_leak_is_as_steep_as_decreed() -> None:
    """
    Without noise the footprint is a line from what is held at the start.
    """
    assert [1e9 + 1e5 * second for second in MINUTES] == held(leak="100 kB/s")


def test_a_leak_in_steps_is_hidden_between_them() -> None:
    """
    Memory comes in whole steps; over ten minutes of 1 MB/s a step of 64 MB shows nine times.
    """
    seen = held(leak="1 MB/s", step="64 MB")

    assert {0.0, 64e6} == {after - before for before, after in pairwise(seen)}
    assert seen[-1] == 1e9 + 9 * 64e6


def test_noise_wanders_as_much_as_decreed() -> None:
    """
    Noise has the decreed deviation whatever is kept of the reading before, and neighbours correlate by that share.
    """
    for kept in (0.0, 0.9):
        draws = [held(str(number), noise="10 MB", noise_kept=kept) for number in range(40)]
        ends = [one[-1] - 1e9 for one in draws]
        steps = [after - before for one in draws for before, after in pairwise(one)]

        assert statistics.pstdev(ends) == pytest.approx(10e6, rel=0.3)
        assert statistics.pstdev(steps) == pytest.approx(10e6 * (2 * (1 - kept)) ** 0.5, rel=0.05)


def test_a_sawtooth_is_no_leak() -> None:
    """
    A cache that fills up and is given back stays under its peak, and ends where it began after whole teeth.
    """
    seen = held(sawtooth="300 MB", sawtooth_every="60 s")

    assert max(seen) < 1e9 + 300e6
    assert seen[:60] == pytest.approx(seen[540:])
    assert sum(after < before for before, after in pairwise(seen)) == 10


def test_processes_wobble_differently_and_alike_when_asked_again() -> None:
    """
    The same script and process give the same readings; another process gives others.
    """
    assert held("soak-1", noise="10 MB") == held("soak-1", noise="10 MB")
    assert held("soak-1", noise="10 MB") != held("soak-2", noise="10 MB")
