"""The journal: what the watch saw and did, one line each, in two files of bounded size."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from gatekeeper.core.clock import stamp
from gatekeeper.core.errors import GatekeeperError

SCHEMA = 1
"""Version of the journal's lines. 1: the first."""
LIMIT = 8_000_000
"""Bytes after which a journal is put aside as NAME.1, which replaces the one put aside before."""
STATE = "state"
"""The kind of the line that a fresh file begins with: everything that counted in the file before."""
_LONGEST = 1_000_000
"""Bytes of a line that is still read: ours are a hundredth of it."""


class Journal:
    """Appends entries; each is flushed to the system before the watch goes on."""

    def __init__(
        self,
        path: Path,
        *,
        wall: Callable[[], datetime],
        state: Callable[[], Mapping[str, Any]],
        limit: int | None = None,
    ) -> None:
        """Write to *path*; *state* tells what a fresh file must begin with, so that the old one can be lost."""
        self.path = path
        self._wall, self._state, self._limit = wall, state, limit or LIMIT
        self._file: IO[bytes] | None = None

    @property
    def aside(self) -> Path:
        """Return where the full file before this one lies."""
        return self.path.with_name(f"{self.path.name}.1")

    def __enter__(self) -> Self:
        """Open the file, and end a line that a crash left half written."""
        with _telling(self.path):
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
        """Append one entry and return it; a full disk is an error that names the file."""
        entry = {"at": stamp(self._wall()), "kind": kind, **detail}
        assert self._file is not None
        with _telling(self.path):
            if self._file.tell() > self._limit:
                self._rotate()
            _append(self._file, entry)
        return entry

    def _rotate(self) -> None:
        """Put the full file aside. The fresh one holds the state before it takes the name, so a crash loses nothing."""
        fresh = self.path.with_name(f".{self.path.name}.fresh")
        entry = {"at": stamp(self._wall()), "kind": STATE, "schema": SCHEMA, **self._state()}
        with fresh.open("wb", buffering=0) as file:
            _append(file, entry)
            os.fsync(file.fileno())
        self.path.replace(self.aside)
        fresh.replace(self.path)
        if self._file is not None:
            self._file.close()
        self._file = self.path.open("ab", buffering=0)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal, oldest first; a line that is cut off or damaged is passed over.

    Where a crash fell between putting the full file aside and naming the fresh one, the full one is what there is.
    """
    aside = path.with_name(f"{path.name}.1")
    source = path if path.exists() or not aside.exists() else aside
    if source.exists() and not source.is_file():  # a pipe or a device may be read for ever
        raise GatekeeperError(f"cannot read {source}: it is no file", hint="name another --journal")
    try:
        with source.open("rb") as file:
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
        raise GatekeeperError(f"cannot read {source}: {error.strerror}", hint=hint) from error


def _append(file: IO[bytes], entry: Mapping[str, Any]) -> None:
    line = json.dumps(_written(entry), ensure_ascii=False, allow_nan=False).encode() + b"\n"
    if file.write(line) != len(line):
        raise OSError(28, "No space left on device")


def _written(value: Any) -> Any:
    """Return *value* as JSON can hold it: what is no number is null, and no reason to end a watch."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _written(one) for key, one in value.items()}
    return [_written(one) for one in value] if isinstance(value, list | tuple) else value


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


class _telling:  # noqa: N801 (reads as a word in `with`)
    """Turns an operating system's refusal into an error that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise GatekeeperError(
                f"cannot write {self._path}: {error.strerror or error}",
                hint="free some space, make its folder writable, or name another --journal; a restart goes on from it",
            ) from error
