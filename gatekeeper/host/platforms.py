"""Which sources each platform has."""

from collections.abc import Callable, Sequence

from gatekeeper.core.errors import InputError, did_you_mean
from gatekeeper.core.system.system_names import this_platform
from gatekeeper.host import linux, macos
from gatekeeper.host.sources import Source

PLATFORMS = ("macos", "linux")


def platform_sources(platform: str | None, pids: Callable[[], Sequence[int]]) -> Sequence[Source]:
    """Return the sources of *platform*, this one when None, in the order they are preferred."""
    if platform is not None and platform not in PLATFORMS:
        raise InputError(f"unknown platform '{platform}'", hint=did_you_mean(platform, PLATFORMS))
    name = platform or this_platform()
    if name == "linux":
        return linux.sources(pids)
    return macos.sources(pids) if name == "macos" else []
