"""memory_pressure -Q: a cross-check of the memory size. Its percentage counts active pages: it is not free memory."""

import re

from gatekeeper.host.sources import Found, Lack, Output, Tool, failure, lacking

GIVES = ("memory_free_share", "memory_total")


def parse(output: Output) -> Found:
    """Return the kernel's own percentage as a share, and the memory size."""
    if lack := failure(output):
        return lacking(GIVES, lack)
    text = output.text or ""
    total = re.search(r"^The system has (\d+) \(\d+ pages with a page size of \d+\)\.", text, re.MULTILINE)
    share = re.search(r"^System-wide memory free percentage: (\d{1,3})%", text, re.MULTILINE)
    return {
        "memory_free_share": int(share.group(1)) / 100 if share and int(share.group(1)) <= 100 else Lack.PARSE_ERROR,
        "memory_total": float(total.group(1)) if total else Lack.PARSE_ERROR,
    }


TOOL = Tool("memory_pressure", GIVES, lambda: ["memory_pressure", "-Q"], parse, period=10.0)
