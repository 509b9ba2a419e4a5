"""A server's program and its process.

The program: the commands that start it, whether it is installed, its output and its versions. The process: started
under a guard, awaited until it is ready, its log quoted, ended.
"""

import atexit
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from gatekeeper.backends.dialect import Dialect
from gatekeeper.backends.workers import loop
from gatekeeper.core.errors import GatekeeperError, InputError, StartError
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.system import child_process
from gatekeeper.core.system.environment_variables import PYTHONPATH
from gatekeeper.core.system.files import open_regular, why_not_written
from gatekeeper.core.system.own_limits import check_own_limit
from gatekeeper.core.text import quote, quote_lines

GRACE_S = 10.0
"""Seconds from SIGTERM to SIGKILL: a server that frees a large model needs a few."""

_POLL_S = 0.05
_TAIL_LINES = 12
_TAIL_BYTES = 4000
_ERROR = re.compile(r"\s*([\w.]*(Error|Exception|Exit)\b|(ERROR|error|fatal)\b)(?!.*ResolutionImpossible)")


def environment(*, with_package: bool) -> dict[str, str]:
    """Return the environment of a program we start: this one, offline, with our package on its path if asked for.

    A server of another environment must not see our packages: each pins its own mlx-lm.
    """
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
    # Some servers report their usage by default.
    quiet |= {"DO_NOT_TRACK": "1"}
    if not with_package:
        return {**os.environ, **quiet}
    root = str(_package_alone())
    path = os.pathsep.join(part for part in (root, os.environ.get(PYTHONPATH, "")) if part)
    return {**os.environ, **quiet, PYTHONPATH: path}


@cache
def _package_alone() -> Path:
    """Return a folder that holds our package and nothing else.

    Beside an installed package lie all others: on the path of another environment they would replace its own.
    """
    package = Path(__file__).resolve().parents[1]
    if not any(package.parent.glob("*.dist-info")):
        return package.parent
    folder = Path(tempfile.mkdtemp(prefix="gatekeeper-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / package.name).symlink_to(package, target_is_directory=True)
    return folder


def tail(log: Path) -> str:
    """Return the last lines of *log*, empty where there are none."""
    with contextlib.suppress(OSError), os.fdopen(open_regular(log, os.O_RDONLY), "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return "\n".join(lines[-_TAIL_LINES:])
    return ""


def error_line(log: Path) -> str:
    """Return the last line of *log* that names an error, else its last line; empty where there are none."""
    lines = tail(log).splitlines()
    return quote(next((line for line in reversed(lines) if _ERROR.match(line)), (lines or [""])[-1]))


def new_log(log: Path) -> IO[bytes]:
    """Open an empty log at *log*, through no link; raise GatekeeperError where it cannot be written."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        return os.fdopen(open_regular(log, flags, inside=log.parent.parent), "wb")
    except OSError as error:
        check_own_limit(error)
        hint = "free disk space, or choose another --output"
        raise GatekeeperError(f"cannot write {log}: {why_not_written(log, error)}", hint=hint) from error


def program_path(name: str) -> str | None:
    """Return the path of a program: on PATH, or beside the running Python, or the path itself; None if it is missing.

    A virtual environment that is not activated has its programs beside its Python, and not on PATH.
    """
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def find_program(name: str, *, install: str) -> str:
    """Return the path of a program; raise InputError with how to install it."""
    path = program_path(name)
    if path is None:
        raise InputError(f"program '{name}' is not on PATH, nor beside {sys.executable}", hint=install)
    return path


def find_versions(*names: str) -> dict[str, str]:
    """Return the versions of packages of this environment; `unknown` for one that is not installed."""
    return dict.fromkeys(names, "unknown") | loop.find_versions(*names)


def installed_beside(program: str, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of packages in the environment of a Python program; empty for any other program.

    Few servers have --version, and a server's own version does not identify the mlx it decodes with.
    """
    python = _python_of(program_path(program))
    if python is None:
        return {}
    script = (
        "import importlib.metadata as m, json, sys\n"
        "there = {d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}\n"
        "print(json.dumps({name: there[name] for name in sys.argv[1:] if name in there}))"
    )
    return _versions_from([python, "-I", "-c", script, *names])


def module_versions(python: str, module: str) -> dict[str, str]:
    """Return the version of the package that *module* of a Python belongs to; empty where it belongs to none.

    As the server finds its modules: with PYTHONPATH and the packages of this user.
    """
    script = (
        "import importlib.metadata as m, json, sys\n"
        "try: there = [m.distribution(sys.argv[1])]\n"
        "except m.PackageNotFoundError:\n"
        "    there = map(m.distribution, m.packages_distributions().get(sys.argv[1], ()))\n"
        "print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version for d in there}))"
    )
    return _versions_from([program_path(python) or python, "-c", script, module.partition(".")[0]])


def _versions_from(command: Sequence[str]) -> dict[str, str]:
    """Return the versions by package that a Python prints; empty where it prints none."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=True, env=environment(with_package=False))
        versions = json_value(done.stdout)
    except (OSError, subprocess.SubprocessError, ParseError) as error:
        check_own_limit(error)
        return {}
    return {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else {}


def _python_of(path: str | None) -> str | None:
    """Return the Python that runs a program: the program itself, or the one its first lines name."""
    if path is None or Path(path).name.lower().startswith("python"):
        return path
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        # For a path that is long or has a space, installers write `#!/bin/sh`, and the Python on the second line.
        interpreter = re.match(rb"#!(?:/bin/sh\n'+exec' )?[ \t]*\"?([^\"\n]*python[^\"\n ]*)", file.read(1000))
        return None if interpreter is None else os.fsdecode(interpreter.group(1))
    return None


_COMMAND_S = 60.0
"""Seconds to wait for a program's --help or --version: some import a whole framework first."""
_MODULE = re.compile(r"-[A-Zb-ln-z]*m(.*)")
"""Python's option for a module, alone or after options of one letter: `-m`, `-um`."""
_PYTHON = re.compile(r"(?:^|/)python[\d.]*$", re.IGNORECASE)
_NAMES_VERSION = re.compile(r"\bversion\b.*\d", re.IGNORECASE)


def check_commands(subject: Subject, dialect: Dialect) -> None:
    """Raise InputError for a command that no server could be started with."""
    for name, command in (("plain_command", subject.plain_command), ("command", subject.command)):
        if command is not None and not any("{port}" in word for word in command):
            # On a fixed port another server may already listen, and would be measured instead.
            message = f"subject.{name} has no {{port}}"
            raise InputError(message, hint="write {port} where the server's port goes")
        if command is None and dialect.argv is None and not (dialect.switches and subject.command is not None):
            message = f"subject.{name} is missing: gatekeeper has no command line for {dialect.name}"
            raise InputError(message, hint=dialect.install)


def _check_installed(subject: Subject, dialect: Dialect) -> None:
    """Raise InputError for programs that are not installed; a plan needs none."""
    for command in (subject.plain_command, subject.command):
        program = (command or subject.program or dialect.program)[:1]
        if program:
            find_program(program[0], install=dialect.install)
        elif dialect.module is not None and find_spec(dialect.module) is None:
            message = f"the {dialect.name} backend needs {dialect.module}, which is not installed here"
            raise InputError(message, hint=dialect.install)


def installed_versions(subject: Subject, dialect: Dialect) -> dict[str, str]:
    """Return the versions of the program that *subject* starts; raise InputError where it is not installed."""
    _check_installed(subject, dialect)
    if dialect.version is not None:
        return dialect.version(subject)
    words = subject.program or subject.command or dialect.program
    if dialect.packages and (beside := installed_beside(words[0], dialect.packages)):
        return beside
    if (python := next(filter(_PYTHON.search, words), None)) is not None:
        # Its own version says nothing of the server that it runs.
        module = _module(words[words.index(python) + 1 :])
        return {} if module is None else module_versions(python, module)
    return {dialect.name: version_in(output_of((*words[:1], "--version")))}


def _module(arguments: Sequence[str]) -> str | None:
    """Return the module that a Python with *arguments* runs; None for a script."""
    rest = iter(arguments)
    for word in rest:
        if (option := _MODULE.fullmatch(word)) is not None:
            return option.group(1) or next(rest, None)
        if word in {"-X", "-W"}:
            next(rest, None)
        elif not word.startswith("-") or word.startswith("-c"):
            return None
    return None


def output_of(command: Sequence[str]) -> str:
    """Return a program's output; empty where it cannot be started or does not end in time."""
    try:
        done = subprocess.run(
            (program_path(command[0]) or command[0], *command[1:]),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_COMMAND_S,
            check=False,
            env=environment(with_package=False),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        check_own_limit(error)
        return ""
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def version_in(text: str, key: str | None = None) -> str:
    """Return the version in *text*: the value under *key*, else the line that names it, else the first line."""
    if key is not None:
        try:
            text = str(json_value(text, from_server=True)[key])
        except (ParseError, KeyError, TypeError):
            return "unknown"
    lines = [quoted for line in text.splitlines() if (quoted := quote(line))]
    # Some programs list their devices first, or draw a banner.
    return next((line for line in lines if _NAMES_VERSION.search(line)), next(iter(lines), "unknown"))


class ServerProcess:
    """A server program under its guard, with its log."""

    def __init__(
        self, command: Sequence[str], *, log: Path, with_package: bool = False, grace: float = GRACE_S
    ) -> None:
        self.log, self._grace, self._closing = log, grace, threading.Lock()
        try:
            self._guard, self._pipe = _start_guarded(command, log, with_package=with_package, grace=grace)
        except OSError as error:
            check_own_limit(error)
            raise
        assert self._guard.stdout is not None
        with self._guard.stdout as output:
            # The guard writes it before the program can write anything.
            self.pid = int(output.readline() or b"0")

    def alive(self) -> bool:
        """Tell whether the program runs."""
        return self._guard.poll() is None

    def ending(self, timeout: float = 2.0) -> str | None:
        """Return how it ended, None if it still runs after *timeout* seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child_process.exit_reason(self._guard.wait(timeout))
        return None

    def close(self) -> None:
        """End the program and its guard, and wait for both; safe to call twice."""
        with self._closing:
            if self._pipe is None:
                return
            try:
                # The guard itself needs the grace, and a moment more to wait for a server that it had to kill.
                child_process.end(self._guard, grace=self._grace + 5)
            finally:
                if self._guard.returncode == -signal.SIGKILL and self.pid:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(self.pid, signal.SIGKILL)
                os.close(self._pipe)
                self._pipe = None


def _start_guarded(
    command: Sequence[str], log: Path, *, with_package: bool, grace: float
) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start *command* under its guard; return the guard and our end of the pipe that keeps it waiting."""
    with new_log(log) as file:
        guards_end, our_end = os.pipe()
        try:
            guard = subprocess.Popen(
                child_process.add_guard([*command], pipe=guards_end, grace=grace),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                pass_fds=(guards_end,),
                start_new_session=True,
                env=environment(with_package=with_package),
            )
        except BaseException:
            os.close(our_end)
            raise
        finally:
            os.close(guards_end)
    return guard, our_end


def launch(
    command: Sequence[str],
    *,
    log: Path,
    ready: Callable[[int], bool],
    start_timeout: float,
    install: str,
    with_package: bool = False,
) -> ServerProcess:
    """Start *command* and wait until *ready*, which is called with its pid, is true.

    Raise InputError with the last lines of its log where the program is missing, exits, or is not ready within
    *start_timeout* seconds.
    """
    program = find_program(command[0], install=install)
    process = ServerProcess([program, *command[1:]], log=log, with_package=with_package)
    try:
        _await(process, " ".join(command), ready, start_timeout)
    except BaseException:
        process.close()
        raise
    return process


def _await(process: ServerProcess, command: str, ready: Callable[[int], bool], start_timeout: float) -> None:
    deadline = time.monotonic() + start_timeout
    while not ready(process.pid):
        if (ended := process.ending(_POLL_S)) is not None:
            cause = error_line(process.log) or ended
            raise StartError(f"`{command}` ended at start: {ended}", cause=cause, hint=quoted_log(process.log))
        if time.monotonic() > deadline:
            message = f"`{command}` was not healthy within start_timeout = {start_timeout:g} s"
            hint = f"raise start_timeout in [subject], or fix the cause\n{quoted_log(process.log)}"
            raise StartError(message, cause=error_line(process.log) or "it was not healthy in time", hint=hint)


def quoted_log(log: Path) -> str:
    """Quote the last lines of a log, for an error."""
    text = quote_lines(tail(log))
    return f"last lines of {log.name}:\n{text}" if text else f"its log {log.name} is empty"
