"""A reproducible desktop load during the soak: child processes that hold memory, use CPU and read the disk."""

import contextlib
import math
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gatekeeper.core.errors import GatekeeperError

START_LIMIT = 60.0
"""Seconds until every load must be ready: filling 16 GB takes about ten."""

_WORKER = Path(__file__).with_name("load_worker.py")


@dataclass(frozen=True, slots=True)
class Load:
    """The child processes that make the load."""

    workers: tuple[subprocess.Popen[bytes], ...]
    kinds: tuple[str, ...]

    def faults(self) -> list[str]:
        """Return the loads that have ended: the soak then ran with a lighter load than its profile says."""
        return [
            f"the {kind} load exited with code {worker.returncode}"
            for worker, kind in zip(self.workers, self.kinds, strict=True)
            if worker.poll() is not None
        ]


def worker_jobs(memory_bytes: float, cpu: float, disk_read: float) -> list[tuple[str, str]]:
    """Return the kind and amount of each worker: one for memory, one for each started core, one for the disk."""
    jobs = [("memory", str(round(memory_bytes)))] if memory_bytes > 0 else []
    full_cores = math.floor(cpu)
    jobs += [("cpu", "1.0")] * full_cores
    jobs += [("cpu", f"{cpu - full_cores:.6f}")] if cpu - full_cores > 1e-9 else []
    return jobs + ([("disk", f"{disk_read:.0f}")] if disk_read > 0 else [])


@contextlib.contextmanager
def apply_load(memory_bytes: float = 0.0, cpu: float = 0.0, disk_read: float = 0.0) -> Iterator[Load]:
    """Start the load before the body and end it after; with all zeros nothing is started."""
    jobs = worker_jobs(memory_bytes, cpu, disk_read)
    kinds = tuple(kind for kind, _ in jobs)
    with contextlib.ExitStack() as stack:
        workers = []
        for kind, amount in jobs:
            argv = [sys.executable, "-I", str(_WORKER), kind, amount]
            worker = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            workers.append(stack.enter_context(worker))
            stack.callback(worker.kill)
        _wait_until_ready(workers, kinds)
        yield Load(tuple(workers), kinds)


def _wait_until_ready(workers: Sequence[subprocess.Popen[bytes]], kinds: Sequence[str]) -> None:
    end = time.monotonic() + START_LIMIT
    with selectors.DefaultSelector() as selector:
        for worker, kind in zip(workers, kinds, strict=True):
            assert worker.stdout is not None
            selector.register(worker.stdout, selectors.EVENT_READ, (worker, kind))
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            for key, _ in ready:
                worker, kind = key.data
                if worker.stdout.readline() != b"ready\n":
                    message = f"the {kind} load of the soak profile exited at start with code {worker.wait()}"
                    hint = "lower `background` in the profile: this host has too little memory or disk for it"
                    raise GatekeeperError(message, hint=hint)
                selector.unregister(key.fileobj)
            if not ready:
                hint = "lower `background` in the soak profile"
                raise GatekeeperError(f"the background load was not ready within {START_LIMIT:g} s", hint=hint)
