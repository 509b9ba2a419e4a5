"""The log of a watch, `watch.jsonl`: one line for each event, in two files of bounded size."""

import json
import math
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Self

from gatekeeper.core import parse
from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.system.files import append_whole, open_regular, write_atomically

SCHEMA = 1
"""Version of the log's lines. 1: the first."""
LOG_LIMIT = 8_000_000
"""Bytes after which a log is renamed to NAME.1, replacing the previous one."""
STATE = "state"
"""Kind of the first line of a new file: the state that the previous file led to."""
DAMAGED = "damaged"
"""Kind of what `entries` yields for a line that cannot be read."""
_LONGEST = 1_000_000
"""Longest line that is read, in bytes; written lines are about a hundredth of it."""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_SUMMED = re.compile(rb'(.*), "crc": "([0-9a-f]{8})"\}\n')
"""A line with the checksum of the rest of it: a flipped bit may leave another valid entry."""


class Log:
    """Appends entries; each is flushed to the system before the watch continues."""

    def __init__(
        self,
        path: Path,
        *,
        wall: Callable[[], datetime],
        state: Callable[[], Mapping[str, Any]],
        limit: int | None = None,
    ) -> None:
        """Write to *path*; *state* returns the first entry of a new file, so that the old file is not needed."""
        self.path = path
        self._wall, self._state, self._limit = wall, state, limit or LOG_LIMIT
        self._file: IO[bytes] | None = None
        self.is_new = False
        """There was no log: this is the first watch, or the log was moved away."""

    @property
    def previous(self) -> Path:
        """Return the path of the previous, full file."""
        return self.path.with_name(f"{self.path.name}.1")

    def __enter__(self) -> Self:
        """Open the file; end a half-written line and undo a half-finished rotation after a crash."""
        with _naming_file(self.path):
            if self.previous.exists() and not self.path.exists():
                self.previous.replace(self.path)
            self.is_new = not os.path.lexists(self.path)
            self._file = self._append()
            size = self._file.tell()
            if size and os.pread(self._file.fileno(), 1, size - 1) != b"\n":
                self._file.write(b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, kind: str, **detail: Any) -> dict[str, Any]:
        """Append one entry and return it; raise GatekeeperError, naming the file, if the disk is full."""
        entry = {"at": stamp(self._wall()), "kind": kind, **detail}
        assert self._file is not None
        with _naming_file(self.path):
            if self._file.tell() > self._limit:
                self._rotate()
            append_whole(self._file.fileno(), _line(entry))
        return entry

    def _rotate(self) -> None:
        """Rename the full file and start a new one with the state; a crash in between loses nothing."""
        assert self._file is not None
        entry = {"at": stamp(self._wall()), "kind": STATE, "schema": SCHEMA, **self._state()}
        mode = stat.S_IMODE(os.fstat(self._file.fileno()).st_mode)  # its owner may have made it private
        self.path.replace(self.previous)
        fresh = self.path.with_name(f".{self.path.name}.fresh")
        write_atomically(self.path, _line(entry), sync=True, temporary=fresh, mode=mode)
        self._file.close()
        self._file = self._append()

    def _append(self) -> IO[bytes]:
        return os.fdopen(open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab", buffering=0)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entry of each line of a log, oldest first; one of the kind DAMAGED for a line that cannot be read.

    Raise GatekeeperError for a log that cannot be read; a missing one has no entries.
    """
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            while line := file.readline(_LONGEST):
                yield _entry(line)
    except FileNotFoundError:
        return
    except OSError as error:
        hint = "make it a readable file, or name another --log"
        raise GatekeeperError(f"cannot read {path}: {error.strerror}", hint=hint) from error


def _line(entry: Mapping[str, Any]) -> bytes:
    try:
        text = _encode(entry).encode()
    except (TypeError, ValueError):  # NaN, infinity, or a mapping of another type: rare, and slow to look for
        text = _encode(_finite(entry)).encode()
    return text[:-1] + b', "crc": "%08x"}\n' % zlib.crc32(text)


def _entry(line: bytes) -> dict[str, Any]:
    """Return the entry of a line; one whose checksum is missing or wrong is damaged."""
    with_checksum = _SUMMED.fullmatch(line)
    intact = with_checksum is not None and zlib.crc32(with_checksum[1] + b"}") == int(with_checksum[2], 16)
    try:
        entry = parse.json_object(line) if intact else {}
    except parse.ParseError:
        entry = {}
    entry.pop("crc", None)
    return entry if isinstance(entry.get("kind"), str) else {"kind": DAMAGED}


def _finite(value: Any) -> Any:
    """Return *value* with NaN and infinity as null: JSON has neither, and they must not end a watch."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Turn an OSError into a GatekeeperError that names the file."""
    try:
        yield
    except OSError as error:
        hint = "free some space, make its folder writable, or name another --log; a restart continues from it"
        raise GatekeeperError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
