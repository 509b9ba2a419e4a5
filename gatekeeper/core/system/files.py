"""Files: opened without following links, a lock between processes, atomic writes, the cache of file digests."""

import errno
import fcntl
import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.system.environment_variables import XDG_CACHE_HOME, XDG_STATE_HOME

MOST_BYTES = 64 << 20
"""Bytes of a file that is read whole: the longest shipped canary file has a hundredth of it, a day's verdict less."""


class NotRegularError(OSError):
    """There is a link, a pipe, a device or a folder where a regular file must be."""


@contextmanager
def open_folder(folder: Path, *, inside: Path | None = None) -> Iterator[int]:
    """Open *folder* and yield its descriptor. Raise OSError.

    The user chose *folder*, or *inside* where it is given, so that one may be a link; nothing below *inside* may be.
    """
    root = folder if inside is None else inside
    parts = folder.relative_to(root).parts
    if ".." in parts:
        raise NotRegularError(errno.EINVAL, f"it leads out of {root}", folder)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with _name_file_in_errors(folder):
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(path: Path, flags: int, *, inside: Path | None = None, mode: int = 0o666) -> int:
    """Open the regular file at *path* with *flags* and return its descriptor.

    A link is not followed, and a pipe or a device is not waited for: both raise NotRegularError. With *inside*, no
    folder between that one and the file may be a link either. Raise OSError.
    """
    with open_folder(path.parent, inside=inside) as folder, _name_file_in_errors(path):
        # Without O_NONBLOCK, opening a pipe waits for its other end.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path.name, flags, mode, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NotRegularError(errno.EINVAL, "it is not a regular file")
    return descriptor


@contextmanager
def _name_file_in_errors(path: Path) -> Iterator[None]:
    """Say which file an error is about, and where it is a link, that links are not followed."""
    try:
        yield
    except NotRegularError as error:
        raise NotRegularError(error.errno, error.strerror, path) from error
    except OSError as error:
        if path.is_symlink():
            raise NotRegularError(error.errno, "it is a link, which is not followed", path) from error
        if error.errno in {errno.EISDIR, errno.ENXIO}:  # ENXIO: a pipe without a reader
            raise NotRegularError(error.errno, "it is not a regular file", path) from error
        raise OSError(error.errno, error.strerror, path) from error


def read_regular(path: Path, *, inside: Path | None = None, most: int | None = None) -> bytes:
    """Return the content of the regular file at *path*, opened as `open_regular` does, of at most *most* bytes.

    Raise OSError; a longer file is EFBIG.
    """
    with os.fdopen(open_regular(path, os.O_RDONLY, inside=inside), "rb") as file:
        return _read_at_most(file, most, path)


def open_input(path: Path) -> IO[bytes]:
    """Open a file that the user named; links are followed. Raise OSError.

    A pipe is not waited for and a device not read, because either may never end.
    """
    # Without O_NONBLOCK, opening a pipe waits for its other end.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    kind = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(kind):
        file.close()
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(code, os.strerror(code) if stat.S_ISDIR(kind) else "it is not a regular file", path)
    return file


def read_input(path: Path, most: int) -> bytes:
    """Return the content of a file that the user named, of at most *most* bytes, as `open_input` opens it."""
    with open_input(path) as file:
        return _read_at_most(file, most, path)


def _read_at_most(file: IO[bytes], most: int | None, path: Path) -> bytes:
    content = file.read(-1 if most is None else most + 1)
    if most is not None and len(content) > most:
        raise OSError(errno.EFBIG, f"it is longer than {most} bytes", path)
    return content


def write_all(descriptor: int, content: bytes) -> None:
    """Write *content* whole; what a full disk took of it is there when this raises OSError."""
    rest = memoryview(content)
    while rest:
        written = os.write(descriptor, rest)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


def append_whole(descriptor: int, content: bytes) -> None:
    """Append *content* to a file, or nothing of it, where the disk is full: the next line begins a line."""
    before = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, content)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


def sync_to_disk(descriptor: int) -> None:
    """Return once what was written to a file or folder is on the disk, where a power failure does not reach it."""
    if sys.platform == "darwin":
        with suppress(OSError):  # a network disk may lack it
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync leaves the content in the cache of the drive
            return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some file systems cannot sync a folder
            raise


def write_atomically(
    path: Path,
    content: str | bytes,
    *,
    sync: bool = False,
    temporary: Path | None = None,
    inside: Path | None = None,
    mode: int = 0o666,
) -> None:
    """Replace the file at *path*: a reader sees the old content or the new one, never a part. Raise OSError.

    With *sync* the content is on the disk when this returns. *temporary* is the file in the same folder that is
    written first; *mode* are its permissions, less the umask. A link at either name is replaced and never followed;
    *inside* is as for `open_regular`. A device or a pipe raises NotRegularError: replaced by root, /dev/null would be
    lost to every program.
    """
    fresh = temporary.name if temporary is not None else f".{path.name}.{os.getpid()}"
    with open_folder(path.parent, inside=inside) as folder:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise NotRegularError(errno.EINVAL, "it is not a regular file", path)
        with suppress(FileNotFoundError):  # left by a killed process
            os.unlink(fresh, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(fresh, flags, mode, dir_fd=folder)
        try:
            write_all(descriptor, content.encode() if isinstance(content, str) else content)
            if sync:
                sync_to_disk(descriptor)
        except OSError:
            with suppress(OSError):  # half of it only fills the disk
                os.unlink(fresh, dir_fd=folder)
            raise
        finally:
            os.close(descriptor)
        os.replace(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        if sync:
            sync_to_disk(folder)


def user_state_folder() -> Path:
    """Return the folder of what gatekeeper keeps for this user on this host. Raise OSError where there is no home.

    It is the one of the XDG Base Directory Specification, where a path that is not absolute is ignored; macOS has its
    own place, unless XDG_STATE_HOME is set.
    """
    root = Path(os.environ.get(XDG_STATE_HOME, ""))
    if not root.is_absolute():
        try:
            home = Path.home()
        except RuntimeError as error:
            raise OSError(errno.ENOENT, "this user has no home folder") from error
        root = home / ("Library/Application Support" if sys.platform == "darwin" else ".local/state")
    return root / "gatekeeper"


def why_not_written(path: Path, error: OSError) -> str:
    """Say why *path* could not be written: no file can be made in a folder such as /proc, which reports it missing."""
    there = next(folder for folder in path.absolute().parents if folder.exists())
    return f"no file can be made in {there}" if error.errno == errno.ENOENT else error.strerror or str(error)


class HashCache:
    """Remembers the digest of a file by its path, size, modification time and inode, so that it is read once.

    Without a *path* nothing is remembered: every file is read again.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        try:
            self._known: dict[str, Any] = json_object(read_regular(path)) if path is not None else {}
        except (OSError, ParseError):
            self._known = {}

    def sha256(self, path: Path) -> str:
        """Return the digest of the file at *path*."""
        real = path.resolve()
        if self._path is None:
            return file_sha256(real)
        status = real.stat()
        mark = [status.st_size, status.st_mtime_ns, status.st_ino]
        entry = self._known.get(str(real))
        if isinstance(entry, list) and len(entry) == 4 and entry[:3] == mark:
            return str(entry[3])
        digest = file_sha256(real)
        self._known[str(real)] = [*mark, digest]
        self._save(self._path)
        return digest

    def _save(self, path: Path) -> None:
        with suppress(OSError):  # a cache that cannot be written costs time, never the run
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(self._known))


def file_sha256(path: Path, *, inside: Path | None = None) -> str:
    """Return the SHA-256 of a file of any size, in hex; with *inside*, of a file that no link leads to."""
    with path.open("rb") if inside is None else os.fdopen(open_regular(path, os.O_RDONLY, inside=inside), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def user_hash_cache() -> Path:
    """Return the file of the user's hash cache."""
    root = os.environ.get(XDG_CACHE_HOME)
    return (Path(root) if root else Path.home() / ".cache") / "gatekeeper" / "hashes.json"
