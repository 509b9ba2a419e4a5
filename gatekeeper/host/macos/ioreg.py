"""ioreg: the GPU's utilisation and memory, from the statistics its driver publishes."""

import re

from gatekeeper.host.commands import Output
from gatekeeper.host.sources import Status, Tool, Values, failure, number, written

PROVIDES = ("gpu_active", "gpu_memory", "gpu_resets")


def _field(text: str, key: str) -> float | Status:
    # The quote and the delimiter make it exact: `In use system memory (driver)` is another field, `=4` may be a cut 41.
    match = re.search(rf'"{re.escape(key)}"=(\d+)(?=[,}}])', text)
    return written(match.group(1)) if match else Status.ABSENT


def parse(output: Output) -> Values:
    """Return utilisation as a share, memory in use in bytes, and resets since boot, of the first accelerator."""
    if status := failure(output):
        return dict.fromkeys(PROVIDES, status)
    text = output.text or ""
    if '"PerformanceStatistics"' not in text:
        return dict.fromkeys(
            PROVIDES, Status.PARSE_ERROR if text.strip() and "IOAccelerator" not in text else Status.ABSENT
        )
    match = re.search(r'"PerformanceStatistics" = \{.*\}', text)
    if match is None:
        return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    percent = _field(match.group(), "Device Utilization %")
    return {
        "gpu_active": percent if isinstance(percent, Status) else number(percent / 100, most=1.0),
        "gpu_memory": _field(match.group(), "In use system memory"),
        "gpu_resets": _field(match.group(), "recoveryCount"),
    }


PERIOD = 1.9
"""Seconds: each second sample; exactly 2 would skip one that is taken a moment early."""

TOOL = Tool(
    "ioreg", PROVIDES, lambda: ["ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"], parse, period=PERIOD
)
