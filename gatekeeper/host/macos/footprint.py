"""footprint -f bytes: the memory the kernel charges to each process of the subject's tree."""

import re
from collections.abc import Callable, Sequence

from gatekeeper.host.commands import Output
from gatekeeper.host.processes import tree
from gatekeeper.host.sources import Status, Tool, Values, failure

PROVIDES = ("subject_footprint",)

_HEADER = re.compile(r"^.*\[(\d+)\]:.*\bFootprint:\s+(\d+)(?:\s+([A-Za-z]+))?\s*(?:\(.*\))?$", re.MULTILINE)

_UNITS = {"": 1, "B": 1, "bytes": 1, "KB": 1 << 10, "MB": 1 << 20}
"""Units that are exact enough. Whole gigabytes are not: a leak of a quarter would read as none."""


def tool(pids: Callable[[], Sequence[int]]) -> Tool:
    """Return the tool for the tree of *pids*, asked for anew at each run."""
    asked: list[int] = []

    def argv() -> list[str] | None:
        asked[:] = tree(pids())
        return ["footprint", "-f", "bytes", *(part for pid in asked for part in ("-p", str(pid)))] if asked else None

    return Tool("footprint", PROVIDES, argv, lambda output: parse(output, asked), period=5.0, limit=5.0)


def parse(output: Output, pids: Sequence[int]) -> Values:
    """Return the sum over *pids*; a process without its line makes the sum unknown, not smaller."""
    if lack := failure(output):
        return dict.fromkeys(PROVIDES, lack)
    seen: dict[int, float] = {}
    for pid, size, unit in _HEADER.findall(output.text or ""):
        if unit not in _UNITS:
            return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
        seen[int(pid)] = float(int(size) * _UNITS[unit])
    if not pids or not seen.keys() >= set(pids):
        return dict.fromkeys(PROVIDES, Status.PARSE_ERROR)
    return {"subject_footprint": sum(seen[pid] for pid in pids)}
