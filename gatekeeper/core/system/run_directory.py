"""The run directory: records are appended line by line, every other file is replaced atomically."""

import io
import itertools
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Generic

from pydantic import TypeAdapter, ValidationError

from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError
from gatekeeper.core.host_columns import HostColumns
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import Event, Generation, HostSample, Kind, StoredRecords, Tie
from gatekeeper.core.system.files import (
    FileLock,
    LockHeldError,
    NotRegularError,
    file_sha256,
    open_folder,
    open_regular,
    read_regular,
    sync_to_disk,
    write_all,
    write_atomically,
)

RUNS = Path("runs")
"""Where a run goes without --out."""
READ_BYTES = 1 << 20
"""Of a record file at once; a line has some ten thousand."""
SCHEMA = 1
"""Version of every file in a run directory. 1: the first."""
UPDATE_HINT = "update gatekeeper"
"""The hint for files of a newer version."""
RESTORE_HINT = "restore the run from a copy, or certify again"

ANSWERS: TypeAdapter[Generation] = TypeAdapter(Generation)
SAMPLES: TypeAdapter[HostSample] = TypeAdapter(HostSample)
EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
TIES: TypeAdapter[Tie] = TypeAdapter(Tie)

EVENTS_FILE = "events.jsonl"
PLAN = "plan.json"
MANIFEST = "manifest.json"
"""Written last before a run measures: a folder without it holds nothing that was measured."""
LOGS = "logs"
INPUTS = "inputs"
FOLDERS = (INPUTS, LOGS)
_COPY = re.compile(r"\.?(slo\.toml|profile\.toml|canaries-.+\.jsonl)(\.\d+)?")
"""Copies of the inputs, and the hidden names under which they are written."""
CHECKSUMS = "SHA256SUMS"
LOCK = "lock"
FINDER_FILE = ".DS_Store"
"""macOS writes it into every folder that is opened in the Finder: not tampering."""
WATCH_FILES = ("policy.live.toml", "watch.jsonl")
"""Files that `gatekeeper watch` writes next to a policy: not part of the run."""
DAMAGED = ".damaged"
"""Ends the name under which --resume keeps a damaged record file."""
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
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb", buffering=READ_BYTES) as file:
            return _read_lines(file, kind)
    except FileNotFoundError:
        return StoredRecords((), "missing")
    except NotRegularError as error:
        return StoredRecords((), error.strerror, damaged=True)
    except OSError as error:
        raise GatekeeperError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error


def _read_lines(file: BinaryIO, kind: TypeAdapter[Kind]) -> StoredRecords[Kind]:
    """Read records line by line: a day of them has hundreds of megabytes, and only what is judged is kept."""
    gathered, read = _gather(kind)
    whole = 0

    def stored(trouble: str | None, *, damaged: bool = False) -> StoredRecords[Kind]:
        records = tuple(gathered) if isinstance(gathered, list) else gathered
        return StoredRecords(records, trouble, whole, damaged)

    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            return stored(f"cut off inside line {number}")
        if line.startswith(b'{"end":'):
            trouble = _closing_trouble(line, len(gathered), file.read(1))
            return stored(trouble, damaged=trouble is not None)
        try:
            read(line)
        except ValueError:
            return stored(f"line {number} is damaged", damaged=True)
        whole += len(line)
    return stored("cut off: the closing line is missing")


def _gather(kind: TypeAdapter[Any]) -> tuple[Sequence[Any], Callable[[bytes], None]]:
    """Return where records of *kind* are gathered, and what reads a line into it; that raises ValueError for damage."""
    if kind is not SAMPLES:
        records: list[Any] = []
        return records, lambda line: records.append(kind.validate_json(line))
    columns = HostColumns()

    def read(line: bytes) -> None:
        if not columns.append_line(line):
            columns.append(SAMPLES.validate_json(line))
            columns.learn_line(line)

    return columns, read


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
    except NotRegularError as error:
        raise NoProofError(Reason.UNREADABLE, f"cannot write {path}: {error.strerror}", hint=RESTORE_HINT) from error
    except FileNotFoundError as error:
        raise GatekeeperError(
            f"cannot write {path}: it or its folder was removed, renamed or replaced while the run was writing",
            hint="if you renamed it, rename it back and continue with --resume; otherwise start a new run",
        ) from error
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
        self._file: int | None = None
        before = read_records(path, kind)
        self.damage = before.trouble if before.damaged else None
        """What was wrong with the file: it is kept as NAME.damaged, and its intact records are in this one."""
        with _write_errors(path):
            if before.damaged:
                _set_aside(path, kind)
                before = read_records(path, kind)
            self.records: Sequence[Kind] = before.records
            """Those that were there when it was opened."""
            self.count = len(before.records)
            self._whole = before.whole_bytes
            self.finished = before.trouble is None
            if not self.finished:
                self._open()

    def __call__(self, record: Kind) -> None:
        """Append one record; a full disk raises an error that names the file, and keeps what was written."""
        self._write(self._kind.dump_json(record) + b"\n")
        self.count += 1

    def release(self) -> Sequence[Kind]:
        """Return the records that were there, and keep them no longer: their memory is the measured machine's."""
        records, self.records = self.records, ()
        return records

    def finish(self) -> None:
        """Write the closing line, sync the file to the disk and close it."""
        if self._file is not None:
            self._write(json.dumps({"end": True, "records": self.count}).encode() + b"\n")
            self.finished = True
            self.sync()
            self.close()

    def reopen(self) -> None:
        """Remove the closing line, so that more records can follow."""
        if self.finished:
            self.finished = False
            with _write_errors(self._path):
                self._open()

    def sync(self) -> None:
        """Bring the records to the disk, where a power failure does not reach them."""
        if self._file is not None:
            with _write_errors(self._path), open_folder(self._path.parent) as folder:
                sync_to_disk(self._file)
                sync_to_disk(folder)

    def close(self) -> None:
        """Close the file as it is."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._file = open_regular(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if os.fstat(self._file).st_size > self._whole:
            os.ftruncate(self._file, self._whole)

    def _write(self, line: bytes) -> None:
        if self._file is None:
            raise GatekeeperError(f"{self._path} is closed", hint="this is a bug; please report it")
        with _write_errors(self._path):
            if not os.path.samestat(os.fstat(self._file), self._path.lstat()):
                raise FileNotFoundError  # another file has the name now
            write_all(self._file, line)  # one line: a crash leaves at most one incomplete, which reading detects
            self._whole += len(line)


def _set_aside(path: Path, kind: TypeAdapter[Kind]) -> None:
    """Keep a damaged record file as NAME.damaged, and leave its intact records in place. Raise OSError.

    The copy is complete before the file changes. Where a kill came between, the next call finds the copy.
    """
    content = read_regular(path)
    for number in itertools.count(1):
        beside = path.with_name(f"{path.name}{DAMAGED}{f'-{number}' if number > 1 else ''}")
        try:
            if read_regular(beside) == content:
                break
        except FileNotFoundError:
            write_atomically(beside, content, sync=True)
            break
    intact = (line for line in io.BytesIO(content) if _is_record(line, kind))
    write_atomically(path, b"".join(intact), sync=True)


def _is_record(line: bytes, kind: TypeAdapter[Kind]) -> bool:
    try:
        kind.validate_json(line)
    except ValidationError:
        return False
    return line.endswith(b"\n")


class RunDirectory:
    """One run's folder, locked by the process that writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / LOCK, remove=True)

    @classmethod
    def open(cls, path: Path, *, resume: bool) -> "RunDirectory":
        """Make a new folder, or continue one that holds an unfinished run."""
        with _write_errors(path):
            if path.exists() and not path.is_dir():
                raise InputError(f"{path} is not a folder", hint="choose another --out")
            if not resume and path.is_dir() and not cls.nothing_measured(path):
                hint = "continue that run with --resume, or choose another --out"
                raise InputError(f"{path} is not empty", hint=hint)
            if resume and not (path / MANIFEST).is_file():
                raise InputError(f"{path} has no run to resume", hint="remove --resume to start a new run")
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

    @staticmethod
    def nothing_measured(path: Path) -> bool:
        """Tell whether the folder at *path* is empty, or holds only what a run killed before its manifest leaves."""
        with suppress(OSError):  # a path that cannot be read, which opening it reports
            # The first probe writes the server's log to logs/, and an atomic write begins under a hidden name.
            copies = path / INPUTS
            rest = [one.name for one in path.iterdir() if one.name not in {LOCK, FINDER_FILE, PLAN, *FOLDERS}]
            if copies.is_dir():
                rest += [one.name for one in copies.iterdir() if not _COPY.fullmatch(one.name)]
            return all(name.startswith((f".{PLAN}.", f".{MANIFEST}.")) for name in rest)
        return False

    def close(self) -> None:
        """Release the lock of the folder."""
        self._lock.release()

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a file atomically: a reader sees the old content or the new one, never a part."""
        with _write_errors(self.path / name):
            write_atomically(self.path / name, content, sync=True, inside=self.path)

    def read(self, name: str) -> bytes:
        """Return a file's bytes; a missing file is an InputError."""
        try:
            return read_regular(self.path / name, inside=self.path)
        except FileNotFoundError:
            raise InputError(f"{self.path} has no {name}", hint="is this a run directory of gatekeeper?") from None
        except NotRegularError as error:
            raise NoProofError(
                Reason.UNREADABLE, f"cannot read {self.path / name}: {error.strerror}", hint=RESTORE_HINT
            ) from error
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

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with _write_errors(self.path / name):
            (self.path / name).unlink(missing_ok=True)

    def damaged_files(self) -> list[str]:
        """Name the record files that --resume found damaged and keeps beside those that it continued."""
        return sorted(path.name for path in self.path.glob(f"*{DAMAGED}*"))

    def writer(self, name: str, kind: TypeAdapter[Kind]) -> RecordWriter[Kind]:
        """Open a record file for appending."""
        return RecordWriter(self.path / name, kind)

    def write_checksums(self) -> None:
        """Write SHA256SUMS over every file, as the last file of a run."""
        names = sorted(
            str(path.relative_to(self.path))
            for path in self.path.rglob("*")
            if path.is_file()
            and not path.is_symlink()
            and path.name not in {CHECKSUMS, LOCK}
            and not path.name.startswith(".")
        )
        with _write_errors(self.path):
            digests = {name: file_sha256(self.path / name, inside=self.path) for name in names}
        self.write(CHECKSUMS, "".join(f"{digest}  {name}\n" for name, digest in digests.items()))

    def is_finished(self) -> bool:
        """Return whether the run has ended: SHA256SUMS is written last."""
        with suppress(OSError):
            return (self.path / CHECKSUMS).is_file()
        return False

    def changed_files(self, wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Name the *wanted* files that differ from SHA256SUMS; none if SHA256SUMS is missing."""
        if not self.is_finished():
            return []
        changed, listed = [], {CHECKSUMS, LOCK, FINDER_FILE, *WATCH_FILES}
        for line in self.read(CHECKSUMS).decode(errors="replace").splitlines():
            digest, _, name = line.partition("  ")
            listed.add(name)
            if wanted(name) and self._digest(name) != digest:
                changed.append(name)
        here = sorted(path.name for path in self.path.glob("*") if path.is_file())
        return [*changed, *(name for name in here if name not in listed and wanted(name))]

    def _digest(self, name: str) -> str | None:
        """Return a file's digest; None where it cannot be read, or is not in this folder."""
        try:
            return file_sha256(self.path / name, inside=self.path)
        except (OSError, ValueError):  # ValueError: a name that leads elsewhere
            return None


def is_run(path: Path) -> bool:
    """Return whether a folder holds a run, even one whose manifest was lost."""
    names = (MANIFEST, PLAN, "verdict.json", CHECKSUMS)
    return any((path / name).is_file() for name in names) and not RunDirectory.nothing_measured(path)


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
