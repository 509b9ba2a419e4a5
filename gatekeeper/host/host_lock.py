"""The occupancy of a host: one measuring run at a time, for two runs would measure each other."""

import fcntl
import getpass
import json
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.core.units import show_seconds

LOCK = "GATEKEEPER_HOST_LOCK"
"""Names another lock file. Who sets it measures beside the runs that take the usual one."""
OWNER = "GATEKEEPER_OWNER"
"""For whom a run is made that somebody else started: a run from another machine names that machine."""
PLACE = Path("/tmp/gatekeeper-host.lock")  # noqa: S108 (one file for all users of the host; a link there is refused)

NAMELESS_S = 0.5
"""A lock is held without a name for the moment somebody looks at it, or takes it; no longer."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who occupies a host, as the lock file says."""

    who: str
    run: str
    pid: int
    since: str

    @classmethod
    def read(cls, text: str) -> "Owner | None":
        """Return what a lock file says; None where it says nothing that can be read."""
        try:
            said: Mapping[str, Any] = json.loads(text)
            datetime.fromisoformat(said["since"])
            return cls(str(said["who"]), str(said["run"]), int(said["pid"]), str(said["since"]))
        except (ValueError, TypeError, LookupError):
            return None

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)

    def words(self, now: datetime) -> str:
        """Name the owner and how long ago it began."""
        seconds = max(0.0, (now - datetime.fromisoformat(self.since)).total_seconds())
        return f"{self.who}, run {self.run} (process {self.pid}), for {show_seconds(seconds)}"


def this_owner() -> str:
    """Name who asks for a run here: USER@HOST, or whom a run from another machine names."""
    return os.environ.get(OWNER) or f"{_user()}@{socket.gethostname()}"


@contextmanager
def occupied(run: str) -> Iterator[str | None]:
    """Hold this host for the run named *run*; give a remark where a dead run's lock was taken over.

    A host that another run holds is a HostLacksError with its owner and age. The lock is the kernel's: it ends with
    the process that holds it, so one that is free but not empty was left by a run that was killed.
    """
    path = Path(os.environ.get(LOCK) or PLACE)
    descriptor, left = _hold(path)
    try:
        owner = {"who": this_owner(), "run": run, "pid": os.getpid(), "since": stamp(_now())}
        _write(descriptor, json.dumps({"schema": 1, **owner}) + "\n")
        try:
            yield left
        finally:
            # The file stays: a lock on a file that somebody else removes and makes anew is held by two.
            _write(descriptor, "")
    finally:
        os.close(descriptor)


def occupant() -> Owner | None:
    """Return who holds this host now; None where nobody does, or where the holder can not be read."""
    try:
        descriptor = _open(Path(os.environ.get(LOCK) or PLACE))
    except GatekeeperError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Owner.read(_text(descriptor))
    finally:
        os.close(descriptor)
    return None


def _hold(path: Path) -> tuple[int, str | None]:
    """Return the locked file and what a dead holder left in it."""
    while True:
        descriptor = _open(path)
        try:
            left = _take(descriptor, path)
            if _is_at(descriptor, path):
                return descriptor, left
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Tell whether the file still has its name: what cleans /tmp may have taken it before it was locked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _take(descriptor: int, path: Path) -> str | None:
    """Lock the file, or say who has; return what a dead holder left."""
    if not _locked(descriptor):
        owner = Owner.read(_text(descriptor))
        by = owner.words(_now()) if owner is not None else "a run that does not say whose it is"
        raise HostLacksError(
            f"this host is occupied by {by}",
            hint="two runs would measure each other: wait for it, or end it; its lock ends with it",
        )
    text = _text(descriptor)
    if not text.strip():
        return None
    owner = Owner.read(text)
    by = owner.words(_now()) if owner is not None else "a run that did not say whose it was"
    return f"{path} was left by {by}; that run is dead, and its lock was taken over"


def _locked(descriptor: int) -> bool:
    """Lock the file, and tell whether that went; who only looks, or has yet to write its name, is waited for."""
    end = time.monotonic() + NAMELESS_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _text(descriptor).strip() or time.monotonic() > end:
                return False
            time.sleep(NAMELESS_S / 20)
        else:
            return True


def _open(path: Path) -> int:
    """Open the lock file for every user of the host, without following a link that somebody laid there."""
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


def _text(descriptor: int) -> str:
    return os.pread(descriptor, 4096, 0).decode(errors="replace")


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    if text:
        os.pwrite(descriptor, text.encode(), 0)


def _now() -> datetime:
    return datetime.now(UTC)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
