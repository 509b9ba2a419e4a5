"""Keeping the host awake: a Mac that sleeps in the middle of a soak proves nothing."""

import contextlib
import os
import shutil
from collections.abc import Iterator

from gatekeeper.host.child import Child, run
from gatekeeper.host.macos import pmset
from gatekeeper.host.platforms import this


@contextlib.contextmanager
def keep_awake(platform: str | None = None) -> Iterator[None]:
    """Hold `caffeinate` for this process on macOS; nothing elsewhere.

    It watches our process id, so it ends with us even if we are killed. Whether the host slept all the same is read
    from the samples: the time of day jumps against the monotonic clock.
    """
    if (platform or this()) != "macos" or shutil.which("caffeinate") is None:
        yield
        return
    with Child(["caffeinate", "-i", "-m", "-s", "-w", str(os.getpid())]):
        yield


def sleeps_after(platform: str | None = None) -> float | None:
    """Return the idle seconds after which this host goes to sleep by itself; None where it never does, or is silent."""
    output = run(["pmset", "-g"]) if (platform or this()) == "macos" else None
    return (pmset.parse_sleep(output) or None) if output is not None else None
