"""How well a fleet is scheduled: 200 hosts and 20 SLOs, simulated, against the best possible end.

    python -m bench.fleet --hosts 200 --slos 20

The cells sleep for their duration, drawn between half and twice the mean, instead of measuring; all else is the
product's: the queue of each host, Dask's scheduler and worker. The best possible end is the host with the most work.
"""

import argparse
import random
import time
from pathlib import Path

import psutil

from gatekeeper.fleet.cells import Cell, taken
from gatekeeper.fleet.dispatch import run
from gatekeeper.fleet.task import Done, Task


def sleep(task: Task) -> Done:
    """Take the time that the task's file name says."""
    time.sleep(float(task.slo))
    return Done(task.cell, 0, "promoted")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--slos", type=int, default=20)
    parser.add_argument("--mean", type=float, default=5.0, help="seconds of a cell in the mean")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    drawn = random.Random(given.seed)
    cells = taken(
        Cell(f"slo-{slo}", Path(), f"host-{host}", given.mean * drawn.uniform(0.5, 1.5))
        for slo in range(given.slos)
        for host in range(given.hosts)
    )
    best = max(sum(one.seconds for one in cells if one.host == f"host-{host}") for host in range(given.hosts))
    peak, begun = 0, time.monotonic()
    first = 0.0

    def report(_name: str, what: str, _detail: object) -> None:
        nonlocal peak, first
        peak = max(peak, psutil.Process().memory_info().rss)
        if what == "running" and not first:
            first = time.monotonic()

    done = run(cells, lambda one: Task(one.name, str(one.seconds), one.host, "", "", ""), report, retries=0, body=sleep)
    took = time.monotonic() - first
    assert len(done) == len(cells)
    print(
        f"{len(cells)} cells on {given.hosts} hosts: {took:.1f} s, best possible {best:.1f} s: {took / best - 1:+.1%}"
    )
    print(f"start of Dask {first - begun:.1f} s; memory of the controller {peak / 1e6:.0f} MB at most")


if __name__ == "__main__":
    main()
