"""vm_stat, one shot: headroom, wired and compressed memory, swap counters."""

import re

from gatekeeper.host.sources import MOST_MEMORY, MOST_SWAPPED, Status, Tool, Values, failure, number
from gatekeeper.host.tool_commands import Output

PAGES: dict[str, tuple[str, ...]] = {
    # Free without compressing or swapping; `inactive` holds anonymous pages and would count purgeable twice.
    "memory_headroom": ("Pages free", "File-backed pages", "Pages purgeable"),
    "memory_wired": ("Pages wired down",),
    "memory_compressed": ("Pages occupied by compressor",),
    # "Stored" is the size before compression, so compression cannot hide growth.
    "memory_uncompressed_demand": ("Pages wired down", "Anonymous pages", "Pages stored in compressor"),
    # All of the memory but what the firmware keeps: 97 to 98 % of it, unless the size of a page is wrong.
    "memory_counted": (
        "Pages free", "Pages active", "Pages inactive", "Pages speculative", "Pages wired down",
        "Pages occupied by compressor",
    ),
    "swapin_bytes": ("Swapins",),
    "swapout_bytes": ("Swapouts",),
}  # fmt: skip
"""Which rows each value is the sum of, in pages."""
PROVIDES = tuple(PAGES)
PAGE_SIZES = (4096, 16384)
"""Bytes: of Intel and Rosetta, of Apple Silicon."""

TORN_MOST = 0.005
"""The two ways to count resident pages agree at one instant; while counters change they may differ by this share."""

_HEADER = re.compile(r"Mach Virtual Memory Statistics: \(page size of (\d{1,9}) bytes\)")
_ROW = re.compile(r'"?([^":]+)"?:\s+(\d{1,18})\.')


def parse(output: Output) -> Values:
    """Return the values in bytes; rows that are missing, cut off or torn are parse errors, never numbers."""
    if status := failure(output):
        return dict.fromkeys(PROVIDES, status)
    first, *lines = (output.text or "").split("\n")
    header = _HEADER.fullmatch(first.rstrip())
    matches = [match for match in map(_ROW.fullmatch, (line.rstrip() for line in lines)) if match]
    rows = {match.group(1): int(match.group(2)) for match in matches}
    if header is None or int(header.group(1)) not in PAGE_SIZES or len(rows) < len(matches):
        return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    return values_of(rows, int(header.group(1)))


def values_of(rows: dict[str, int], page: int) -> Values:
    """Return the values in bytes of *rows*, counts of pages of *page* bytes by their name in vm_stat."""
    if _torn(rows):
        return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    return {
        name: number(
            sum(rows[part] for part in parts) * page, most=MOST_MEMORY if name.startswith("memory") else MOST_SWAPPED
        )
        if rows.keys() >= set(parts)
        else Status.PARSE_ERROR
        for name, parts in PAGES.items()
    }


def _torn(rows: dict[str, int]) -> bool:
    """Return whether the rows are of different instants: File-backed + Anonymous = active + inactive + speculative."""
    kinds = [rows.get(name) for name in ("File-backed pages", "Anonymous pages")]
    queues = [rows.get(name) for name in ("Pages active", "Pages inactive", "Pages speculative")]
    if None in kinds or None in queues:
        return False
    by_kind, by_queue = sum(filter(None, kinds)), sum(filter(None, queues))
    return abs(by_kind - by_queue) > TORN_MOST * max(by_kind, by_queue)


TOOL = Tool("vm_stat", PROVIDES, lambda: ["vm_stat"], parse, fallback=True)
