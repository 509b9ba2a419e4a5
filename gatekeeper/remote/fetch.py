"""Fetching a run directory: every file checked on arrival, asked for again where it is damaged, whole or not at all."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gatekeeper.remote.link import Link
from gatekeeper.remote.tether import Say, Tether
from gatekeeper.remote.trouble import LinkError
from gatekeeper.terms.errors import GatekeeperError, InputError, NoProofError
from gatekeeper.terms.units import show_bytes

ATTEMPTS = 4
"""How often one file is asked for: a line that damages the same file so often will not bring it."""


def fetch(tether: Tether, run_id: str, out: Path, say: Say) -> int:
    """Bring the run *run_id* to *out*; return how many files came. An earlier part of it there is replaced.

    It is gathered beside *out* and moved when every digest is what the far side says; what is gathered already is not
    asked for again.
    """
    # One folder deeper than a run lies, so that nobody takes what is gathered for one.
    part = out.with_name(f".{out.name}.part") / "run"

    def act(link: Link) -> int:
        listed = {str(one["name"]): one for one in link.stream("files", run_id=run_id)}
        kept = {name: one for name, one in listed.items() if _belongs(name)}
        for stale in [path for path in _files(part) if path.relative_to(part).as_posix() not in kept]:
            stale.unlink()
        for one in kept.values():
            _bring(link, one, part, say)
            tether.alive()
        return len(kept)

    try:
        part.mkdir(parents=True, exist_ok=True)
        count = tether.hold(act)
        if count:
            _move(part, out)
        else:  # it ended before it wrote anything
            shutil.rmtree(part.parent)
    except OSError as error:
        raise GatekeeperError(
            f"cannot write {error.filename or part}: {error.strerror or error}",
            hint="free some space; the run is kept there, and the same command brings it",
        ) from error
    return count


def _belongs(name: str) -> bool:
    """Leave out locks and half-written files; refuse a name that leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise NoProofError("damaged", f"the far side lists a file {name!r}", hint="is that host what it should be?")
    return path.name != "lock" and not path.name.startswith(".")


def _bring(link: Link, one: Mapping[str, Any], part: Path, say: Say) -> None:
    target = part / str(one["name"])
    if target.is_file() and target.stat().st_size == one["size"] and _digest(target) == one["sha256"]:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with target.open("wb") as into:
                link.get(str(one["path"]), into)
        except LinkError as error:
            if error.reason != "damaged":
                raise
        if target.is_file() and _digest(target) == one["sha256"]:
            return
        if attempt < ATTEMPTS:
            say("transfer", f"{one['name']} ({show_bytes(one['size'])}) came damaged and is asked for again")
    target.unlink(missing_ok=True)
    # Not a broken connection, which would be mended by another: one that changes what it carries.
    raise NoProofError(
        "damaged",
        f"{one['name']} came damaged {ATTEMPTS} times",
        hint="try another network; the run is kept there: gatekeeper remote fetch",
    )


def _move(part: Path, out: Path) -> None:
    """Put the run in its place; only an earlier part of the same run is replaced there."""
    frozen = [folder / "manifest.json" for folder in (part, out)]
    same = all(path.is_file() for path in frozen) and frozen[0].read_bytes() == frozen[1].read_bytes()
    if out.exists() and not same and (not out.is_dir() or any(out.iterdir())):
        raise InputError(
            f"{out} is not empty, and holds no part of this run",
            hint=f"choose another --out: gatekeeper remote fetch brings it there; what came lies in {part}",
        )
    if out.exists():
        old = part.with_name("old")
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    part.rename(out)
    shutil.rmtree(part.parent, ignore_errors=True)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
