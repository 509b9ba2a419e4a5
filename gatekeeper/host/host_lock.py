"""The lock of a host: one run measures at a time, because two would measure each other."""

import getpass
import json
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.core.files import FileLock, LockHeldError
from gatekeeper.core.units import show_seconds

LOCK = "GATEKEEPER_HOST_LOCK"
"""Names another lock file. Who sets it measures beside the runs that take the usual one."""
OWNER = "GATEKEEPER_OWNER"
"""For whom a run is made that another program started: a run from another machine names that machine."""
DEFAULT_PATH = Path("/tmp/gatekeeper-host.lock")  # noqa: S108 (one file for all users of the host; a link there is refused)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a host, as the lock file says."""

    who: str
    run: str
    pid: int
    since: str

    @classmethod
    def parse(cls, text: str) -> "Holder | None":
        """Parse the text of a lock file; None where it cannot be parsed."""
        try:
            fields: Mapping[str, Any] = json.loads(text)
            datetime.fromisoformat(fields["since"])
            return cls(str(fields["who"]), str(fields["run"]), int(fields["pid"]), str(fields["since"]))
        except (ValueError, TypeError, LookupError):
            return None

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)

    def describe(self, now: datetime) -> str:
        """Name the owner and how long ago it began."""
        seconds = max(0.0, (now - datetime.fromisoformat(self.since)).total_seconds())
        return f"{self.who}, run {self.run} (process {self.pid}), for {show_seconds(seconds)}"


def this_owner() -> str:
    """Name for whom a run here is made: USER@HOST, or what a run from another machine says."""
    return os.environ.get(OWNER) or f"{_user()}@{socket.gethostname()}"


@contextmanager
def hold_host(run: str) -> Iterator[str | None]:
    """Hold this host for the run named *run*; give a remark where a dead run's lock was taken over.

    A host that another run holds is a HostLacksError with its owner and age. The lock is the kernel's: it ends with
    the process that holds it, so one that is free but not empty was left by a run that was killed.
    """
    lock = _host_lock()
    owner = {"who": this_owner(), "run": run, "pid": os.getpid(), "since": stamp(_now())}
    try:
        left = lock.acquire(json.dumps({"schema": 1, **owner}) + "\n")
    except LockHeldError as held:
        by = _description(held.owner) or "a run that does not say whose it is"
        raise HostLacksError(
            f"this host is occupied by {by}",
            hint="two runs would measure each other: wait for it, or end it; its lock ends with it",
        ) from None
    try:
        if left.strip():
            by = _description(left) or "a run that did not say whose it was"
            yield f"{lock.path} was left by {by}; that run is dead, and its lock was taken over"
        else:
            yield None
    finally:
        lock.release()


def lock_holder() -> Holder | None:
    """Return who holds this host now; None where it is free, or the holder cannot be read."""
    try:
        held = _host_lock().holder()
    except GatekeeperError:
        return None
    return Holder.parse(held) if held is not None else None


def _host_lock() -> FileLock:
    # The file stays: removed, every user of the host would have to be able to make it anew.
    return FileLock(Path(os.environ.get(LOCK) or DEFAULT_PATH), opener=_open)


def _description(text: str) -> str:
    """Name the owner that a lock file speaks of; empty where it cannot be read."""
    owner = Holder.parse(text)
    return owner.describe(_now()) if owner is not None else ""


def _open(path: Path) -> int:
    """Open the lock file for every user of the host, without following a link that another user laid there."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            # Without O_CREAT first: Linux refuses to create what another user made in a sticky folder.
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            descriptor = os.open(path, flags | os.O_CREAT, 0o666)
            with suppress(OSError):
                os.fchmod(descriptor, 0o666)  # the umask took what other users need
    except OSError as error:
        raise GatekeeperError(
            f"cannot lock this host: {path}: {error.strerror}", hint=f"remove it, or name another file with {LOCK}"
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise GatekeeperError(
            f"cannot lock this host: {path} is no file", hint=f"remove it, or name another file with {LOCK}"
        )
    return descriptor


def _now() -> datetime:
    return datetime.now(UTC)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
