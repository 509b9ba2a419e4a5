"""The run directory: records are appended line by line, every other file is replaced atomically."""

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gatekeeper.core.errors import (
    RESTORE_HINT,
    GatekeeperError,
    InputError,
    NoProofError,
    OtherRulesError,
    nearest_word,
)
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.reasons import Reason
from gatekeeper.core.records import Kind
from gatekeeper.core.system.file_lock import FileLock, LockHeldError
from gatekeeper.core.system.files import MOST_BYTES, NotRegularError, file_sha256, read_regular, write_atomically
from gatekeeper.core.system.record_files import DAMAGED, RecordWriter, unreadable, write_errors

RUNS = Path("runs")
"""Where a run goes without --output."""
SCHEMA = 1
"""Version of every file in a run directory. 1: the first."""
UPDATE_HINT = "update gatekeeper"
"""The hint for files of a newer version."""


EVENTS_FILE = "events.jsonl"
HOST_FILE = "host.jsonl"
PLAN = "plan.json"
VERDICT = "verdict.json"
POLICY = "policy.toml"
REPORT = "report.html"
JUNIT = "junit.xml"
MANIFEST = "manifest.json"
"""Written last before a run measures: a folder without it holds nothing that was measured."""
LOGS = "logs"
INPUTS = "inputs"
FOLDERS = (INPUTS, LOGS)
_COPY = re.compile(r"\.?(slo\.toml|profile\.toml|certified\.json|canaries-.+\.jsonl)(\.\d+)?")
"""Copies of the inputs, and the hidden names under which they are written."""
CHECKSUMS = "SHA256SUMS"
LOCK = "lock"
SIGNATURE_SUFFIX = ".sig"
FINDER_FILE = ".DS_Store"
"""macOS writes it into every folder that is opened in the Finder: not tampering."""
WATCH_FILES = ("policy.live.toml", "watch.jsonl", "watch.jsonl.1", "live.jsonl", "live.jsonl.1")
"""Files that `gatekeeper watch` and `proxy` write next to a policy: not part of the run."""
PARTIAL_SUFFIX = ".part"
"""Ends the name of a run that is still being downloaded from another machine."""


def new_run_id(slo_name: str, now: datetime) -> str:
    """Return a new run id: it begins with the time, and four random bytes tell runs of one minute apart."""
    return f"{now:%Y-%m-%dT%H%MZ}-{slo_name[:80]}-{secrets.token_hex(4)}"


def is_taken(path: Path) -> bool:
    """Tell whether *path* is something else than an empty folder."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def _check_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is not a folder", hint="choose another --output")


def check_writable(path: Path) -> None:
    """Raise GatekeeperError if the folder *path* could not be made or written; nothing is made."""
    with write_errors(path):
        _check_folder(path)
        there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
    effective = os.access in os.supports_effective_ids
    if there.is_dir() and not os.access(there, os.W_OK | os.X_OK, effective_ids=effective):
        message = f"cannot write {path}: no permission to write in the folder {there}"
        hint = "name a folder that you may write with --output, or run it in another folder"
        raise GatekeeperError(message, hint=hint)


class RunDirectory:
    """One run's folder, locked by the process that writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / LOCK, remove=True)

    @classmethod
    def open(cls, path: Path, *, resume: bool) -> "RunDirectory":
        """Make a new folder, or continue one that holds an unfinished run."""
        with write_errors(path):
            _check_folder(path)
            if not resume and path.is_dir() and not cls.nothing_measured(path):
                if cls(path).is_finished():
                    hint = f"choose another --output; gatekeeper report {path} shows that run and what to do next"
                    raise InputError(f"{path} holds a finished run", hint=hint)
                hint = "continue that run with --resume, or choose another --output"
                hint = hint if is_run(path) else "choose another --output: a run begins in an empty folder"
                raise InputError(f"{path} is not empty", hint=hint)
            if resume and not (path / MANIFEST).is_file():
                if is_run(path):
                    raise NoProofError(Reason.UNREADABLE, f"{path}: has no {MANIFEST}", hint=RESTORE_HINT)
                raise InputError(f"{path} has no run to resume", hint="remove --resume to start a new run")
            for folder in FOLDERS:
                (path / folder).mkdir(parents=True, exist_ok=True)
        run = cls(path)
        try:
            with write_errors(path / LOCK):
                run._lock.acquire(f"{os.getpid()}\n")
        except LockHeldError:
            hint = "wait until it ends, or choose another --output"
            raise InputError(f"another gatekeeper process is writing to {path}", hint=hint) from None
        return run

    @staticmethod
    def nothing_measured(path: Path) -> bool:
        """Tell whether the folder at *path* is empty, or holds only what a run killed before its manifest leaves."""
        with suppress(OSError):  # a path that cannot be read, which opening it reports
            # The first probe writes the server's log to logs/, and an atomic write begins under a hidden name.
            copies = path / INPUTS
            rest = [file.name for file in path.iterdir() if file.name not in {LOCK, FINDER_FILE, PLAN, *FOLDERS}]
            if copies.is_dir():
                rest += [copy.name for copy in copies.iterdir() if not _COPY.fullmatch(copy.name)]
            return all(name.startswith((f".{PLAN}.", f".{MANIFEST}.")) for name in rest)
        return False

    def close(self) -> None:
        """Release the lock of the folder."""
        self._lock.release()

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a file atomically: a reader sees the old content or the new one, never a part."""
        with write_errors(self.path / name):
            write_atomically(self.path / name, content, sync=True, inside=self.path)

    def read(self, name: str) -> bytes:
        """Return a file's bytes; a missing file is an InputError, one over MOST_BYTES no proof."""
        with self._read_errors(name):
            return read_regular(self.path / name, inside=self.path, most=MOST_BYTES)

    def sha256(self, name: str) -> str:
        """Return a file's digest, read in blocks; a missing file is an InputError."""
        with self._read_errors(name):
            return file_sha256(self.path / name, inside=self.path)

    @contextmanager
    def _read_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise InputError(f"{self.path} has no {name}", hint="is this a run directory of gatekeeper?") from None
        except NotADirectoryError:
            raise InputError(f"{self.path} is a file", hint="name a run directory, or latest") from None
        except NotRegularError as error:
            message = f"cannot read {self.path / name}: {error.strerror}"
            raise NoProofError(Reason.UNREADABLE, message, hint=RESTORE_HINT) from error
        except OSError as error:
            raise unreadable(self.path / name, error) from error

    def document(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file; a newer schema or damage is an InputError."""
        return parse_json(self.read(name), name)

    def text(self, name: str) -> str:
        """Return a file as text; a file that is not UTF-8 is no proof, like a damaged record."""
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as error:
            message = f"{self.path / name} is damaged: byte {error.start} is not UTF-8"
            raise NoProofError(Reason.UNREADABLE, message, hint=RESTORE_HINT) from error

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with write_errors(self.path / name):
            (self.path / name).unlink(missing_ok=True)

    def set_aside(self, name: str, suffix: str) -> None:
        """Rename a record file, if it was not before, so that the run does not count it and can write it anew."""
        beside = self.path / f"{name}{suffix}"
        if not beside.exists() and (self.path / name).exists():
            with write_errors(self.path / name):
                (self.path / name).rename(beside)

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
        with write_errors(self.path):
            digests = {name: file_sha256(self.path / name, inside=self.path) for name in names}
        self.write(CHECKSUMS, "".join(f"{digest}  {name}\n" for name, digest in digests.items()))

    def is_finished(self) -> bool:
        """Return whether the run has ended: SHA256SUMS is written last."""
        with suppress(OSError):
            return (self.path / CHECKSUMS).is_file()
        return False

    def changed_files(self, includes: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Name the files that *includes* accepts and that differ from SHA256SUMS; none if SHA256SUMS is missing."""
        if not self.is_finished():
            return []
        changed, listed = [], {CHECKSUMS, LOCK, FINDER_FILE, *WATCH_FILES}
        for line in self.read(CHECKSUMS).decode(errors="replace").splitlines():
            digest, _, name = line.partition("  ")
            listed.add(name)
            if includes(name) and self._digest(name) != digest:
                changed.append(name)
        names = sorted(path.name for path in self.path.glob("*") if path.is_file())
        return [*changed, *(name for name in names if name not in listed and includes(name))]

    def _digest(self, name: str) -> str | None:
        """Return a file's digest; None where it cannot be read, or is not in this folder."""
        try:
            return file_sha256(self.path / name, inside=self.path)
        except (OSError, ValueError):  # ValueError: a name that leads elsewhere
            return None


def is_run(path: Path) -> bool:
    """Return whether a folder holds a run, even one whose manifest was lost, or may: one that denies a look inside."""
    names = (MANIFEST, PLAN, VERDICT, CHECKSUMS)
    try:
        return any((path / name).is_file() for name in names) and not RunDirectory.nothing_measured(path)
    except PermissionError:
        return True


def run_around(path: Path) -> Path | None:
    """Return the run that *path* is inside of; None where there is none."""
    return next((folder for folder in path.parents[:2] if folder != Path() and is_run(folder)), None)


def check_outside_of_runs(path: Path) -> None:
    """Raise InputError where writing *path* would replace a file of a run, or add one to a finished run."""
    run = run_around(path.absolute())
    if run is None or path.name in WATCH_FILES or not (path.exists() or RunDirectory(run).is_finished()):
        return
    inside = path.absolute().relative_to(run)
    trouble = "is a file of that run" if path.exists() else "would be a file more, for which the deploy gate refuses it"
    beside = run_around(path) or run
    raise InputError(
        f"--output {path} is inside a run: it {trouble}", hint=f"write it beside the run: {beside.parent / inside.name}"
    )


def runs_in(folder: Path) -> list[Path]:
    """Return the run directories in *folder*."""
    if not folder.exists():
        hint = "name the folder that contains the run directories; gatekeeper certify writes into runs"
        raise InputError(f"there is no folder {folder}", hint=hint)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="name the folder that contains the run directories")
    folders = (path for path in folder.iterdir() if not path.name.startswith(".") and path.suffix != PARTIAL_SUFFIX)
    return sorted(path for path in folders if is_run(path))


def newest_run(folder: Path) -> Path:
    """Return the run in *folder* that was frozen last; one whose manifest cannot be read is left out."""
    runs: list[tuple[str, str, Path]] = []
    for path in runs_in(folder) if folder.is_dir() else ():
        with suppress(InputError, OSError):
            frozen_at = parse_json(read_regular(path / MANIFEST, most=MOST_BYTES), MANIFEST).get("frozen_at")
            runs.append((str(frozen_at), path.name, path))
    if not runs:
        raise InputError(
            f"there is no run in the folder {folder} to take as the latest",
            hint="name the run's folder, or make one: gatekeeper certify SLO.toml",
        )
    return max(runs)[-1]


def suggest_run(path: Path) -> None:
    """Raise InputError, which names a run that may be meant, where *path* is a folder of runs or does not exist."""
    if (around := run_around(path)) is not None and not is_run(path):
        raise InputError(f"{path} is a part of a run", hint=f"name the run's folder: {around}")
    if path.is_file():
        what = ": an SLO file is what runs are made of" if path.suffix == ".toml" else ""
        raise InputError(f"{path} is no run{what}", hint="name a run directory, or latest")
    runs = runs_in(path) if path.is_dir() and not is_run(path) else []
    if runs:
        newest = newest_run(path)
        raise InputError(f"{path} is no run: it is a folder of {len(runs)}", hint=f"name one of them, such as {newest}")
    if path.exists():
        return
    beside = {run.name: run for folder in {RUNS, path.parent} if folder.is_dir() for run in runs_in(folder)}
    near = nearest_word(path.name, [*beside, "latest"])
    hint = f"did you mean '{beside.get(near, near)}'?" if near else "gatekeeper history lists the runs of a folder"
    raise InputError(f"there is no run {path}", hint=hint)


@contextmanager
def unreadable_as_no_proof(path: Path) -> Iterator[None]:
    """Raise NoProofError for a run that cannot be read; a folder that is not a run stays an InputError."""
    try:
        yield
    except OtherRulesError as error:
        raise OtherRulesError(f"{path}: {error.message}", hint=error.hint, frozen_at=error.frozen_at) from error
    except (InputError, ValueError, LookupError) as error:
        if not is_run(path):
            raise
        trouble = error.message.removeprefix(f"{path} ") if isinstance(error, InputError) else f"damaged: {error}"
        newer = isinstance(error, InputError) and error.hint == UPDATE_HINT
        hint = UPDATE_HINT if newer else RESTORE_HINT
        raise NoProofError(Reason.UNREADABLE, f"{path}: {trouble}", hint=hint) from error


def parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON file of a run directory; a newer schema or damage is an InputError."""
    try:
        parsed = json_value(content)
    except ParseError as error:
        raise InputError(f"{name}: damaged: {error}", hint="restore it from a copy of the run") from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("schema"), int):
        raise InputError(f"{name}: not written by gatekeeper", hint="is this a run directory?")
    if parsed["schema"] > SCHEMA:
        message = f"{name}: schema {parsed['schema']} is newer than {SCHEMA}, the newest known here"
        raise InputError(message, hint=UPDATE_HINT)
    return parsed
