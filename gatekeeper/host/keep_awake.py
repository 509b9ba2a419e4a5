"""Sleep of the host: kept away while a run measures, and when it would come."""

import contextlib
import os
import shutil
from collections.abc import Iterator

from gatekeeper.core.system.system_names import this_platform
from gatekeeper.host.macos import pmset
from gatekeeper.host.tool_commands import run, running


@contextlib.contextmanager
def keep_awake(platform: str | None = None) -> Iterator[None]:
    """Hold `caffeinate` for this process on macOS; nothing elsewhere.

    It watches our process id, so it ends with us even if we are killed. If the host sleeps all the same, the samples
    show it: the time of day jumps against the monotonic clock.
    """
    if (platform or this_platform()) != "macos" or shutil.which("caffeinate") is None:
        yield
        return
    with running(["caffeinate", "-i", "-m", "-s", "-w", str(os.getpid())]):
        yield


def idle_sleep_seconds() -> float | None:
    """Return the idle seconds after which this host goes to sleep; None for never and for unknown."""
    output = run(["pmset", "-g"]) if this_platform() == "macos" else None
    return (pmset.parse_sleep(output) or None) if output is not None else None
