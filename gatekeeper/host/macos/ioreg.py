"""ioreg: the GPU's utilisation and memory, from the statistics its driver publishes."""

import re

from gatekeeper.host.sources import MOST_MEMORY, Status, Tool, Values, failure, find_agreed_text, parse_number
from gatekeeper.host.tool_commands import Output

PROVIDES = ("gpu_active", "gpu_memory", "gpu_memory_allocated", "gpu_resets")


def _field(text: str, key: str, most: float) -> float | Status:
    # The quotes make it exact: `In use system memory (driver)` is another field, `=4` may be a cut 41, `=4,1` a 4.1.
    values = re.findall(rf'"{re.escape(key)}"=(\d+)(?=,"|}})', text)
    return parse_number(find_agreed_text(values), most=most) if values else Status.ABSENT


def parse(output: Output) -> Values:
    """Return of the first accelerator: utilisation as a share, memory in use and allocated in bytes, resets since boot.

    What is in use falls while the GPU is idle; what is allocated holds the model then too.
    """
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
    percent = _field(match.group(), "Device Utilization %", 100)
    return {
        "gpu_active": percent if isinstance(percent, Status) else percent / 100,
        "gpu_memory": _field(match.group(), "In use system memory", MOST_MEMORY),
        "gpu_memory_allocated": _field(match.group(), "Alloc system memory", MOST_MEMORY),
        "gpu_resets": _field(match.group(), "recoveryCount", MOST_RESETS),
    }


MOST_RESETS = 1e6
PERIOD = 1.9
"""Seconds: each second sample; exactly 2 would skip one that is taken a moment early."""

TOOL = Tool(
    "ioreg", PROVIDES, lambda: ["ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"], parse, period=PERIOD
)
