"""Files that several processes share: a lock on a file, and writing a whole file at once."""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

UNNAMED_S = 0.5
"""How long a lock may be held with an empty file: its holder is about to write its name, or only looks. No longer."""


class LockHeldError(Exception):
    """Another process holds the lock; `owner` is what that process wrote into the file."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def write_atomically(path: Path, content: str | bytes, *, sync: bool = False, temporary: Path | None = None) -> None:
    """Replace the file at *path*: a reader sees the old content or the new one, never a part. Raise OSError.

    With *sync* the content is on the disk when this returns. *temporary* is the file that is written first.
    """
    temporary = temporary or path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


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
                left = _lock(descriptor)
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
        return left

    def release(self) -> None:
        """Free the lock, and empty or remove its file: what a file still says is of a holder that was killed."""
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
    """Lock the file and return its text; wait for a process that only looks, or has yet to write its name."""
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
    """Tell whether the file is still at *path*: it may have been removed between opening and locking it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _text(descriptor: int) -> str:
    return os.pread(descriptor, 4096, 0).decode(errors="replace")
