"""The lock: one watch for each file that watches keep."""

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from gatekeeper.terms.errors import GatekeeperError, HostLacksError


class Lock:
    """Held from entering to leaving, on a file beside the one it is about; it ends with its process in any case."""

    def __init__(self, about: Path, *, owner: Mapping[str, Any], option: str) -> None:
        """Say in the lock who the *owner* is; *option* names another file in the place of *about*."""
        self._about, self._owner, self._option = about, owner, option
        self._file: IO[str] | None = None

    @property
    def path(self) -> Path:
        """Return the file that is locked."""
        return self._about.with_name(f".{self._about.name}.lock")

    def __enter__(self) -> Self:
        """Take it, or say who has it."""
        # The file stays when the lock is given back: unlinking it would let two hold what they take for one.
        try:
            file = self.path.open("a+")
        except OSError as error:
            raise GatekeeperError(
                f"cannot write {self._about}: {error.strerror or error}",
                hint=f"make its folder writable, or name another {self._option}",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(file)
            file.close()
            raise HostLacksError(
                f"{self._about} is kept by another watch: {holder}",
                hint="end that one, or give this one an --overlay and a --journal of its own",
            ) from None
        self._file = file
        file.truncate(0)
        with suppress(OSError):  # a full disk: it is held all the same, and only who holds it is not told
            os.write(file.fileno(), json.dumps({"pid": os.getpid(), **self._owner}).encode() + b"\n")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give it back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _holder(file: IO[str]) -> str:
    """Say who holds the lock, in its own words."""
    file.seek(0)
    try:
        told = json.loads(file.read(4096))
        return f"process {told['pid']}, since {told['since']}, for {told['policy']}"
    except (ValueError, KeyError, TypeError):
        return "it has not said who it is"
