"""The run directory: records are appended one line at a time, everything else is written whole or not at all."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Generic, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from gatekeeper.core.errors import GatekeeperError, InputError, NoProofError, Reason
from gatekeeper.core.files import FileLock, LockHeldError, write_atomically
from gatekeeper.core.manifest import sha256
from gatekeeper.core.records import Event, Generation, HostSample, Tie

SCHEMA = 1
"""Version of every file in a run directory. 1: the first."""
UPDATE = "update gatekeeper"
"""What helps against a newer one."""
RESTORE = "restore the run from a copy, or certify again"

Kind = TypeVar("Kind", Generation, HostSample, Event, Tie)

ANSWERS: TypeAdapter[Generation] = TypeAdapter(Generation)
SAMPLES: TypeAdapter[HostSample] = TypeAdapter(HostSample)
EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
TIES: TypeAdapter[Tie] = TypeAdapter(Tie)

SUMS = "SHA256SUMS"
FINDER = ".DS_Store"
"""What macOS writes into a folder that somebody looked at; a look is no tampering."""
AFTERWARDS = ("policy.live.toml", "watch.jsonl")
"""What `gatekeeper watch` keeps beside a policy: no part of the run, and never read as one."""


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Kind]):
    """A record file's content; `trouble` says why it can not be trusted, if so."""

    records: tuple[Kind, ...]
    trouble: str | None = None
    whole_bytes: int = 0
    """How much of the file is whole records: where a resumed run goes on."""


def load(path: Path, kind: TypeAdapter[Kind]) -> Loaded[Kind]:
    """Read a record file; a missing, cut or damaged one gives what is whole, and its trouble."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Loaded((), "missing")
    except OSError as error:
        raise GatekeeperError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
    records: list[Kind] = []
    whole = 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            return Loaded(tuple(records), f"cut off inside line {number}", whole)
        if (closing := _closing(line)) is not None:
            trouble = _closing_trouble(closing, len(records), content[whole + len(line) :])
            return Loaded(tuple(records), trouble, whole)
        try:
            records.append(kind.validate_json(line))
        except ValidationError:
            return Loaded(tuple(records), f"line {number} is damaged", whole)
        whole += len(line)
    return Loaded(tuple(records), "cut off: its closing line is missing", whole)


def _closing(line: bytes) -> int | None:
    if not line.startswith(b'{"end":'):
        return None
    try:
        count = json.loads(line).get("records")
    except ValueError:
        return -1
    return count if isinstance(count, int) else -1


def _closing_trouble(said: int, seen: int, after: bytes) -> str | None:
    if after:
        return "has lines after its closing line"
    return None if said == seen else f"holds {seen} records, its closing line says {said}"


class Appender(Generic[Kind]):
    """Writes records of one kind, each flushed before the next; `finish` adds the line that counts them."""

    def __init__(self, path: Path, kind: TypeAdapter[Kind]) -> None:
        self._path = path
        self._kind: TypeAdapter[Kind] = kind
        before = load(path, kind)
        self.records: list[Kind] = list(before.records)
        self.finished = before.trouble is None
        with _telling(path):
            if path.exists() and not self.finished:
                os.truncate(path, before.whole_bytes)
            self._file: IO[bytes] | None = None if self.finished else path.open("ab", buffering=0)

    def __call__(self, record: Kind) -> None:
        """Append one record; a full disk is an error that names the file and keeps what was written."""
        if self._file is None:
            raise GatekeeperError(f"{self._path} is closed", hint="this is a bug; please report it")
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
        with _telling(self._path):
            # One write a line: a crash leaves at most one line half written, and reading notices that.
            if self._file is not None and self._file.write(line) != len(line):
                raise OSError(28, "No space left on device")


class _telling:  # noqa: N801 (reads as a word in `with`)
    """Turns an operating system's refusal into an error that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise GatekeeperError(
                f"cannot write {self._path}: {error.strerror or error}",
                hint="free some space or choose another --out; what was recorded stays, and --resume goes on from it",
            ) from error


class RunDirectory:
    """One run's folder, locked by the process that writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / "lock", remove=True)

    @classmethod
    def open(cls, path: Path, *, resume: bool) -> "RunDirectory":
        """Make a new folder, or take up one that holds an unfinished run."""
        # What a subject said while it was looked at lies in logs/ before there is a run.
        if not resume and path.is_dir() and any(one.name != "logs" for one in path.iterdir()):
            raise InputError(f"{path} is not empty", hint="go on with that run by --resume, or choose another --out")
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is not a folder", hint="choose another --out")
        if resume and not (path / "manifest.json").is_file():
            raise InputError(f"{path} holds no run to resume", hint="leave out --resume to start one")
        with _telling(path):
            (path / "inputs").mkdir(parents=True, exist_ok=True)
            (path / "logs").mkdir(exist_ok=True)
        run = cls(path)
        run._take_lock()
        return run

    def _take_lock(self) -> None:
        try:
            with _telling(self._lock.path):
                self._lock.acquire(f"{os.getpid()}\n")
        except LockHeldError:
            raise InputError(
                f"another gatekeeper is writing {self.path}", hint="wait for it, or choose another --out"
            ) from None

    def close(self) -> None:
        """Let another process write the folder."""
        self._lock.release()

    def write(self, name: str, content: str | bytes) -> None:
        """Write a whole file: a reader sees the old one or the new one, never a part."""
        with _telling(self.path / name):
            write_atomically(self.path / name, content)

    def read(self, name: str) -> bytes:
        """Return a file's bytes; a missing one is an InputError that says what the folder lacks."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            raise InputError(f"{self.path} has no {name}", hint="is this a run directory of gatekeeper?") from None
        except OSError as error:
            raise GatekeeperError(
                f"cannot read {self.path / name}: {error.strerror}", hint="check its permissions"
            ) from error

    def text(self, name: str) -> str:
        """Return a file as text; one that is none proves nothing, like a damaged record."""
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as error:
            raise NoProofError(
                Reason.UNREADABLE,
                f"{self.path / name}: damaged: byte {error.start} is no UTF-8",
                hint=RESTORE,
            ) from error

    def answers(self, name: str) -> Appender[Generation]:
        """Open a record file of answers for appending."""
        return Appender(self.path / name, ANSWERS)

    def samples(self, name: str = "host.jsonl") -> Appender[HostSample]:
        """Open the record file of host samples for appending."""
        return Appender(self.path / name, SAMPLES)

    def events(self, name: str = "events.jsonl") -> Appender[Event]:
        """Open the record file of events for appending."""
        return Appender(self.path / name, EVENTS)

    def ties(self, name: str) -> Appender[Tie]:
        """Open a record file of near-ties for appending."""
        return Appender(self.path / name, TIES)

    def seal(self) -> None:
        """Write SHA256SUMS over every file, last of all."""
        names = sorted(
            str(path.relative_to(self.path))
            for path in self.path.rglob("*")
            if path.is_file() and path.name not in {SUMS, "lock"} and not path.name.startswith(".")
        )
        self.write(SUMS, "".join(f"{sha256((self.path / name).read_bytes())}  {name}\n" for name in names))

    def is_sealed(self) -> bool:
        """Tell whether the run has ended: SHA256SUMS is written last."""
        return (self.path / SUMS).is_file()

    def broken_seals(self, wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Name the files that are not what SHA256SUMS says; nothing is said where the run was never sealed."""
        path = self.path / SUMS
        if not path.is_file():
            return []
        broken, listed = [], {SUMS, "lock", FINDER, *AFTERWARDS}
        for line in path.read_text(errors="replace").splitlines():
            digest, _, name = line.partition("  ")
            file = self.path / name
            listed.add(name)
            if wanted(name) and (not file.is_file() or sha256(file.read_bytes()) != digest):
                broken.append(name)
        here = sorted(path.name for path in self.path.glob("*") if path.is_file())
        return [*broken, *(name for name in here if name not in listed and wanted(name))]


PART = ".part"
"""How the name of a run ends that is still being brought here from another machine."""


def is_run(path: Path) -> bool:
    """Tell whether a folder is a run, or was one: a lost manifest does not make it disappear."""
    return any((path / name).is_file() for name in ("manifest.json", "plan.json", "verdict.json", SUMS))


def runs_in(folder: Path) -> list[Path]:
    """Return the run directories that lie in *folder*."""
    if not folder.is_dir():
        raise InputError(f"no folder {folder}", hint="name the folder that holds the run directories")
    here = (path for path in folder.iterdir() if not path.name.startswith(".") and path.suffix != PART)
    return sorted(path for path in here if is_run(path))


def document(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON file of a run directory; a newer schema or damage is an InputError."""
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise InputError(f"{name}: damaged: {error}", hint="restore it from a copy of the run") from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("schema"), int):
        raise InputError(f"{name}: not a file of gatekeeper", hint="is this a run directory?")
    if parsed["schema"] > SCHEMA:
        raise InputError(f"{name}: schema {parsed['schema']} is newer than {SCHEMA}", hint=UPDATE)
    return parsed
