"""The sources on a Mac: system calls, the tools that macOS ships, and macmon."""

from collections.abc import Callable, Sequence

from gatekeeper.host.macos import ioreg, macmon, pmset, powermetrics, ps, system_calls, vm_stat
from gatekeeper.host.sources import Source


def sources(pids: Callable[[], Sequence[int]]) -> list[Source]:
    """Return every source on a Mac; where two have the same value, the first one counts.

    A value of a system call has no tool beside it, but for the pages of memory: that call may be refused.
    """
    library = system_calls.load_library()
    calls = system_calls.sources(library, pids) if library is not None else []
    tools = (vm_stat.TOOL, powermetrics.STREAM, ioreg.TOOL, macmon.STREAM, pmset.SUPPLY, pmset.MODE, ps.TOOL)
    return [*calls, *tools]
