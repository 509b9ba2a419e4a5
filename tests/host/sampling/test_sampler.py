"""The sampler: deadlines, lateness, gaps, faults, on the machine's clock and on a virtual one."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from gatekeeper import host
from gatekeeper.core.clock import SystemClock, VirtualClock
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import HostSample, Reading
from gatekeeper.host import Sampler
from gatekeeper.host.macos import powermetrics
from gatekeeper.host.sources import UNITS, DirectSource, Values
from gatekeeper.report import host_table
from tests.builders.golden_words import says
from tests.host.conftest import PATIENCE, StandIn

SECOND = 10**9


class Thermometer(DirectSource):
    """A source that returns what its function returns."""

    name = "thermometer"
    provides = ("memory_headroom", "fan_speed")

    def __init__(self, values: Callable[[], Values]) -> None:
        self._values = values

    def read(self) -> Values:
        """Return the next values."""
        return self._values()


def fine() -> Values:
    return {"memory_headroom": 5.0}


class Collected:
    """Records samples, and lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.samples: list[HostSample] = []
        self._changed = threading.Condition()

    def __call__(self, sample: HostSample) -> None:
        with self._changed:
            self.samples.append(sample)
            self._changed.notify_all()

    def await_(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.samples) >= count, PATIENCE)


def sampler(
    clock: SystemClock | VirtualClock,
    record: Callable[[HostSample], None],
    values: Callable[[], Values] = fine,
    interval: float = 1.0,
) -> Sampler:
    sources: Sequence[DirectSource] = [Thermometer(values)]
    return Sampler("linux", clock=clock, pids=tuple, record=record, interval=interval, sources=sources)


def test_ten_virtual_minutes_are_six_hundred_samples_and_the_first() -> None:
    """On a virtual clock a sample is taken at the beginning and at each tick, on time, none after leaving; phase and
    segment may be set while it runs.
    """
    clock, collected = VirtualClock(), Collected()

    with sampler(clock, collected) as running:
        running.phase, running.segment = "soak-1", 2
        clock.sleep(600)
    clock.sleep(60)

    assert [second * SECOND for second in range(601)] == [sample.at_ns for sample in collected.samples]
    assert {0} == {sample.late_ns for sample in collected.samples}
    assert collected.samples[0].at == "2026-01-01T00:00:00.000000Z"
    assert [("", 0), ("soak-1", 2)] == [(sample.phase, sample.segment) for sample in collected.samples[:2]]


def test_every_sample_holds_every_value() -> None:
    """A value that its source lacks is absent, and so is one without any source; neither is a number."""
    collected = Collected()

    with sampler(VirtualClock(), collected):
        values = collected.samples[0].values

    assert set(UNITS) == set(values)
    assert replace(values["memory_headroom"], age=None) == Reading(5.0, "B", "thermometer", "ok")
    assert replace(values["fan_speed"], age=None) == Reading(None, "rpm", "thermometer", "absent")
    assert values["swap_used"] == Reading(None, "B", "none", "absent")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (FileNotFoundError("no such file"), "absent"),
        (PermissionError("not yours"), "denied"),
        (ValueError("odd"), "parse_error"),
        (KeyError("row"), "parse_error"),
    ],
)
def test_a_source_that_fails_is_a_status(error: Exception, status: str) -> None:
    """The other sources and the sampler continue."""

    def fail() -> Values:
        raise error

    collected = Collected()

    with sampler(VirtualClock(), collected, fail):
        value = collected.samples[0].values["memory_headroom"]

    assert (status, None) == (value.status, value.value)


def test_real_deadlines_are_kept_by_one_thread() -> None:
    """Samples come one interval apart; lateness and cost are recorded; the thread ends."""
    collected, threads = Collected(), threading.active_count()

    with sampler(SystemClock(), collected, interval=0.02) as running:
        collected.await_(5)
        assert threads + 1 == threading.active_count()

    dues = [sample.at_ns - sample.late_ns for sample in collected.samples]
    assert {0} == {(after - before) % (SECOND // 50) for before, after in pairwise(dues)}
    assert threads == threading.active_count()
    assert all(sample.took_ns > 0 for sample in collected.samples)
    assert running.fault is None


def test_missed_deadlines_are_a_gap_and_not_a_burst() -> None:
    """A recording that takes several intervals loses those samples; what follows keeps to the deadlines."""
    collected, stalled = Collected(), threading.Event()

    def record(sample: HostSample) -> None:
        collected(sample)
        if len(collected.samples) == 2:
            stalled.wait(0.21)

    with sampler(SystemClock(), record, interval=0.05):
        collected.await_(4)

    dues = [sample.at_ns - sample.late_ns for sample in collected.samples]
    steps = [round((after - before) / (0.05 * SECOND)) for before, after in pairwise(dues)]
    assert steps[1] >= 4
    assert all(step >= 1 for step in steps)


@pytest.mark.parametrize("make", [SystemClock, VirtualClock])
def test_a_sampler_that_dies_says_why(make: Callable[[], SystemClock | VirtualClock]) -> None:
    """A disk that is full, or any bug, ends the samples; the soak reads the reason and does not crash."""
    clock = make()
    died = threading.Event()

    def record(_: HostSample) -> None:
        died.set()
        raise OSError(28, "No space left on device")

    with sampler(clock, record, interval=0.01) as running:
        assert died.wait(PATIENCE)
        if isinstance(clock, VirtualClock):
            clock.sleep(10)
        elif running._thread is not None:
            running._thread.join(PATIENCE)
        fault = running.fault

    assert fault is not None
    assert "No space left on device" in fault


def test_an_unknown_platform_is_the_users_mistake() -> None:
    """It is refused with what is allowed."""
    with pytest.raises(InputError) as caught:
        Sampler("macosx", clock=VirtualClock(), pids=tuple, record=lambda _: None)
    says("host", "an unknown platform is the users mistake", caught.value.message)

    assert caught.value.hint == "did you mean 'macos'?"


def test_watch_without_tools_hints_at_what_to_install(stand_in: StandIn) -> None:
    """A bare host gets a table without a number, and advice: macmon and the sudoers line."""
    stand_in("nothing", "exit 0")
    lines: list[str] = []
    hints: list[str] = []

    host.write_samples(
        1, 1.0, "macos", json_output=False, write=lines.append, write_hint=hints.append, table=host_table.table
    )

    assert any("brew install macmon" in hint and powermetrics.sudoers_line() in hint for hint in hints)
    rows = lines[0].splitlines()[1:-1]
    assert {"absent"} == {next(word for word in row.split() if word in ("absent", "ok")) for row in rows}
