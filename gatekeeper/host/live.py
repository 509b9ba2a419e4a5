"""Watching the host: one line, or one table, for each sample."""

import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from gatekeeper.core.clock import SystemClock, stamp
from gatekeeper.core.records import HostSample
from gatekeeper.host.capabilities import hints
from gatekeeper.host.platforms import sources
from gatekeeper.host.poller import Panel
from gatekeeper.host.sampler import GRACE_MOST, GRACE_SHARE

Table = Callable[[HostSample, Mapping[str, str]], str]


def document(sample: HostSample) -> dict[str, Any]:
    """Return a sample as one NDJSON object of `gatekeeper host --json`."""
    return {"at": sample.at, "values": {name: asdict(reading) for name, reading in sample.values.items()}}


def watch(
    samples: int | None,
    interval: float,
    platform: str | None,
    json_output: bool,
    write: Callable[[str], None],
    write_hint: Callable[[str], None],
    table: Table,
) -> None:
    """Write *samples* samples, or samples until interrupted, and then what would make missing values appear.

    *table* renders for a person; it is not called for JSON.
    """
    clock = SystemClock()
    with Panel(sources(platform, tuple), interval=interval) as panel:
        panel.settle(streams=True)
        begin, hinted = time.monotonic_ns(), False
        for number in itertools.count() if samples is None else range(samples):
            panel.wait((begin + number * interval * 1e9 - time.monotonic_ns()) / 1e9)
            now, wall = clock.now_ns(), clock.wall()
            cost = time.thread_time_ns()
            panel.refresh(min(GRACE_SHARE * interval, GRACE_MOST))
            sample = HostSample(stamp(wall), now, panel.readings(), took_ns=time.thread_time_ns() - cost)
            lines = hints(platform, sample.values, panel.details())
            write(json.dumps(document(sample), allow_nan=False) if json_output else table(sample, panel.details()))
            if not hinted:
                for line in lines:
                    write_hint(line)
                hinted = True
