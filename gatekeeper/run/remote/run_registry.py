"""The run registry: the runs this machine started on remote hosts, one small file each, written before they begin."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from gatekeeper.core.errors import GatekeeperError, HostLacksError
from gatekeeper.core.parse import json_object
from gatekeeper.core.system.file_lock import FileLock, LockHeldError
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.system.run_directory import RUNS

SUFFIX = ".remote.json"
OPEN, CLOSED = "open", "closed"


@dataclass(frozen=True, slots=True)
class Entry:
    """One run on a remote host; the fields are the keys of its file."""

    run_id: str
    host: str
    """As it was given to --on."""
    command: tuple[str, ...]
    """The command and its options: certify, or soak with its knobs."""
    slo: str
    """The path of the local SLO file."""
    slo_name: str
    parcel_sha256: str
    """Digest of everything uploaded: the same command with other inputs is another run."""
    out: str
    """The local run directory."""
    started: str
    state: str = OPEN
    outcome: str = ""
    """How it ended, once it is closed."""
    installed: tuple[str, ...] = ()
    """`name==version` of every package in its remote environment."""

    @classmethod
    def of_job(cls, job: Mapping[str, Any], host: str, out: Path | None = None, slo: str = "") -> "Entry":
        """Return the entry of a job that *host* lists."""
        label, run_id = job.get("label") or {}, str(job["run_id"])
        command = label.get("command") or job["argv"][:1] or ("certify",)
        return cls(
            run_id=run_id, host=host, command=tuple(command), slo=slo, slo_name=str(label.get("slo") or ""),
            parcel_sha256=str(label.get("parcel") or ""), out=str(out or RUNS / run_id), started=str(job["started"]),
            installed=tuple(label.get("installed") or ()),
        )  # fmt: skip

    @property
    def started_here(self) -> bool:
        """Return whether this machine started the run; the command of another one is only what the host says."""
        return bool(self.slo)

    def matches(self, host: str, command: Sequence[str], parcel_sha256: str, out: Path | None) -> bool:
        """Return whether this is the run of the same command."""
        is_same = (self.host, self.command, self.parcel_sha256) == (host, tuple(command), parcel_sha256)
        return is_same and (out is None or Path(self.out) == out)


class FollowedError(HostLacksError):
    """Another local process follows the run."""


_ENTRIES: TypeAdapter[Entry] = TypeAdapter(Entry)


class RunRegistry:
    """The entries in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entries(self) -> list[Entry]:
        """Return every entry that can be read, the newest last."""
        return sorted(self._read(), key=lambda entry: entry.started)

    def write(self, entry: Entry) -> None:
        """Write an entry whole, or not at all."""
        path = self.folder / f"{entry.run_id}{SUFFIX}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"schema": 1, **asdict(entry)}, indent=1, ensure_ascii=False) + "\n"
            write_atomically(path, text, sync=True)  # the remote run begins next, and is lost without it
        except OSError as error:
            raise _unwritable(path, error) from error

    def close(self, entry: Entry, outcome: str) -> None:
        """Note that a run was downloaded."""
        self.write(replace(entry, state=CLOSED, outcome=outcome))

    @contextmanager
    def locked(self, entry: Entry) -> Iterator[None]:
        """Let no other local process follow the same run: two would download it to the same place."""
        lock = FileLock(self.folder / f".{entry.run_id}.lock", remove=True)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(str(os.getpid()))
        except OSError as error:
            raise _unwritable(lock.path, error) from error
        except LockHeldError as held:
            raise _followed_error(entry, held.owner.strip()) from None
        try:
            yield
        finally:
            lock.release()

    def find(self, run_id: str) -> Entry | None:
        """Return the entry of a run."""
        return next((entry for entry in self.entries() if entry.run_id == run_id), None)

    def _read(self) -> Iterator[Entry]:
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                entry = _ENTRIES.validate_python(json_object(path.read_bytes()))
                place = self.folder / Path(entry.out).name
                # An entry stands beside its run, and nothing in it leads elsewhere.
                if path.name == f"{entry.run_id}{SUFFIX}" and place.name != "..":
                    yield replace(entry, out=str(place))
            except (OSError, ValueError):
                continue  # the remote host lists its runs as well


def _unwritable(path: Path, error: OSError) -> GatekeeperError:
    return GatekeeperError(f"cannot write {path}: {error.strerror}", hint="free some disk space, or use another folder")


def _followed_error(entry: Entry, pid: str) -> FollowedError:
    """Return the error that names the process which follows the run; it is no mistake in the command."""
    message = f"another local gatekeeper{f' (process {pid})' if pid else ''} already follows {entry.run_id}"
    hint = "watch that one; or end it and repeat the command, which attaches: the run continues meanwhile"
    return FollowedError(message, hint=hint)
