"""A lock between processes: a file that names its holder, and which the kernel frees when that process ends."""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gatekeeper.core.system.files import open_regular

UNNAMED_S = 0.5
"""Seconds a lock may be held with an empty file, by a process that is about to write its name or only reads one."""


class LockHeldError(Exception):
    """Another process holds the lock; `owner` is what that process wrote into the file."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def _open(path: Path) -> int:
    return open_regular(path, os.O_RDWR | os.O_CREAT)


class FileLock:
    """A lock on the file at *path*, which names the holder. The kernel frees it when the holding process ends.

    *opener* opens the file and may create it. With *remove* the file goes when the lock is released.
    """

    def __init__(self, path: Path, *, opener: Callable[[Path], int] = _open, remove: bool = False) -> None:
        self.path = path
        self._opener, self._remove = opener, remove
        self._descriptor: int | None = None

    def acquire(self, owner: str) -> str:
        """Lock the file and write *owner* into it; return what a holder that was killed left there.

        Raise LockHeldError where another process holds the lock, and whatever the opener raises.
        """
        while True:
            descriptor = self._opener(self.path)
            try:
                leftover = _lock(descriptor)
                if _has_name(descriptor, self.path):
                    break
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        self._descriptor = descriptor
        with suppress(OSError):  # a full disk: the lock holds all the same, it only names no holder
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, owner.encode(), 0)
        return leftover

    def release(self) -> None:
        """Free the lock, and empty or remove its file: only a holder that was killed leaves text in it."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            if self._remove:
                self.path.unlink()
            else:
                os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = None

    def holder(self) -> str | None:
        """Return what the holder wrote; None where no process holds the lock. The opener may raise."""
        descriptor = self._opener(self.path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _text(descriptor)
        finally:
            os.close(descriptor)
        return None


def _lock(descriptor: int) -> str:
    """Lock the file and return its text; wait for a process that only reads, or has yet to write its name."""
    end = time.monotonic() + UNNAMED_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _text(descriptor)
            if owner.strip() or time.monotonic() > end:
                raise LockHeldError(owner) from None
            time.sleep(UNNAMED_S / 20)
        else:
            return _text(descriptor)


def _has_name(descriptor: int, path: Path) -> bool:
    """Return whether the file is still at *path*: it may have been removed between opening and locking it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _text(descriptor: int) -> str:
    return os.pread(descriptor, 4096, 0).decode(errors="replace")
