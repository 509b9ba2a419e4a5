"""The overlay, `policy.live.toml`: which workloads may speculate now, for servers, routers and scripts to read."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.core.system.files import FileLock, LockHeldError, write_atomically

SCHEMA = 1
"""Version of the overlay. 1: the first."""
HEAD = "# Kept by `gatekeeper watch`. Past next_look_before nothing here counts: decode plainly.\n"


@dataclass(frozen=True, slots=True)
class OverlayRoute:
    """What one workload may do now."""

    workload: str
    speculation: bool
    because: str
    setting: tuple[tuple[str, Any], ...] = ()
    """The knobs to speculate with; none for plain decoding."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """The fields of a request that ask for it, where the server takes them with the request."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """What was true at an instant, and until when a reader may use it."""

    slo: str
    policy_sha256: str
    at: datetime
    next_look_before: datetime
    """After this a reader decodes plainly: the next overlay is overdue."""
    routes: tuple[OverlayRoute, ...]
    ended: str | None = None
    """Why the watch has ended, None while it runs."""

    def text(self) -> str:
        """Return the file: the keys of a route stand in the order that line-wise readers rely on."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "slo": self.slo,
            "policy_sha256": self.policy_sha256,
            "at": utc_seconds(self.at),
            "next_look_before": utc_seconds(self.next_look_before),
        }
        if self.ended is not None:
            document["ended"] = self.ended
        document["route"] = [
            {
                "workload": route.workload,
                "speculation": route.speculation,
                "because": " ".join(route.because.split()),
                **({"request": dict(route.request)} if route.request else {}),
                "setting": {knob: value for knob, value in route.setting if value is not None},
            }
            for route in self.routes
        ]
        return HEAD + tomli_w.dumps(document)


def utc_seconds(instant: datetime) -> str:
    """Write an instant in whole seconds, rounded up: such stamps of UTC compare as text."""
    whole = datetime.fromtimestamp(math.ceil(instant.timestamp()), UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def locked(path: Path, *, owner: Mapping[str, Any], option: str) -> Iterator[None]:
    """Hold the lock of a watch on *path*, which names its *owner*; *option* is how the user names another path.

    Raise HostLacksError, with the holder, where another watch has it.
    """
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(json.dumps({"pid": os.getpid(), **owner}) + "\n")
    except OSError as error:
        raise _not_writable(path, option, error) from error
    except LockHeldError as held:
        raise HostLacksError(
            f"{path} is kept by another watch: {_holder(held.owner)}",
            hint="end that one, or give this one an --overlay and a --journal of its own",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _holder(owner: str) -> str:
    """Describe the holder of a lock by what it wrote into the file."""
    try:
        written = json.loads(owner)
        return f"process {written['pid']}, since {written['since']}, for {written['policy']}"
    except (ValueError, KeyError, TypeError):
        return "it has not said who it is"


def check_writable(path: Path) -> None:
    """Raise GatekeeperError where the overlay cannot be written, before any request is sent."""
    try:
        _temporary(path).write_text("")
        _temporary(path).unlink()
    except OSError as error:
        raise _not_writable(path, "--overlay", error) from error


def write(path: Path, overlay: Overlay) -> str | None:
    """Replace the overlay at *path*; return why that failed, None where it worked.

    Where it failed, readers have the one before until it is too old to count, and then decode plainly.
    """
    try:
        # Not synced to the disk: after a power cut the file is old, or empty, and readers decode plainly.
        write_atomically(path, overlay.text(), temporary=_temporary(path))
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return None


def _temporary(path: Path) -> Path:
    # One name for all: the lock admits one writer, and what a killed one left behind is written over.
    return path.with_name(f".{path.name}.fresh")


def _not_writable(path: Path, option: str, error: OSError) -> GatekeeperError:
    hint = f"make its folder writable, or name another {option}"
    return GatekeeperError(f"cannot write {path}: {error.strerror or error}", hint=hint)
