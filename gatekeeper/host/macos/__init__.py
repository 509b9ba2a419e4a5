"""The sources on a Mac: the tools that macOS ships, and macmon."""

import sys
from collections.abc import Callable, Sequence

from gatekeeper.host.macos import (
    footprint,
    ioreg,
    macmon,
    memory_pressure,
    notifyutil,
    pmset,
    powermetrics,
    ps,
    sysctl,
    vm_stat,
    zeus,
)
from gatekeeper.host.sources import Source


def sources(pids: Callable[[], Sequence[int]]) -> list[Source]:
    """Return every source on a Mac; where two have the same value, the first one counts."""
    tree: Source = footprint.ProcPidRusage(pids) if sys.platform == "darwin" else footprint.tool(pids)
    return [
        vm_stat.TOOL, *sysctl.TOOLS, notifyutil.TOOL, tree, powermetrics.STREAM, ioreg.TOOL, macmon.STREAM,
        *zeus.sources(), pmset.SUPPLY, pmset.MODE, pmset.THERM, ps.TOOL, memory_pressure.TOOL,
    ]  # fmt: skip
