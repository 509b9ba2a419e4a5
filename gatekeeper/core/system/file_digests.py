"""Digests of files, and the cache of them, so that weights of many gigabytes are read once."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.system.environment_variables import XDG_CACHE_HOME
from gatekeeper.core.system.files import open_regular, read_regular, write_atomically


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
