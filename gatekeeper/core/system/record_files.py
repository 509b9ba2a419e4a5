"""Record files: one JSON line a record, appended and flushed one by one; the last line counts them."""

import errno
import gc
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Generic

from pydantic import TypeAdapter

from gatekeeper.core.errors import RESTORE_HINT, GatekeeperError, NoProofError
from gatekeeper.core.parse import ParseError, check_whole_numbers, json_object
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import MISSING, Event, Generation, HostSample, Kind, StoredRecords
from gatekeeper.core.records.host_columns import HostColumns, LineReader, ShortLines
from gatekeeper.core.system.files import (
    NotRegularError,
    open_folder,
    open_regular,
    read_regular,
    sync_to_disk,
    write_all,
    write_atomically,
)

READ_BYTES = 1 << 20
"""Bytes of a record file that are read at once; a line has some ten thousand."""
MOST_LINE = 64 << 20
"""Bytes of a record: an answer of a hundred thousand tokens has two megabytes, and a line is read whole."""
ANSWERS: TypeAdapter[Generation] = TypeAdapter(Generation)
SAMPLES: TypeAdapter[HostSample] = TypeAdapter(HostSample)
EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
DAMAGED = ".damaged"
"""Ends the name under which --resume keeps a damaged record file."""


def records_of(kind: type) -> TypeAdapter[Any]:
    """Return what reads and writes records of a *kind* that a follow-up makes."""
    return ANSWERS if kind is Generation else TypeAdapter(kind)


def read_records(path: Path, kind: TypeAdapter[Kind]) -> StoredRecords[Kind]:
    """Read a record file; of a missing, cut off or damaged one return the intact records, and what is wrong."""
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb", buffering=READ_BYTES) as file, no_search_for_cycles():
            return _read_lines(file, kind)
    except FileNotFoundError:
        return StoredRecords((), MISSING)
    except NotRegularError as error:
        return StoredRecords((), error.strerror, damaged=True)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> GatekeeperError:
    """Return the error of a file of a run that cannot be read: no proof where this user may not read it."""
    message, hint = f"cannot read {path}: {error.strerror}", "check its permissions"
    if error.errno == errno.EFBIG:
        return NoProofError(Reason.UNREADABLE, message, hint=RESTORE_HINT)
    if isinstance(error, PermissionError):
        return NoProofError(Reason.UNREADABLE, message, hint=hint)
    return GatekeeperError(message, hint=hint)


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Switch the garbage collector off: records hold no cycles, and a search among so many is a quarter of `judge`."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_lines(file: BinaryIO, kind: TypeAdapter[Kind]) -> StoredRecords[Kind]:
    """Read records line by line: a day of them has hundreds of megabytes, and only what is judged is kept."""
    gathered, read = _gather(kind)
    complete_bytes = 0

    def collect_records(trouble: str | None, *, damaged: bool = False) -> StoredRecords[Kind]:
        records = tuple(gathered) if isinstance(gathered, list) else gathered
        return StoredRecords(records, trouble, complete_bytes, damaged)

    for number, line in enumerate(iter(lambda: file.readline(MOST_LINE), b""), start=1):
        if len(line) == MOST_LINE:
            return collect_records(f"line {number} is longer than {MOST_LINE} bytes", damaged=True)
        if not line.endswith(b"\n"):
            return collect_records(f"cut off inside line {number}")
        if line.startswith(b'{"end":'):
            trouble = _closing_trouble(line, len(gathered), file.read(1))
            return collect_records(trouble, damaged=trouble is not None)
        try:
            read(line)
        except ValueError:
            return collect_records(f"line {number} is damaged", damaged=True)
        complete_bytes += len(line)
    return collect_records("cut off: the closing line is missing")


def _gather(kind: TypeAdapter[Any]) -> tuple[Sequence[Any], Callable[[bytes], None]]:
    """Return where records of *kind* are gathered, and what reads a line into it; that raises ValueError for damage."""
    columns, records = HostColumns(), list[Any]()
    read = LineReader(columns, SAMPLES.validate_json)

    def read_line(line: bytes) -> None:
        check_whole_numbers(line)  # no time or count of a record can overflow what is computed of it
        if kind is SAMPLES:
            read(line)
        else:
            records.append(kind.validate_json(line))

    return columns if kind is SAMPLES else records, read_line


def _closing_trouble(line: bytes, records: int, after: bytes) -> str | None:
    """Check the line that ends a record file with their count; return what is wrong."""
    if after:
        return "there are lines after the closing line"
    try:
        count = json_object(line).get("records")
    except ParseError:
        count = None
    if count == records and isinstance(count, int):
        return None
    return f"{records} records, but the closing line counts {count if isinstance(count, int) else 'none'}"


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into an error that names the file."""
    try:
        yield
    except NotRegularError as error:
        raise NoProofError(Reason.UNREADABLE, f"cannot write {path}: {error.strerror}", hint=RESTORE_HINT) from error
    except FileNotFoundError as error:
        message = f"cannot write {path}: it or its folder was removed, renamed or replaced while the run was writing"
        hint = "if you renamed it, rename it back and continue with --resume; otherwise start a new run"
        raise GatekeeperError(message, hint=hint) from error
    except PermissionError as error:
        hint = f"check the permissions of {path if path.is_dir() else path.parent} and of what is in it"
        raise GatekeeperError(f"cannot write {path}: {error.strerror}", hint=hint) from error
    except OSError as error:
        hint = "free disk space, then continue with --resume (what was recorded is kept), or choose another --output"
        raise GatekeeperError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error


class RecordWriter(Generic[Kind]):
    """Appends records of one kind, each flushed before the next; `finish` adds the line that counts them."""

    def __init__(self, path: Path, kind: TypeAdapter[Kind]) -> None:
        self._path = path
        self._kind: TypeAdapter[Kind] = kind
        self._short_lines = ShortLines()
        self._file: int | None = None
        before = read_records(path, kind)
        self.damage = before.trouble if before.damaged else None
        """What was wrong with the file: it is kept as NAME.damaged, and its intact records are in this one."""
        with write_errors(path):
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
        line = self._short_lines.line(record) if isinstance(record, HostSample) else None
        self._write((line or self._kind.dump_json(record)) + b"\n")
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
            with write_errors(self._path):
                self._open()

    def sync(self) -> None:
        """Bring the records to the disk, where a power failure does not reach them."""
        if self._file is not None:
            with write_errors(self._path), open_folder(self._path.parent) as folder:
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
        with write_errors(self._path):
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
    _, read = _gather(kind)
    intact = (line for line in io.BytesIO(content) if _is_record(line, read))
    write_atomically(path, b"".join(intact), sync=True)


def _is_record(line: bytes, read: Callable[[bytes], None]) -> bool:
    try:
        read(line)
    except ValueError:
        return False
    return line.endswith(b"\n")
