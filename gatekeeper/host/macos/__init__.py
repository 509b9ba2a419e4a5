"""The sources on a Mac: system calls, the tools that macOS ships, and macmon."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace

from gatekeeper.core.system.system_names import tools_stand_in
from gatekeeper.host.macos import (
    footprint,
    ioreg,
    macmon,
    notifyutil,
    pmset,
    powermetrics,
    ps,
    sysctl,
    system_calls,
    vm_stat,
)
from gatekeeper.host.sources import Source


def sources(pids: Callable[[], Sequence[int]]) -> list[Source]:
    """Return every source on a Mac; where two have the same value, the first one counts.

    A tool whose values system calls give is started only while they do not.
    """
    library = ctypes.CDLL(None, use_errno=True)
    native, tools = _native(library, pids), [vm_stat.TOOL, *sysctl.TOOLS, notifyutil.TOOL, footprint.tool(pids)]
    return [
        *native, *(replace(tool, fallback=bool(native)) for tool in tools), powermetrics.STREAM, ioreg.TOOL,
        macmon.STREAM, pmset.SUPPLY, pmset.MODE, pmset.THERM, ps.TOOL,
    ]  # fmt: skip


def _native(library: ctypes.CDLL, pids: Callable[[], Sequence[int]]) -> list[Source]:
    """Return the sources that are system calls of *library*; none on another system, or where tools stand in for it."""
    if tools_stand_in() or not system_calls.has_calls(library):
        return []
    return [
        system_calls.HostStatistics(library),
        system_calls.SysctlByName(library),
        system_calls.ThermalLevel(library),
        footprint.ProcPidRusage(pids, library),
    ]
