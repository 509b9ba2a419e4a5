"""The run directory: records are appended line by line, every other file is replaced atomically."""

import errno
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Generic

from pydantic import TypeAdapter, ValidationError

from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import Event, Generation, HostSample, Kind, StoredRecords, Tie
from gatekeeper.core.system.files import FileLock, LockHeldError, file_sha256, write_atomically

RUNS = Path("runs")
"""Where a run goes without --out."""
SCHEMA = 1
"""Version of every file in a run directory. 1: the first."""
UPDATE_HINT = "update gatekeeper"
"""The hint for files of a newer version."""
RESTORE_HINT = "restore the run from a copy, or certify again"

ANSWERS: TypeAdapter[Generation] = TypeAdapter(Generation)
SAMPLES: TypeAdapter[HostSample] = TypeAdapter(HostSample)
EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
TIES: TypeAdapter[Tie] = TypeAdapter(Tie)

LOGS = "logs"
FOLDERS = ("inputs", LOGS)
CHECKSUMS = "SHA256SUMS"
LOCK = "lock"
FINDER_FILE = ".DS_Store"
"""macOS writes it into every folder that is opened in the Finder: not tampering."""
WATCH_FILES = ("policy.live.toml", "watch.jsonl")
"""Files that `gatekeeper watch` writes next to a policy: not part of the run."""
PARTIAL_SUFFIX = ".part"
"""Ends the name of a run that is still being downloaded from another machine."""


def new_run_id(slo_name: str, now: datetime) -> str:
    """Return a new run id: it begins with the time, and four random bytes tell runs of one minute apart."""
    return f"{now:%Y-%m-%dT%H%MZ}-{slo_name[:80]}-{secrets.token_hex(4)}"


def is_taken(path: Path) -> bool:
    """Tell whether *path* is something else than an empty folder."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def read_records(path: Path, kind: TypeAdapter[Kind]) -> StoredRecords[Kind]:
    """Read a record file; of a missing, cut off or damaged one return the intact records, and what is wrong."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return StoredRecords((), "missing")
    except OSError as error:
        raise GatekeeperError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
    records: list[Kind] = []
    whole = 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            return StoredRecords(tuple(records), f"cut off inside line {number}", whole)
        if line.startswith(b'{"end":'):
            trouble = _closing_trouble(line, len(records), content[whole + len(line) :])
            return StoredRecords(tuple(records), trouble, whole)
        try:
            records.append(kind.validate_json(line))
        except ValidationError:
            return StoredRecords(tuple(records), f"line {number} is damaged", whole)
        whole += len(line)
    return StoredRecords(tuple(records), "cut off: the closing line is missing", whole)


def _closing_trouble(line: bytes, records: int, after: bytes) -> str | None:
    """Check the line that ends a record file with their count; return what is wrong."""
    if after:
        return "there are lines after the closing line"
    try:
        count = json.loads(line).get("records")
    except ValueError:
        count = None
    if count == records and isinstance(count, int):
        return None
    return f"{records} records, but the closing line counts {count if isinstance(count, int) else 'none'}"


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise GatekeeperError(
            f"cannot write {path}: {error.strerror or error}",
            hint="free disk space, then continue with --resume (what was recorded is kept), or choose another --out",
        ) from error


class RecordWriter(Generic[Kind]):
    """Appends records of one kind, each flushed before the next; `finish` adds the line that counts them."""

    def __init__(self, path: Path, kind: TypeAdapter[Kind]) -> None:
        self._path = path
        self._kind: TypeAdapter[Kind] = kind
        before = read_records(path, kind)
        self.records: list[Kind] = list(before.records)
        self.finished = before.trouble is None
        with _write_errors(path):
            if path.exists() and not self.finished:
                os.truncate(path, before.whole_bytes)
            self._file: IO[bytes] | None = None if self.finished else path.open("ab", buffering=0)

    def __call__(self, record: Kind) -> None:
        """Append one record; a full disk raises an error that names the file, and keeps what was written."""
        self._write(self._kind.dump_json(record) + b"\n")
        self.records.append(record)

    def finish(self) -> None:
        """Write the closing line and close the file."""
        if self._file is not None:
            self._write(json.dumps({"end": True, "records": len(self.records)}).encode() + b"\n")
            self.finished = True
            self.close()

    def close(self) -> None:
        """Close the file as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: bytes) -> None:
        if self._file is None:
            raise GatekeeperError(f"{self._path} is closed", hint="this is a bug; please report it")
        with _write_errors(self._path):
            # One write per line: a crash leaves at most one incomplete line, which reading detects.
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class RunDirectory:
    """One run's folder, locked by the process that writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / LOCK, remove=True)

    @classmethod
    def open(cls, path: Path, *, resume: bool) -> "RunDirectory":
        """Make a new folder, or continue one that holds an unfinished run."""
        # The first probe writes the server's log to logs/ before the run begins.
        if not resume and path.is_dir() and any(one.name != LOGS for one in path.iterdir()):
            raise InputError(f"{path} is not empty", hint="continue that run with --resume, or choose another --out")
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is not a folder", hint="choose another --out")
        if resume and not (path / "manifest.json").is_file():
            raise InputError(f"{path} has no run to resume", hint="remove --resume to start a new run")
        with _write_errors(path):
            for folder in FOLDERS:
                (path / folder).mkdir(parents=True, exist_ok=True)
        run = cls(path)
        try:
            with _write_errors(path / LOCK):
                run._lock.acquire(f"{os.getpid()}\n")
        except LockHeldError:
            raise InputError(
                f"another gatekeeper process is writing to {path}", hint="wait until it ends, or choose another --out"
            ) from None
        return run

    def close(self) -> None:
        """Release the lock of the folder."""
        self._lock.release()

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a file atomically: a reader sees the old content or the new one, never a part."""
        with _write_errors(self.path / name):
            write_atomically(self.path / name, content)

    def read(self, name: str) -> bytes:
        """Return a file's bytes; a missing file is an InputError."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            raise InputError(f"{self.path} has no {name}", hint="is this a run directory of gatekeeper?") from None
        except OSError as error:
            raise GatekeeperError(
                f"cannot read {self.path / name}: {error.strerror}", hint="check its permissions"
            ) from error

    def text(self, name: str) -> str:
        """Return a file as text; a file that is not UTF-8 is no proof, like a damaged record."""
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as error:
            raise NoProofError(
                Reason.UNREADABLE,
                f"{self.path / name} is damaged: byte {error.start} is not UTF-8",
                hint=RESTORE_HINT,
            ) from error

    def writer(self, name: str, kind: TypeAdapter[Kind]) -> RecordWriter[Kind]:
        """Open a record file for appending."""
        return RecordWriter(self.path / name, kind)

    def write_checksums(self) -> None:
        """Write SHA256SUMS over every file, as the last file of a run."""
        names = sorted(
            str(path.relative_to(self.path))
            for path in self.path.rglob("*")
            if path.is_file() and path.name not in {CHECKSUMS, LOCK} and not path.name.startswith(".")
        )
        self.write(CHECKSUMS, "".join(f"{file_sha256(self.path / name)}  {name}\n" for name in names))

    def is_finished(self) -> bool:
        """Return whether the run has ended: SHA256SUMS is written last."""
        return (self.path / CHECKSUMS).is_file()

    def changed_files(self, wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Name the *wanted* files that differ from SHA256SUMS; none if SHA256SUMS is missing."""
        path = self.path / CHECKSUMS
        if not path.is_file():
            return []
        changed, listed = [], {CHECKSUMS, LOCK, FINDER_FILE, *WATCH_FILES}
        for line in path.read_text(errors="replace").splitlines():
            digest, _, name = line.partition("  ")
            file = self.path / name
            listed.add(name)
            if wanted(name) and (not file.is_file() or file_sha256(file) != digest):
                changed.append(name)
        here = sorted(path.name for path in self.path.glob("*") if path.is_file())
        return [*changed, *(name for name in here if name not in listed and wanted(name))]


def is_run(path: Path) -> bool:
    """Return whether a folder holds a run, even one whose manifest was lost."""
    return any((path / name).is_file() for name in ("manifest.json", "plan.json", "verdict.json", CHECKSUMS))


def runs_in(folder: Path) -> list[Path]:
    """Return the run directories in *folder*."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="name the folder that contains the run directories")
    here = (path for path in folder.iterdir() if not path.name.startswith(".") and path.suffix != PARTIAL_SUFFIX)
    return sorted(path for path in here if is_run(path))


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON file of a run directory; a newer schema or damage is an InputError."""
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise InputError(f"{name}: damaged: {error}", hint="restore it from a copy of the run") from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("schema"), int):
        raise InputError(f"{name}: not written by gatekeeper", hint="is this a run directory?")
    if parsed["schema"] > SCHEMA:
        raise InputError(
            f"{name}: schema {parsed['schema']} is newer than {SCHEMA}, the newest known here", hint=UPDATE_HINT
        )
    return parsed
