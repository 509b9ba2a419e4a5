"""The process that reads the host for a sampler."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from gatekeeper.core.clock import SystemClock
from gatekeeper.core.records import HostSample
from gatekeeper.host import Sampler
from gatekeeper.host.sampling.reading_process import ReadingProcess
from tests.builders.waiting import until
from tests.host.conftest import StandIn


@pytest.mark.usefixtures("healthy_mac")
def test_it_reads_what_a_poller_reads() -> None:
    """Readings come over the pipe with source, unit, status and age, and the process it is asked about may change."""
    pids: list[int] = []
    reading = ReadingProcess("macos", lambda: pids, interval=1.0)
    try:
        reading.settle(streams=True)
        reading.refresh(1.0)
        without = reading.readings()["subject_footprint"]
        readings = reading.readings()
    finally:
        reading.close()

    assert without.status == "absent"
    assert (readings["memory_headroom"].source, readings["memory_headroom"].unit) == ("vm_stat", "B")
    assert readings["memory_headroom"].value == 355_000.0 * 16384
    assert readings["fan_speed"].status == "ok"
    assert reading.cost_ns() > 0


@pytest.mark.usefixtures("healthy_mac")
def test_its_death_is_a_fault_of_the_sampler() -> None:
    """No sample is made up once it is gone: the sampler says why it ended."""
    samples: list[HostSample] = []
    before = {process.pid for process in psutil.Process().children()}

    with Sampler("macos", clock=SystemClock(), pids=tuple, record=samples.append, interval=0.1) as sampler:
        assert until(lambda: len(samples) >= 1)
        (helper,) = [process for process in psutil.Process().children() if process.pid not in before]
        helper.send_signal(signal.SIGKILL)
        assert until(lambda: sampler.fault is not None)

    assert "reads the host" in (sampler.fault or "")


def test_it_ends_with_the_process_that_asked(healthy_mac: StandIn) -> None:
    """When its stdin ends, as when gatekeeper is killed, it ends, and so do the tools that it started."""
    healthy_mac("macmon", 'echo $$ > "$0.pid"; exec sleep 600')
    reading = ReadingProcess("macos", tuple, interval=1.0)
    reading.settle(streams=False)
    file = Path(os.environ["PATH"]) / "macmon.pid"
    pid = int(until(lambda: file.exists() and file.read_text()))

    assert reading._process.stdin is not None
    reading._process.stdin.close()

    assert until(lambda: reading._process.poll() is not None)
    assert until(lambda: not psutil.pid_exists(pid))
    reading.close()
