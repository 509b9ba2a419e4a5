"""Environments with given versions of packages: made with uv or pip, kept in the user's cache, used again."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from gatekeeper.backends import facts_of
from gatekeeper.backends.server_process import error_line
from gatekeeper.core.errors import InputError, StartError
from gatekeeper.core.manifest import sha256
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.system.file_digests import user_hash_cache
from gatekeeper.core.system.file_lock import FileLock, LockHeldError
from gatekeeper.core.text import quote

MADE = "gatekeeper.json"
"""Written last: an environment without it is incomplete, and is made again."""
_LONGEST_S = 3600.0
"""Seconds to wait for an installer: wheels of a framework are large."""

_SOURCE = re.compile("(PIP|UV)_.*(INDEX|FIND_LINKS).*")
"""Variables of the installers that say where packages come from."""


class InstallError(StartError):
    """An environment cannot be made: this version cannot be tested."""


def started_from(environment: Path, subject: Subject) -> Subject:
    """Return the system under test, started from an *environment*."""
    facts = facts_of(subject.backend)
    words = subject.command or subject.program or facts.program or None
    if words is not None:
        program = environment / "bin" / Path(words[0]).name
        if not program.exists():
            hint = "name a program that the package installs, such as python"
            raise InputError(f"{words[0]} is not in the environment {environment}", hint=hint)
        key = "command" if subject.command is not None else "program"
        return subject.model_copy(update={key: (str(program), *words[1:])})
    script = environment / "bin" / (facts.console_script or "python")
    if not script.exists():
        hint = "install mlx-lm there; with bisect: --with mlx-lm"
        raise InputError(f"{script.name} is not in the environment {environment}", hint=hint)
    return subject.model_copy(update={"program": (str(script),)})


def environments_folder() -> Path:
    """Return the folder of all environments in the user's cache."""
    return user_hash_cache().parent / "environments"


def folder_bytes(path: Path) -> int:
    """Return the bytes of a folder."""
    return sum(file.lstat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())


def make_environment(requirements: Sequence[str], options: Sequence[str], note: Callable[[str], None]) -> Path:
    """Return the folder of an environment with *requirements*, installed with the *options* of pip.

    Raise InstallError if it fails. *note* takes what is being done. The environment is made once; two processes never
    make the same one.
    """
    contents = {
        "python": platform.python_version(),
        "requirements": list(requirements),
        "options": list(options),
        "sources": _sources(options),
    }
    path = environments_folder() / sha256(json.dumps(contents, sort_keys=True))[:16]
    if _is_made(path, contents):
        return path
    environments_folder().mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_suffix(".lock"), remove=True)
    try:
        lock.acquire("")
    except LockHeldError:
        hint = "wait until it is done, then run this again"
        raise InputError(f"another gatekeeper is installing {' '.join(requirements)}", hint=hint) from None
    try:
        if not _is_made(path, contents):
            shutil.rmtree(path, ignore_errors=True)
            note(f"installing {' '.join(requirements)}")
            _make(path, requirements, options)
            (path / MADE).write_text(json.dumps(contents, sort_keys=True) + "\n", encoding="utf-8")
    finally:
        lock.release()
    return path


def _sources(options: Sequence[str]) -> str:
    """Return one digest of where packages come from: with other indexes or local wheels, one version is two things."""
    settings = {name: os.environ[name] for name in os.environ if _SOURCE.fullmatch(name)}
    sources = {name: [_listed(word) for word in text.split()] for name, text in settings.items()}
    sources["options"] = [_listed(word.rpartition("=")[2]) for word in options]
    return sha256(json.dumps(sources, sort_keys=True))


def _listed(word: str) -> Any:
    """Return a folder as the names and sizes of its files, any other word as it is."""
    folder = Path(word.removeprefix("file://")).expanduser()
    return sorted((file.name, file.stat().st_size) for file in folder.iterdir()) if folder.is_dir() else word


def _is_made(path: Path, contents: object) -> bool:
    try:
        return bool(json.loads((path / MADE).read_text(encoding="utf-8")) == contents)
    except (OSError, ValueError):
        return False


def _make(path: Path, requirements: Sequence[str], options: Sequence[str]) -> None:
    uv, log = shutil.which("uv"), path.with_suffix(".log")
    python = str(path / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if uv is not None:
        steps = [
            [uv, "venv", "--quiet", "--python", sys.executable, str(path)],
            [uv, "pip", "install", "--quiet", "--refresh", "--python", python, *options, *requirements],
        ]
    else:
        steps = [
            [sys.executable, "-m", "venv", "--without-pip", str(path)],
            [*pip, "--python", python, "install", "--quiet", *options, *requirements],
        ]
    with log.open("wb") as output:
        for step in steps:
            if not _succeeds(step, output):
                shutil.rmtree(path, ignore_errors=True)
                packages = " ".join(requirements)
                cause = f"{packages}: {_refusal(log)}"
                raise InstallError(f"cannot install {packages}", cause=cause, hint=f"its log is {log}")


def _refusal(log: Path) -> str:
    """Return why an installer refused: the whole sentence of uv, or the line of pip that names it."""
    text = log.read_text(encoding="utf-8", errors="replace")
    _, begun, sentence = text.partition("Because ")
    return quote(" ".join(f"{begun}{sentence}".split())) if begun else error_line(log) or "the installer gave no reason"


def _succeeds(step: Sequence[str], output: IO[bytes]) -> bool:
    try:
        return not subprocess.run(step, stdout=output, stderr=output, timeout=_LONGEST_S, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
