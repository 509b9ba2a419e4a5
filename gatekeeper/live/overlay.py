"""The overlay, `policy.live.toml`: which workloads may speculate now, for servers, routers and scripts to read."""

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, Field, ValidationError

from gatekeeper.core import parse
from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.core.records import Setting
from gatekeeper.core.system import files
from gatekeeper.core.system.file_lock import FileLock, LockHeldError
from gatekeeper.core.system.files import write_atomically

SCHEMA = 1
"""Version of the overlay."""
HEAD = "# Written by `gatekeeper watch`. After next_look_before this file is invalid: decode plainly.\n"


@dataclass(frozen=True, slots=True)
class OverlayRoute:
    """Whether and how one workload may speculate now."""

    workload: str
    speculation: bool
    because: str
    setting: tuple[tuple[str, Any], ...] = ()
    """The knobs for speculation; empty for plain decoding."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """The request fields that select it, if the server accepts them per request."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """The state of the routes at one instant, and until when a reader may use it."""

    slo: str
    policy_sha256: str
    verdict_sha256: str
    at: datetime
    next_look_before: datetime
    """After this a reader must decode plainly, because the next overlay is overdue."""
    routes: tuple[OverlayRoute, ...]
    ended: str | None = None
    """Why the watch has ended; None while it runs."""

    def text(self) -> str:
        """Return the file's text; line-by-line readers rely on the order of a route's keys."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "slo": self.slo,
            "policy_sha256": self.policy_sha256,
            "verdict_sha256": self.verdict_sha256,
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
    """Return an instant in UTC and whole seconds, rounded up; such stamps compare as text."""
    seconds = datetime.fromtimestamp(math.ceil(instant.timestamp()), UTC)
    return seconds.strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def hold_lock(path: Path, *, owner: Mapping[str, Any], option: str) -> Iterator[None]:
    """Hold the lock of a watch on *path* and write its *owner* into it; *option* sets another path.

    Raise HostLacksError, with the holder, if another watch holds it.
    """
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(json.dumps({"pid": os.getpid(), **owner}) + "\n")
    except OSError as error:
        raise _not_writable(path, option, error) from error
    except LockHeldError as held:
        hint = "stop it, or give this one files of its own: --overlay, --log, and the proxy's --records"
        raise HostLacksError(f"{path} is in use by another watch or proxy: {_holder(held.owner)}", hint=hint) from None
    try:
        yield
    finally:
        lock.release()


def _holder(owner: str) -> str:
    try:
        written = parse.json_object(owner)
        return f"process {written['pid']}, since {written['since']}, for {written['policy']}"
    except (ValueError, KeyError, TypeError):
        return "its process is unknown"


def check_writable(path: Path) -> None:
    """Raise GatekeeperError where the overlay cannot be written, before any request is sent."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        write_atomically(_temporary(path), "")
        _temporary(path).unlink()
    except OSError as error:
        raise _not_writable(path, "--overlay", error) from error


def write(path: Path, overlay: Overlay) -> str | None:
    """Replace the overlay at *path*; return why that failed, None on success.

    After a failure readers use the previous overlay until it expires, and then decode plainly.
    """
    try:
        # Not synced to the disk: after a power failure the file is old or empty, and readers decode plainly.
        write_atomically(path, overlay.text(), temporary=_temporary(path))
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return None


def _temporary(path: Path) -> Path:
    # One fixed name: the lock allows one writer, and the leftover of a killed one is overwritten.
    return path.with_name(f".{path.name}.fresh")


def _not_writable(path: Path, option: str, error: OSError) -> GatekeeperError:
    hint = f"make its folder writable, or name another {option}"
    return GatekeeperError(f"cannot write {path}: {error.strerror or error}", hint=hint)


@dataclass(frozen=True, slots=True)
class PublishedRoutes:
    """What the overlay on disk says of the routes of one certificate."""

    routes: Mapping[str, tuple[Setting | None, str]] = field(default_factory=dict)
    """The setting that each workload may speculate with, None for plain decoding; and why."""
    damage: str | None = None


class _Route(BaseModel):
    workload: str
    speculation: bool = Field(strict=True)
    because: str
    setting: dict[str, Any]


class _Overlay(BaseModel):
    schema_: Literal[1] = Field(alias="schema")
    verdict_sha256: str
    route: list[_Route]


def read_overlay(path: Path, verdict_sha256: str) -> PublishedRoutes:
    """Return what the overlay at *path* says of this certificate; one that is missing or of another says nothing."""
    try:
        overlay = _Overlay.model_validate(parse.toml_table(files.read_regular(path).decode()))
    except FileNotFoundError:
        return PublishedRoutes()
    except (OSError, ValueError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        reason = f"{first['loc'][0]}: {first['msg']}" if first else getattr(error, "strerror", None) or str(error)
        return PublishedRoutes(damage=f"the overlay {path} cannot be read: {reason}")
    if overlay.verdict_sha256 != verdict_sha256:
        return PublishedRoutes()
    return PublishedRoutes(
        {
            route.workload: (tuple(sorted(route.setting.items())) if route.speculation else None, route.because)
            for route in overlay.route
        }
    )
