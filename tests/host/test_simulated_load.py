"""The background load: it exists while the body runs, and never outlives its parent."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.host.simulated_load import apply_load, worker_jobs
from tests.builders.golden_words import says
from tests.builders.waiting import until

MEGABYTE = 10**6
ROOT = Path(__file__).resolve().parents[2]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("amounts", "jobs"),
    [
        ((0.0, 0.0, 0.0), []),
        ((2e9, 0.0, 0.0), [("memory", "2000000000")]),
        ((0.0, 1.5, 0.0), [("cpu", "1.0"), ("cpu", "0.500000")]),
        ((0.0, 2.0, 1e6), [("cpu", "1.0"), ("cpu", "1.0"), ("disk", "1000000")]),
    ],
)
def test_each_load_has_its_workers(amounts: tuple[float, float, float], jobs: list[tuple[str, str]]) -> None:
    """One for memory, one for each whole or partial core, one for the disk; none for zeros."""
    assert jobs == worker_jobs(*amounts)


@pytest.mark.slow
def test_the_load_is_there_while_the_body_runs_and_gone_after() -> None:
    """Memory is held before the body begins, CPU and disk are used during it, and no child process stays."""
    with apply_load(64 * MEGABYTE, 0.5, 5 * MEGABYTE) as load:
        memory, cpu, disk = (psutil.Process(worker.pid) for worker in load.workers)
        memory_held = memory.memory_info().rss
        until(lambda: sum(cpu.cpu_times()[:2]) > 0.2)
        if sys.platform == "linux":
            before = disk.io_counters().read_chars
            until(lambda: disk.io_counters().read_chars > before + 2 * MEGABYTE)
        assert load.faults() == []

    assert memory_held > 64 * MEGABYTE
    assert all(gone(worker.pid) for worker in load.workers)


def test_a_load_that_died_is_a_fault() -> None:
    """A soak with a lighter load than its profile says gets a fault."""
    with apply_load(MEGABYTE, 0.01) as load:
        load.workers[0].kill()
        load.workers[0].wait()

        says("host", "a load that died is a fault", "; ".join(load.faults()))


def test_the_load_dies_with_a_killed_parent() -> None:
    """A parent that is killed takes its workers with it."""
    script = (
        "from gatekeeper.host import apply_load\nimport time\n"
        "with apply_load(1e6, 0.01, 1e5) as load:\n"
        "    print(*[worker.pid for worker in load.workers], flush=True)\n    time.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]

    parent.kill()
    parent.wait()
    parent.stdout.close()

    assert len(pids) == 3
    until(lambda: all(gone(pid) for pid in pids))


@pytest.mark.slow
def test_a_load_this_host_cannot_carry_is_an_error() -> None:
    """More memory than an address space holds fails before the body, with advice."""
    with contextlib.ExitStack() as stack:
        with pytest.raises(GatekeeperError, match="exited at start") as caught:
            stack.enter_context(apply_load(1e18))

        assert "background" in caught.value.hint
