"""Which sources each platform has."""

import sys
from collections.abc import Callable, Sequence

from gatekeeper.host import linux, macos
from gatekeeper.host.source import Source
from gatekeeper.terms.errors import InputError, did_you_mean

PLATFORMS = ("macos", "linux")


def this() -> str:
    """Name the platform we run on; another one has no sources and says so."""
    return {"darwin": "macos", "linux": "linux"}.get(sys.platform, sys.platform)


def sources(platform: str | None, pids: Callable[[], Sequence[int]]) -> Sequence[Source]:
    """Return the sources of *platform*, this one when None, in the order they are preferred."""
    if platform is not None and platform not in PLATFORMS:
        raise InputError(f"unknown platform '{platform}'", hint=did_you_mean(platform, PLATFORMS))
    name = platform or this()
    if name == "linux":
        return linux.sources(pids)
    return macos.sources(pids) if name == "macos" else []
