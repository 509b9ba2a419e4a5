"""The program of a server: the commands that start it, whether it is installed, its output and its versions."""

import re
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec

from gatekeeper.backends.dialect import Dialect
from gatekeeper.backends.server_process import (
    environment,
    find_program,
    installed_beside,
    module_versions,
    program_path,
)
from gatekeeper.core.errors import InputError
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.system.own_limits import check_own_limit
from gatekeeper.core.text import quote

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
