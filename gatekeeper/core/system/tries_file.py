"""The record of tries: which finished run of what ended how, kept for this user on this host.

Certifying the same artifacts until one run passes by luck must show, also after the other runs were moved or removed.
So the record lies outside of every folder of runs. It holds digests and exit codes: no path, name or address.
"""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from gatekeeper.core.parse import ParseError, json_object
from gatekeeper.core.system.file_lock import FileLock, LockHeldError
from gatekeeper.core.system.files import open_regular, user_state_folder, write_atomically

NAME = "tries.jsonl"
SCHEMA = 1
"""Version of the record. 1: a first line with the schema and whether lines were lost, then one line a run."""
MOST_RUNS = 4096
"""The oldest are dropped beyond it: a run every night for eleven years."""
MOST_BYTES = 1 << 21
"""A line has less than 300 bytes, so this is more than MOST_RUNS of them."""
LOCK_WAIT_S = 10.0
"""Others hold the lock for one small write; a lock held this long is that of a process that hangs."""
LOST = "it lost lines, the oldest or damaged ones"
DAMAGED = "lines of it are damaged"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Try:
    """One finished run."""

    subject: str
    """Digest of the SLO, the inputs and the artifacts: runs of the same subject are tries of the same thing."""
    artifacts: str
    """Digest of the artifacts alone, which no edit of the SLO changes."""
    run: str
    """Digest of its manifest, which no copy or new name of the run changes."""
    exit_code: int


@dataclass(frozen=True, slots=True)
class Record:
    """What the record holds, and why it may not be all."""

    tries: Mapping[str, Try]
    """The tries by run, the oldest first."""
    gap: str | None = None
    """Why there may have been more tries; None: the record is whole."""
    absent: bool = False
    """There is no record yet: no run has ended here, or it was removed."""

    def failed_otherwise(self, subject: str, artifacts: str) -> frozenset[str]:
        """Return the runs of the same *artifacts* that did not pass, by another SLO or with other inputs."""
        return frozenset(
            run
            for run, each in self.tries.items()
            if each.artifacts == artifacts and each.subject != subject and each.exit_code
        )

    def exit_codes(self, subject: str) -> dict[str, int]:
        """Return the exit code of each run of *subject*."""
        return {run: each.exit_code for run, each in self.tries.items() if each.subject == subject}


def read() -> Record:
    """Return the record of this user on this host; one that cannot be read is an empty one with a gap."""
    try:
        return _read(_path())
    except (OSError, ParseError) as error:
        return Record({}, _describe_error(error))


def add(new: Try) -> str | None:
    """Add a finished run to the record, or its new outcome; return what went wrong, None where nothing did.

    A run that was extended has one line, with its last outcome. Damaged lines are dropped, and the record then says so.
    """
    try:
        path = _path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _hold_lock(path):
            before = _read(path)
            if before.tries.get(new.run) != new:
                _write(path, before, new)
    except (OSError, ParseError) as error:
        return _describe_error(error)
    return DAMAGED if before.gap == DAMAGED else None


def _path() -> Path:
    return user_state_folder() / NAME


def _describe_error(error: OSError | ParseError) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'its folder'}: {error.strerror or error}"
    return str(error)


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold the record's lock, waiting for another process; raise OSError after LOCK_WAIT_S."""
    lock = FileLock(
        path.with_suffix(".lock"), opener=lambda name: open_regular(name, os.O_RDWR | os.O_CREAT, mode=0o600)
    )
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            lock.acquire("")  # no name, for which it waits a little itself
            break
        except LockHeldError:
            if time.monotonic() > end:
                raise TimeoutError(None, "another process does not release it", lock.path) from None
    try:
        yield
    finally:
        lock.release()


def _read(path: Path) -> Record:
    """Read the record. Raise OSError, and ParseError for one that a newer gatekeeper wrote."""
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Record({}, "there is none on this host", absent=True)
    tries: dict[str, Try] = {}
    first, *lines = content[:MOST_BYTES].split(b"\n")
    gap = _gap(first, path)
    if lines[-1:] != [b""] or len(content) > MOST_BYTES:
        gap = DAMAGED
    for line in lines[:-1]:
        parsed = _parse(line)
        if parsed is None:
            gap = DAMAGED
        else:
            tries[parsed.run] = parsed
    return Record(tries, gap)


def _gap(first: bytes, path: Path) -> str | None:
    """Return what the first line says of lost lines; raise ParseError for a newer schema."""
    try:
        header = json_object(first)
    except ParseError:
        return DAMAGED
    schema = header.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise ParseError(f"{path} is of schema {schema}, newer than this gatekeeper: update it")
    if schema != SCHEMA or not isinstance(header.get("lost"), bool):
        return DAMAGED
    return LOST if header["lost"] else None


def _parse(line: bytes) -> Try | None:
    try:
        fields = json_object(line)
    except ParseError:
        return None
    subject, artifacts, run, exit_code = (fields.get(name) for name in ("subject", "artifacts", "run", "exit_code"))
    digests = all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in (subject, artifacts, run))
    if not digests or not isinstance(exit_code, int) or isinstance(exit_code, bool):
        return None
    return Try(str(subject), str(artifacts), str(run), exit_code)


def _write(path: Path, before: Record, new: Try) -> None:
    """Replace the record by one with the *new* run, which a crash or a full disk leaves whole."""
    earlier = [each for each in before.tries.values() if each.run != new.run]
    lost = (before.gap is not None and not before.absent) or len(earlier) >= MOST_RUNS
    lines = [{"schema": SCHEMA, "lost": lost}, *(asdict(each) for each in (*earlier[-(MOST_RUNS - 1) :], new))]
    write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines), sync=True, mode=0o600)
