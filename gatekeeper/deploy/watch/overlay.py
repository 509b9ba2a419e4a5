"""The overlay: the file that servers, routers and scripts read to know which workloads may speculate now."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tomli_w

from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.core.files import FileLock, LockHeldError, write_atomically


class Lock:
    """Held from entering to leaving, on a file beside the one it is about; it ends with its process in any case."""

    def __init__(self, about: Path, *, owner: Mapping[str, Any], option: str) -> None:
        """Say in the lock who the *owner* is; *option* names another file in the place of *about*."""
        self._about, self._owner, self._option = about, owner, option
        self._lock = FileLock(about.with_name(f".{about.name}.lock"))

    def __enter__(self) -> Self:
        """Take it, or say who has it."""
        try:
            self._lock.acquire(json.dumps({"pid": os.getpid(), **self._owner}) + "\n")
        except OSError as error:
            raise GatekeeperError(
                f"cannot write {self._about}: {error.strerror or error}",
                hint=f"make its folder writable, or name another {self._option}",
            ) from error
        except LockHeldError as held:
            raise HostLacksError(
                f"{self._about} is kept by another watch: {_holder(held.owner)}",
                hint="end that one, or give this one an --overlay and a --journal of its own",
            ) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give it back."""
        self._lock.release()


def _holder(owner: str) -> str:
    """Say who holds the lock, in its own words."""
    try:
        told = json.loads(owner)
        return f"process {told['pid']}, since {told['since']}, for {told['policy']}"
    except (ValueError, KeyError, TypeError):
        return "it has not said who it is"


SCHEMA = 1
"""Version of the overlay. 1: the first."""
HEAD = "# Kept by `gatekeeper watch`. Past next_look_before nothing here counts: decode plainly.\n"


@dataclass(frozen=True, slots=True)
class Lane:
    """What one workload may do now."""

    workload: str
    speculation: bool
    because: str
    setting: tuple[tuple[str, Any], ...] = ()
    """The knobs to speculate with; none for plain decoding."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """What a request says for that, where the server takes it with the request."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """What was true at an instant, and until when it may be believed."""

    slo: str
    policy_sha256: str
    at: datetime
    next_look_before: datetime
    """Past this nobody looks any more: a reader decodes plainly."""
    lanes: tuple[Lane, ...]
    ended: str | None = None
    """Why nobody looks any more, None while somebody does."""

    def text(self) -> str:
        """Return the file: the keys of a route stand in the order that line-wise readers rely on."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "slo": self.slo,
            "policy_sha256": self.policy_sha256,
            "at": second(self.at),
            "next_look_before": second(self.next_look_before),
        }
        if self.ended is not None:
            document["ended"] = self.ended
        document["route"] = [
            {
                "workload": lane.workload,
                "speculation": lane.speculation,
                "because": " ".join(lane.because.split()),
                **({"request": dict(lane.request)} if lane.request else {}),
                "setting": {knob: value for knob, value in lane.setting if value is not None},
            }
            for lane in self.lanes
        ]
        return HEAD + tomli_w.dumps(document)


def second(instant: datetime) -> str:
    """Write an instant in whole seconds, rounded up: such stamps of UTC compare as text."""
    whole = datetime.fromtimestamp(math.ceil(instant.timestamp()), UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%SZ")


class Publisher:
    """The one writer of an overlay, locked from entering to leaving."""

    def __init__(self, path: Path, *, owner: Mapping[str, Any]) -> None:
        self.path = path
        self._lock = Lock(path, owner=owner, option="--overlay")
        self.trouble: str | None = None
        """Why the newest overlay is not on disk, None where it is."""

    def __enter__(self) -> Self:
        """Take the lock, and see that the folder can be written before anything is asked of a server."""
        self._lock.__enter__()
        probe = self._fresh()
        try:
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            self.__exit__(None, None, None)
            raise GatekeeperError(
                f"cannot write {self.path}: {error.strerror or error}",
                hint="make its folder writable, or name another --overlay",
            ) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give the lock back."""
        self._lock.__exit__(kind, error, at)

    def publish(self, overlay: Overlay) -> bool:
        """Put *overlay* in place of the one before and tell whether that worked.

        Where it did not, readers keep the one before until it is too old to count: they decode plainly then.
        """
        try:
            # Not synced to the disk: after a power cut the file is old, or empty, and readers decode plainly.
            write_atomically(self.path, overlay.text(), temporary=self._fresh())
        except OSError as error:
            self.trouble = f"cannot write {self.path}: {error.strerror or error}"
            return False
        self.trouble = None
        return True

    def _fresh(self) -> Path:
        # One name for all: the lock admits one writer, and what a killed one left behind is written over.
        return self.path.with_name(f".{self.path.name}.fresh")
