"""How well a fleet is scheduled: 200 hosts and 20 SLOs, simulated, against the best possible end.

    python -m bench.fleet --hosts 200 --slos 20 --mean 25

The cells sleep for their duration, drawn between half and one and a half times the mean, instead of measuring, and all
end with the same stored run; all else is the product's: the queue of each host, Dask's scheduler and worker, fleet.json
after each cell. The best possible end is that of the host with the most work. What is lost against it is lost at the
end of each cell, so it is a share of a cell's duration: real cells take from ten minutes to hours.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from gatekeeper.fleet.cell_task import Done, Task
from gatekeeper.fleet.cells import Cell, cells_to_run
from gatekeeper.fleet.dispatch import run
from gatekeeper.fleet.fleet_run import Earlier, FleetFile

RUN = Path(__file__).parents[1] / "tests/golden/runs/promoted"


def sleep(task: Task) -> Done:
    """Take the time that the task's file name says."""
    time.sleep(float(task.slo))
    return Done(task.cell, 0, "promoted", str(RUN))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--slos", type=int, default=20)
    parser.add_argument("--mean", type=float, default=60.0, help="seconds of a cell in the mean")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    drawn = random.Random(given.seed)
    cells = cells_to_run(
        Cell(f"slo-{slo}", Path(), f"host-{host}", seconds=given.mean * drawn.uniform(0.5, 1.5))
        for slo in range(given.slos)
        for host in range(given.hosts)
    )
    best = max(sum(one.seconds for one in cells if one.host == f"host-{host}") for host in range(given.hosts))
    own, peak, first, begun = psutil.Process(), 0, 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = FleetFile(Path(folder), cells, Earlier("now", "now"))

        def report(_name: str, what: str, detail: Mapping[str, Any]) -> None:
            nonlocal peak, first
            if what == "done":
                file.take(Done(**detail))
            peak = max(peak, own.memory_info().rss)
            if what == "running" and not first:
                first = time.monotonic()

        done = run(cells, lambda one: Task(one.name, str(one.seconds), one.host, "", ""), report, retries=0, body=sleep)
        took = time.monotonic() - first
        file.end("then")
    peak = max(peak, own.memory_info().rss)
    assert len(done) == len(cells)
    spent = sum(own.cpu_times()[:4]) / len(cells)  # with that of the worker, which has ended
    busy = psutil.getloadavg()[2] / (psutil.cpu_count() or 1)
    print("| hosts | cells | mean cell | took | best possible | more | lost a cell | controller memory | CPU a cell |")
    print("|---|---|---|---|---|---|---|---|---|")
    print(
        f"| {given.hosts} | {len(cells)} | {given.mean:g} s | {took:.0f} s | {best:.0f} s | {took / best - 1:+.1%} "
        f"| {(took - best) / given.slos:.2f} s | {peak / 1e6:.0f} MB | {spent * 1e3:.0f} ms |"
    )
    print(f"start of Dask {first - begun:.1f} s; load of the machine {busy:.1f} a processor in the last 15 min")


if __name__ == "__main__":
    main()
