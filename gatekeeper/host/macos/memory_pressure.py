"""memory_pressure -Q: a cross-check of the memory size. Its percentage counts active pages, not free ones."""

import re

from gatekeeper.host.sources import MOST_MEMORY, Status, Tool, Values, failure, written
from gatekeeper.host.tool_commands import Output

PROVIDES = ("memory_free_share", "memory_total")


def parse(output: Output) -> Values:
    """Return the kernel's own percentage as a share, and the memory size."""
    if status := failure(output):
        return dict.fromkeys(PROVIDES, status)
    text = output.text or ""
    total = re.search(r"^The system has (\d+) \((\d{1,12}) pages with a page size of (\d{1,6})\)\.", text, re.MULTILINE)
    share = re.search(r"^System-wide memory free percentage: (\d{1,3})%", text, re.MULTILINE)
    return {
        "memory_free_share": int(share.group(1)) / 100 if share and int(share.group(1)) <= 100 else Status.PARSE_ERROR,
        "memory_total": _total(*total.groups()) if total else Status.PARSE_ERROR,
    }


def _total(size: str, pages: str, page_size: str) -> float | Status:
    """Return the size in bytes; a parse error where the pages beside it give another."""
    total = written(size, most=MOST_MEMORY)
    return total if total == int(pages) * int(page_size) else Status.PARSE_ERROR


TOOL = Tool("memory_pressure", PROVIDES, lambda: ["memory_pressure", "-Q"], parse, period=10.0)
