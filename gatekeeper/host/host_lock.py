"""The host lock: one run measures at a time, because two would disturb each other."""

import getpass
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.core.parse import ParseError, integer, json_object, moment
from gatekeeper.core.system.environment_variables import GATEKEEPER_HOST_LOCK, GATEKEEPER_OWNER
from gatekeeper.core.system.file_lock import FileLock, LockHeldError
from gatekeeper.core.text import quote
from gatekeeper.core.units import show_seconds

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
            fields = json_object(text)
            moment(fields["since"])
            return cls(
                quote(str(fields["who"])), quote(str(fields["run"])), integer(str(fields["pid"])), fields["since"]
            )
        except (ParseError, LookupError):
            return None

    def describe(self, now: datetime) -> str:
        """Return the owner, the run or the command, and how long it has held the lock."""
        seconds = max(0.0, (now - moment(self.since)).total_seconds())
        what = self.run if self.run.startswith("gatekeeper ") else f"run {self.run}"
        return f"{self.who}, {what} (process {self.pid}), for {show_seconds(seconds)}"


def this_owner() -> str:
    """Return the owner of a run here: USER@HOST, or the one that a remote run was started for."""
    return os.environ.get(GATEKEEPER_OWNER) or f"{_user()}@{socket.gethostname()}"


@contextmanager
def hold_host(run: str) -> Iterator[str | None]:
    """Hold the host lock for the run named *run*; yield a remark where a killed run left its lock file.

    Raise HostLacksError with owner and age where another run holds it. The lock is the kernel's and ends with the
    process that holds it, so a file that is unlocked but not empty was left by a run that was killed.
    """
    lock = _host_lock()
    owner = {"who": this_owner(), "run": run, "pid": os.getpid(), "since": stamp(_now())}
    try:
        stale_text = lock.acquire(json.dumps({"schema": 1, **owner}) + "\n")
    except LockHeldError as error:
        holder = _description(error.owner) or f"another run ({lock.path} does not name its owner)"
        hint = "wait for that run or end it, which releases the lock: two runs would disturb each other"
        raise HostLacksError(f"this host is locked by {holder}", hint=hint) from None
    try:
        if stale_text.strip():
            holder = _description(stale_text) or "an unknown run"
            yield f"took over the lock file {lock.path} of {holder}: that run was killed"
        else:
            yield None
    finally:
        lock.release()


def lock_holder() -> Holder | None:
    """Return who holds the host lock; None where it is free, or its file cannot be read."""
    try:
        text = _host_lock().holder()
    except GatekeeperError:
        return None
    return Holder.parse(text) if text is not None else None


def _host_lock() -> FileLock:
    # The file stays: if it were removed, every user of the host would need the right to create it again.
    return FileLock(Path(os.environ.get(GATEKEEPER_HOST_LOCK) or DEFAULT_PATH), opener=_open)


def _description(text: str) -> str:
    """Return the owner, run and age in a lock file's text; empty where it cannot be read."""
    owner = Holder.parse(text)
    return owner.describe(_now()) if owner is not None else ""


def _open(path: Path) -> int:
    """Open the lock file for every user of the host, without following a link that another user put there."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    hint = f"remove it, or name another file with {GATEKEEPER_HOST_LOCK}"
    try:
        try:
            # First without O_CREAT: in a sticky folder Linux refuses it for a file of another user.
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            descriptor = os.open(path, flags | os.O_CREAT, 0o666)
            with suppress(OSError):
                os.fchmod(descriptor, 0o666)  # the umask has removed what other users need
    except OSError as error:
        raise GatekeeperError(f"cannot lock this host: {path}: {error.strerror}", hint=hint) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise GatekeeperError(f"cannot lock this host: {path} is not a regular file", hint=hint)
    return descriptor


def _now() -> datetime:
    return datetime.now(UTC)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
