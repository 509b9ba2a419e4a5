"""The log of a watch, `watch.jsonl`: one line for each event, in two files of bounded size."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.system.files import write_atomically

SCHEMA = 1
"""Version of the log's lines. 1: the first."""
LOG_LIMIT = 8_000_000
"""Bytes after which a log is renamed to NAME.1, replacing the previous one."""
STATE = "state"
"""Kind of the first line of a new file: the state that the previous file led to."""
_LONGEST = 1_000_000
"""Longest line that is read, in bytes; written lines are about a hundredth of it."""


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

    @property
    def previous(self) -> Path:
        """Return the path of the previous, full file."""
        return self.path.with_name(f"{self.path.name}.1")

    def __enter__(self) -> Self:
        """Open the file; end a half-written line and undo a half-finished rotation after a crash."""
        with _naming(self.path):
            if self.previous.exists() and not self.path.exists():
                self.previous.replace(self.path)
            self._file = self.path.open("ab", buffering=0)
            if self._file.tell() and not _ends_whole(self.path):
                self._file.write(b"\n")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, kind: str, **detail: Any) -> dict[str, Any]:
        """Append one entry and return it; raise GatekeeperError, naming the file, if the disk is full."""
        entry = {"at": stamp(self._wall()), "kind": kind, **detail}
        assert self._file is not None
        with _naming(self.path):
            if self._file.tell() > self._limit:
                self._rotate()
            line = _line(entry)
            if self._file.write(line) != len(line):
                raise OSError(28, "No space left on device")
        return entry

    def _rotate(self) -> None:
        """Rename the full file and start a new one with the state; a crash in between loses nothing."""
        entry = {"at": stamp(self._wall()), "kind": STATE, "schema": SCHEMA, **self._state()}
        self.path.replace(self.previous)
        fresh = self.path.with_name(f".{self.path.name}.fresh")
        write_atomically(self.path, _line(entry), sync=True, temporary=fresh)
        if self._file is not None:
            self._file.close()
        self._file = self.path.open("ab", buffering=0)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a log, oldest first; a line that is cut off or damaged is skipped."""
    if path.exists() and not path.is_file():  # reading a pipe or a device may never end
        raise GatekeeperError(f"cannot read {path}: it is not a file", hint="name another --journal")
    try:
        with path.open("rb") as file:
            while line := file.readline(_LONGEST):
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict) and isinstance(entry.get("kind"), str):
                    yield entry
    except FileNotFoundError:
        return
    except OSError as error:
        hint = "make it readable, or name another --journal"
        raise GatekeeperError(f"cannot read {path}: {error.strerror}", hint=hint) from error


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(_finite(entry), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _finite(value: Any) -> Any:
    """Return *value* with NaN and infinity as null: JSON has neither, and they must not end a watch."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn an OSError into a GatekeeperError that names the file."""
    try:
        yield
    except OSError as error:
        raise GatekeeperError(
            f"cannot write {path}: {error.strerror or error}",
            hint="free some space, make its folder writable, or name another --journal; a restart continues from it",
        ) from error
