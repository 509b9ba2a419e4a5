"""The digests of files: computed once, and remembered for as long as a file looks untouched."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from gatekeeper.core.files import write_atomically

_CHUNK = 1 << 22


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
            return _hash(real)
        status = real.stat()
        mark = [status.st_size, status.st_mtime_ns, status.st_ino]
        known = self._known.get(str(real))
        if isinstance(known, list) and len(known) == 4 and known[:3] == mark:
            return str(known[3])
        digest = _hash(real)
        self._known[str(real)] = [*mark, digest]
        self._save(self._path)
        return digest

    def _save(self, path: Path) -> None:
        # A cache that cannot be written costs time, never the run.
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(self._known))
        except OSError:
            return


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def user_cache() -> Path:
    """Return the file of the user's hash cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "gatekeeper" / "hashes.json"
