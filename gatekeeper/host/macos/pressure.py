"""The pressure that a Mac tells of its memory and of its heat, each by a tool that prints a line or two.

memory_pressure -Q is a cross-check of the memory size; its percentage counts active pages, not free ones. notifyutil
prints the thermal level; a key that does not exist prints 0 as well, so 0 alone proves nothing.
"""

import re

from gatekeeper.host.sources import MOST_MEMORY, Status, Tool, Values, failure, written
from gatekeeper.host.tool_commands import Output

_OF_MEMORY = ("memory_free_share", "memory_total")


def parse_memory(output: Output) -> Values:
    """Return the kernel's own percentage as a share, and the memory size."""
    if status := failure(output):
        return dict.fromkeys(_OF_MEMORY, status)
    text = output.text or ""
    total = re.search(r"^The system has (\d+) \((\d{1,12}) pages with a page size of (\d{1,6})\)\.", text, re.MULTILINE)
    share = re.search(r"^System-wide memory free percentage: (\d{1,3})%", text, re.MULTILINE)
    return {
        "memory_free_share": int(share.group(1)) / 100 if share and int(share.group(1)) <= 100 else Status.PARSE_ERROR,
        "memory_total": _memory_size(*total.groups()) if total else Status.PARSE_ERROR,
    }


def _memory_size(size: str, pages: str, page_size: str) -> float | Status:
    """Return the size in bytes; a parse error where the pages beside it give another."""
    total = written(size, most=MOST_MEMORY)
    return total if total == int(pages) * int(page_size) else Status.PARSE_ERROR


THERMAL_KEY = "com.apple.system.thermalpressurelevel"
_OF_HEAT = ("thermal_level",)
THERMAL_LEVELS = ("Nominal", "Moderate", "Heavy", "Trapping", "Sleeping")
"""The names of levels 0 to 4."""


def parse_thermal(output: Output) -> Values:
    """Return the level 0 to 4; failures are printed on stdout with exit code 0."""
    if status := failure(output):
        return dict.fromkeys(_OF_HEAT, status)
    text = output.text or ""
    if re.fullmatch(rf"{re.escape(THERMAL_KEY)}: Failed with code \d+\s*", text):
        return dict.fromkeys(_OF_HEAT, Status.ABSENT)
    match = re.fullmatch(rf"{re.escape(THERMAL_KEY)} ([0-4])[ \t]*\n", text)
    return {"thermal_level": float(match.group(1)) if match else Status.PARSE_ERROR}


MEMORY = Tool("memory_pressure", _OF_MEMORY, lambda: ["memory_pressure", "-Q"], parse_memory, period=10.0)
THERMAL = Tool("notifyutil", _OF_HEAT, lambda: ["notifyutil", "-g", THERMAL_KEY], parse_thermal)
