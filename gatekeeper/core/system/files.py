"""Files: a lock between processes, atomic writes, and the cache of file digests."""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

UNNAMED_S = 0.5
"""Seconds a lock may be held with an empty file, by a process that is about to write its name or only reads one."""


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


class HashCache:
    """Remembers the digest of a file by its path, size, modification time and inode, so that it is read once.

    Without a *path* nothing is remembered: every file is read again.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        try:
            known = json.loads(path.read_text()) if path is not None else {}
        except (OSError, ValueError):
            known = {}
        self._known: dict[str, list[Any]] = known if isinstance(known, dict) else {}

    def sha256(self, path: Path) -> str:
        """Return the digest of the file at *path*."""
        real = path.resolve()
        if self._path is None:
            return file_sha256(real)
        status = real.stat()
        mark = [status.st_size, status.st_mtime_ns, status.st_ino]
        known = self._known.get(str(real))
        if isinstance(known, list) and len(known) == 4 and known[:3] == mark:
            return str(known[3])
        digest = file_sha256(real)
        self._known[str(real)] = [*mark, digest]
        self._save(self._path)
        return digest

    def _save(self, path: Path) -> None:
        with suppress(OSError):  # a cache that cannot be written costs time, never the run
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(self._known))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file of any size, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def user_hash_cache() -> Path:
    """Return the file of the user's hash cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "gatekeeper" / "hashes.json"
