"""The state folder: paths, locks, files that are written whole, and the requests that transfer files."""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import BinaryIO, Iterator, Optional

from gatekeeper.run.remote.agent.frames import CHUNK, POLL_S, Channel, Header, Items, Refusal

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
"""What a run id and an environment key look like; anything else would be a path."""


class State:
    """The folder everything is kept in; the first request names it."""

    def __init__(self) -> None:
        self.home = Path()

    def settle(self, home: "Optional[str]") -> None:
        """Keep everything in *home*, by default in ~/.gatekeeper."""
        self.home = Path.home() / os.path.expanduser(home or "~/.gatekeeper")

    def at(self, path: str) -> Path:
        """Return where the relative *path* is; it stays below this folder."""
        parts = Path(path).parts
        if not parts or Path(path).is_absolute() or ".." in parts or "\0" in path:
            raise Refusal("path", "not a path below the state folder: " + repr(path))
        return self.home.joinpath(*parts)

    def named(self, parent: str, name: str) -> Path:
        """Return the folder of one environment or job."""
        if not PLAIN.fullmatch(name):
            raise Refusal("path", "not a plain name: " + repr(name))
        return self.home / parent / name

    def free(self) -> int:
        """Return the free bytes of the disk that holds this folder or will hold it."""
        folder = self.home
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(str(folder)).free


@contextlib.contextmanager
def locked(path: Path, channel: Channel) -> "Iterator[int]":
    """Hold a lock and return its descriptor; wait for it as long as the client does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                channel.check(POLL_S)
        yield file.fileno()


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def replacing(path: Path) -> "Iterator[BinaryIO]":
    """Write a file that appears at *path* when the block ends: whole and safe on the disk, or not at all."""
    part = _part(path)
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(str(part), str(path))
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def write(path: Path, document: Header) -> None:
    """Write a JSON document."""
    with replacing(path) as file:
        file.write(json.dumps(document, indent=1, sort_keys=True).encode())


def read(path: Path) -> Header:
    """Return a JSON document; an empty one where it is missing or damaged."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def tail(path: Path, most: int = 8192) -> str:
    """Return the end of a text."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode(errors="replace")
    return ""


def whole_lines(path: Path, offset: int) -> bytes:
    """Return the finished lines from *offset* on, at most one chunk of them."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(offset)
        content = file.read(CHUNK)
        return content[: content.rfind(b"\n") + 1]
    return b""


def sha256(path: Path) -> str:
    """Return the digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for content in iter(lambda: file.read(1 << 20), b""):
            digest.update(content)
    return digest.hexdigest()


def stamp() -> str:
    """Return the time in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Files:
    """Receives and sends files below the state folder."""

    def __init__(self, state: State, channel: Channel) -> None:
        self._state, self._channel = state, channel

    def do_put(self, path: str, sha256: str, mode: int = 0o644) -> Header:
        """Receive a file in the frames that follow; it appears whole and with this digest, or not at all."""
        chunks, digest = self._chunks(), hashlib.sha256()
        try:
            target = self._state.at(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(target)
            with replacing(target) as file:
                for chunk in chunks:
                    digest.update(chunk)
                    file.write(chunk)
                if digest.hexdigest() != sha256:
                    raise Refusal("damaged", path + " arrived damaged")
                os.fchmod(file.fileno(), mode)
        finally:
            for _ in chunks:  # or the next frame of the file would be taken for a request
                pass
        return {}

    def _chunks(self) -> "Iterator[bytes]":
        while True:
            header, content = self._channel.receive()
            if not header.get("more"):
                return
            yield content

    def do_get(self, path: str) -> Items:
        """Send a file."""
        file = self._state.at(path)
        if not file.is_file():
            raise Refusal("missing", "no such file: " + str(file))
        with file.open("rb") as source:
            for content in iter(lambda: source.read(CHUNK), b""):
                yield {}, content

    def do_digest(self, path: str) -> Header:
        """Return the digest of a file; None where there is none."""
        file = self._state.at(path)
        return {"sha256": sha256(file) if file.is_file() else None}

    def do_link(self, path: str, to: str) -> Header:
        """Link *path* to what this host already has: an absolute path, or one below the state folder."""
        link, target = self._state.at(path), Path(os.path.expanduser(to))
        target = target if target.is_absolute() else self._state.at(to)
        if not target.exists():
            raise Refusal("missing", "no such file or folder: " + str(target))
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(str(target), str(_part(link)))
        os.replace(str(_part(link)), str(link))
        return {}


def _part(path: Path) -> Path:
    """Return where a file is written until it is whole."""
    return path.with_name(path.name[:80] + ".part-" + str(os.getpid()))


def _remove_leftovers(target: Path) -> None:
    """Remove what agents wrote of this file before their connection broke; it may be gigabytes of a model."""
    for part in target.parent.glob(glob.escape(target.name[:80]) + ".part-*"):
        with contextlib.suppress(OSError, ValueError):
            try:
                os.kill(int(part.name.rpartition("-")[2]), 0)
            except ProcessLookupError:
                part.unlink()
