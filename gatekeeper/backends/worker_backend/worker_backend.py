"""The worker backend: programs with the worker protocol, one process per draft."""

import functools
import operator
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from gatekeeper.backends.answer_limits import AnswerLimits
from gatekeeper.backends.backend_facts import BackendFacts
from gatekeeper.backends.http.chat_request import PLAIN
from gatekeeper.backends.launch_line import without_keys
from gatekeeper.backends.models.artifacts import local_path, relative_paths
from gatekeeper.backends.server_process import error_line, find_program, quoted_log
from gatekeeper.backends.worker_backend.running_worker import Worker
from gatekeeper.backends.worker_backend.worker_process import WorkerProcess
from gatekeeper.backends.worker_backend.worker_protocol import (
    KNOBS,
    MANUAL,
    SEES,
    Greeting,
    WorkerFault,
    greeting_from,
    read_line,
)
from gatekeeper.core.backend_registry import ADAPTERS
from gatekeeper.core.clock import Clock, SystemClock
from gatekeeper.core.errors import GatekeeperError, InputError, StartError
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import TIMEOUT, Setting
from gatekeeper.core.slo import CONDITIONS
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.system.files import file_sha256
from gatekeeper.core.text import quote

FACTS = BackendFacts(name="worker", commands_name_files=True)
_UNUSED = ("url", "plain_url", "served_model_name", "draft_method", "api_key_env", "knobs")
_PLACEHOLDER = re.compile(r"\{(target|draft)\}")
SEEN_IN_ANSWERS = Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT | Sight.TOKEN_IDS | Sight.COLD | Sight.PROMPT_TIME
"""Parts of an answer that count only where both arms show them."""
READS_TARGET = Sight.LOGITS | Sight.FORCED | Sight.REPLAY | Sight.WIDTHS
"""What untimed passes of the target show: the plain arm's."""


@dataclass(frozen=True, slots=True)
class Commands:
    """The command lines of both arms, with their placeholders."""

    drafting: tuple[str, ...]
    plain: tuple[str, ...] | None
    """None: the same program, whose words with {draft} are left out where there is no draft."""
    models: Mapping[str, Path]
    folder: Path
    """The working directory of the programs: the SLO file's folder, which paths are relative to."""

    def fill_command(self, target: str, draft: str | None) -> list[str]:
        """Return one arm's command line; raise InputError where its program is missing."""
        words = self.drafting if draft is not None or self.plain is None else self.plain
        if not (chosen := [word for word in words if draft is not None or "{draft}" not in word]):
            raise InputError(f"`{' '.join(words)}` is empty without the words that hold {{draft}}", hint=MANUAL)
        values = {"target": local_path(self.models, target), "draft": draft and local_path(self.models, draft)}
        filled = [_PLACEHOLDER.sub(lambda match: str(values[match[1]]), word) for word in chosen]
        return [self._program(filled[0]), *filled[1:]]

    def _program(self, word: str) -> str:
        if "/" not in word:
            hint = f"install it, or write its path with a slash: {relative_paths(self.folder)}"
            return find_program(word, install=hint)
        path = self.folder / word
        if not path.is_file():
            raise InputError(f"worker program {path} does not exist", hint=relative_paths(self.folder))
        if not os.access(path, os.X_OK):
            hint = f"chmod +x {word}, or name its interpreter first, as in python3 {word}"
            raise InputError(f"worker program {path} is not executable", hint=hint)
        return str(path)

    def for_manifest(self) -> dict[str, str]:
        """Return the command lines as written and the digests of the files they name."""
        entries = {"command": " ".join(without_keys(self.drafting))}
        if self.plain is not None:
            entries["plain_command"] = " ".join(without_keys(self.plain))
        for word in (*self.drafting, *(self.plain or ())):
            if not _PLACEHOLDER.search(word) and (path := self.folder / word).is_file():
                entries[f"file {word}"] = file_sha256(path)
        return entries


def open_worker(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "WorkerBackend":
    """Start each program once, read its greeting and end it; raise InputError where one does not greet."""
    commands, with_package = _commands(subject, models, base)
    return WorkerBackend(subject, commands, logs, with_package=with_package)


def assume_worker(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "WorkerBackend":
    """Return the backend of a worker that is not started; raise InputError for commands that could not be."""
    commands, with_package = _commands(subject, models, base)
    return _AssumedWorker(subject, commands, logs, with_package=with_package)


def _commands(subject: Subject, models: Mapping[str, Path], base: Path) -> tuple[Commands, bool]:
    """Return the command lines of a worker, and whether it is part of this package."""
    name = subject.backend
    unused = {key: getattr(subject, key) for key in _UNUSED}
    if name not in ADAPTERS:
        unused["program"] = subject.program
    for key in (key for key, value in unused.items() if value):
        hint = "remove it: a worker gets everything with its requests"
        raise InputError(f"backend {name} does not use subject.{key}", hint=hint)
    command = subject.command
    if command is None and name in ADAPTERS:
        command = (*(subject.program or (sys.executable, "-P")), "-m", ADAPTERS[name], "{target}", "{draft}")
    if command is None:
        hint = 'command = ["python3", "my_worker.py", "{target}", "{draft}"]'
        raise InputError(f"the {name} backend needs the command of a worker in [subject]", hint=hint)
    for word in (*command, *(subject.plain_command or ()), *subject.args):
        if "{port}" in word:
            hint = "remove {port}: a worker reads stdin and writes stdout"
            raise InputError(f"'{word}': a worker has no port", hint=hint)
    plain = None if subject.plain_command is None else (*subject.plain_command, *subject.args)
    commands = Commands((*command, *subject.args), plain, models, base.absolute())
    return commands, subject.command is None and subject.program is None


class WorkerBackend:
    """Starts workers of one kind, each with the target and at most one draft."""

    streams = 1
    restart_knobs: tuple[str, ...] = ("draft",)
    realtime = True
    caches = False
    options: frozenset[str] = frozenset()
    """The protocol of workers has no field for any of them."""
    draft_hint = "check why the worker's draft proposes nothing"

    def __init__(self, subject: Subject, commands: Commands, logs: Path, *, with_package: bool) -> None:
        """*with_package*: the worker is part of this package, and is started with it on its path."""
        self.name: str = subject.backend
        self.clock: Clock = SystemClock()
        self._subject, self._commands, self._logs, self._with_package = subject, commands, logs, with_package
        self._limits = AnswerLimits(subject)
        self._starts = count(1)
        separate = commands.plain is not None
        self._greeting = self._first_greeting(next(iter(subject.drafts), None))
        self._plain_greeting = self._first_greeting(None) if separate else self._greeting
        self.shares_process = self._greeting.shares_process and not separate
        self.sight, self.knobs = _of_both(self._greeting, self._plain_greeting, separate=separate)
        self.uncached = Sight.COLD in self.sight

    def residence(self, setting: Setting) -> str:
        """Return the draft, or `plain` for a worker without one; one that shares its process answers both."""
        return str(dict(setting).get("draft") or PLAIN)

    def start(self, setting: Setting, *, cache: bool = False) -> Worker:
        """Start a worker and wait until it is ready; raise InputError with the end of its log where it is not."""
        if cache:
            raise GatekeeperError("a worker has no prompt cache to leave on", hint="this is a bug; please report it")
        draft, limit = dict(setting).get("draft"), self._subject.start_timeout
        process = self._launch(draft, self._logs / self._log_name(next(self._starts), draft))
        try:
            deadline = time.monotonic() + limit
            greeting = _read_greeting(process, limit)
            self._check_unchanged(process, greeting, draft)
            _await_ready(process, greeting.name, deadline, limit)
        except BaseException:
            process.close()
            raise
        return Worker(process, draft, self._subject.timeout, self._limits, shares_process=self.shares_process)

    def versions(self) -> Mapping[str, str]:
        """Return the versions in the workers' greetings, their commands, and the digests of the files in these."""
        entries = _versions("worker", self._greeting)
        if not self._with_package:
            entries |= self._commands.for_manifest()
        return entries | ({} if self._commands.plain is None else _versions("plain worker", self._plain_greeting))

    def _launch(self, draft: str | None, log: Path) -> WorkerProcess:
        command = self._commands.fill_command(self._subject.target, draft)
        return WorkerProcess(command, log=log, folder=self._commands.folder, with_package=self._with_package)

    def _first_greeting(self, draft: str | None) -> Greeting:
        """Start the program for its greeting alone."""
        with tempfile.TemporaryDirectory(prefix="gatekeeper-") as folder:
            process = self._launch(draft, Path(folder) / "worker.log")
            try:
                return _read_greeting(process, self._subject.start_timeout)
            finally:
                process.close()

    def _log_name(self, number: int, draft: str | None) -> str:
        return f"{self.name}-{number}-{PLAIN if draft is None else 'draft'}.log"

    def _check_unchanged(self, process: WorkerProcess, greeting: Greeting, draft: str | None) -> None:
        expected = self._greeting if draft is not None else self._plain_greeting
        if greeting != expected:
            message = f"the greeting of `{process.command}` is {greeting}, but was {expected} before the run"
            raise InputError(message, hint="the worker has changed: begin a new run")


class _AssumedWorker(WorkerBackend):
    """A worker that is taken to show and to take everything: what its file asks for is then wrong for any worker."""

    def _first_greeting(self, draft: str | None) -> Greeting:
        del draft
        return Greeting(self.name, functools.reduce(operator.or_, SEES.values()), KNOBS, shares_process=True)


def _of_both(drafting: Greeting, plain: Greeting, *, separate: bool) -> tuple[Sight, frozenset[str]]:
    """Return what a pair of workers shows and which knobs it takes; we measure its memory ourselves."""
    if not separate:
        return drafting.sight | Sight.MEMORY, drafting.knobs
    sight = drafting.sight & plain.sight & SEEN_IN_ANSWERS
    sight |= (drafting.sight & Sight.ROUNDS) | (plain.sight & READS_TARGET) | Sight.MEMORY | Sight.PLAIN
    return sight, drafting.knobs - (frozenset(CONDITIONS) - plain.knobs)


def _versions(prefix: str, greeting: Greeting) -> dict[str, str]:
    return {prefix: greeting.name} | {f"{prefix} {name}": version for name, version in greeting.versions.items()}


def _read_greeting(process: WorkerProcess, limit: float) -> Greeting:
    return greeting_from(_read_at_start(process, limit, "greet", limit, "the worker"), process.command)


def _await_ready(process: WorkerProcess, name: str, deadline: float, limit: float) -> None:
    message = _read_at_start(process, max(0.001, deadline - time.monotonic()), "become ready", limit, name)
    if message.get("ready") is not True:
        raise InputError(f"`{process.command}` did not send its ready line", hint=f'{MANUAL}: {{"ready": true}}')


def _read_at_start(process: WorkerProcess, timeout: float, step: str, limit: float, name: str) -> dict[str, Any]:
    try:
        line = read_line(process.receive(timeout, time.monotonic() + timeout))
    except WorkerFault as fault:
        hint = MANUAL
        if str(fault).startswith(TIMEOUT):
            message = f"`{process.command}` did not {step} within start_timeout = {limit:g} s"
            hint = "raise start_timeout in [subject], or check what else runs on this machine"
        elif process.alive():
            message = f"`{process.command}` did not {step}: {fault}"
        else:
            message = f"`{process.command}` ended at start, before it could {step}: {fault}"
        cause = error_line(process.log) or str(fault)
        raise StartError(message, cause=cause, hint=f"{hint}\n{quoted_log(process.log)}") from None
    if "failed" not in line:
        return line
    failed = quote(str(line["failed"]))
    if model := line.get("loading"):
        message = f"{quote(str(model))}: {name} cannot load this model: {failed}"
        hint = quote(str(line.get("hint") or "is the folder complete? Download the model again"))
    else:
        message = f"`{process.command}` cannot work here: {failed}"
        hint = quote(str(line.get("hint") or MANUAL))
    raise StartError(message, cause=failed, hint=f"{hint}\n{quoted_log(process.log)}")
