"""The state folder of the far side, and files that appear whole or not at all."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Iterator, Optional

from gatekeeper.run.remote.agent.frames import CHUNK, POLL_S, Channel, Header, Refusal

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
"""What a run id and an environment key look like; anything else would be a path."""


class State:
    """The folder everything is kept in; it is named once, by the first question."""

    def __init__(self) -> None:
        self.home = Path()

    def settle(self, home: "Optional[str]") -> None:
        """Keep everything in *home*, by default in ~/.gatekeeper."""
        self.home = Path(os.path.expanduser(home or "~/.gatekeeper"))
        if not self.home.is_absolute():
            self.home = Path.home() / self.home

    def at(self, path: str) -> Path:
        """Return where *path* is, which stays below this folder."""
        parts = Path(path).parts
        if not parts or Path(path).is_absolute() or ".." in parts or "\0" in path:
            raise Refusal("path", "not a path below the state folder: " + repr(path))
        return self.home.joinpath(*parts)

    def named(self, shelf: str, name: str) -> Path:
        """Return the folder of one of many: an environment, a job."""
        if not PLAIN.fullmatch(name):
            raise Refusal("path", "not a plain name: " + repr(name))
        return self.home / shelf / name

    def free(self) -> int:
        """Return the bytes that are free where this folder is or will be."""
        folder = self.home
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(str(folder)).free


@contextlib.contextmanager
def locked(path: Path, channel: Channel) -> "Iterator[int]":
    """Hold a lock, and give its descriptor; wait for it as long as the near side does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                channel.check(POLL_S)
        yield file.fileno()


def held(path: Path) -> bool:
    """Tell whether a living process holds the lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def write(path: Path, document: Header) -> None:
    """Write a document."""
    write_bytes(path, json.dumps(document, indent=1, sort_keys=True).encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that appears whole, and is safe on the disk by then."""
    part = path.with_name(path.name + ".part-" + str(os.getpid()))
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(str(part), str(path))


def read(path: Path) -> Header:
    """Return a document; an empty one where there is none or a damaged one."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def tail(path: Path, most: int = 8192) -> str:
    """Return the end of a text."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode(errors="replace")
    return ""


def whole_lines(path: Path, offset: int) -> bytes:
    """Return the lines that are finished from *offset* on, at most one chunk of them."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(offset)
        found = file.read(CHUNK)
        return found[: found.rfind(b"\n") + 1]
    return b""


def sha256(path: Path) -> str:
    """Return the digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for content in iter(lambda: file.read(1 << 20), b""):
            digest.update(content)
    return digest.hexdigest()


def stamp() -> str:
    """Return the time of day, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
