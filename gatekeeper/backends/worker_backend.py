"""The worker backend: programs with the worker protocol, one process per draft; ours runs mlx-lm."""

import os
import platform
import re
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from gatekeeper.backends.answer_limits import AnswerLimits
from gatekeeper.backends.http.chat import PLAIN, resolve
from gatekeeper.backends.launch_line import without_keys
from gatekeeper.backends.models.artifacts import local_path
from gatekeeper.backends.process import find_program, installed, installed_beside
from gatekeeper.backends.worker_process import WorkerProcess
from gatekeeper.backends.worker_protocol import (
    MANUAL,
    Greeting,
    WorkerFault,
    answer_from,
    forced_from,
    gap_from,
    greeting_from,
    is_number,
    read_line,
    request_line,
)
from gatekeeper.core.backend_registry import ADAPTERS
from gatekeeper.core.clock import Clock, SystemClock
from gatekeeper.core.errors import GatekeeperError, InputError, StartError
from gatekeeper.core.interfaces import DecodeRequest, ForcedPass, RunningSystem
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import TIMEOUT, Answer, Setting
from gatekeeper.core.slo import CONDITIONS
from gatekeeper.core.subject import Subject
from gatekeeper.core.system.files import file_sha256
from gatekeeper.core.text import quote

_UNUSED = ("url", "plain_url", "served_model_name", "draft_method", "api_key_env", "knobs")
_PLACEHOLDER = re.compile(r"\{(target|draft)\}")
_SEEN_IN_ANSWERS = Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT | Sight.TOKEN_IDS | Sight.COLD | Sight.PROMPT_TIME
"""Parts of an answer that count only where both arms show them."""
_READS_TARGET = Sight.LOGITS | Sight.FORCED
"""What untimed passes of the target show: the plain arm's."""
_MLX_GREETING = Greeting(
    "mlx-lm",
    _SEEN_IN_ANSWERS | Sight.ROUNDS | Sight.PLAIN | _READS_TARGET,
    frozenset({"draft", "num_draft_tokens", "temperature", "max_tokens", "thinking"}),
    shares_process=True,
)
"""The greeting of our own worker, so that a run can be planned without starting it."""


@dataclass(frozen=True, slots=True)
class Commands:
    """The command lines of both arms, with their placeholders."""

    drafting: tuple[str, ...]
    plain: tuple[str, ...] | None
    """None: the same program, whose words with {draft} are left out where there is no draft."""
    models: Mapping[str, Path]
    folder: Path
    """The working directory of the programs: the SLO file's folder, which paths are relative to."""

    def filled(self, target: str, draft: str | None) -> list[str]:
        """Return one arm's command line; raise InputError where its program is missing."""
        words = self.drafting if draft is not None or self.plain is None else self.plain
        if not (kept := [word for word in words if draft is not None or "{draft}" not in word]):
            raise InputError(f"`{' '.join(words)}` is empty without the words that hold {{draft}}", hint=MANUAL)
        values = {"target": local_path(self.models, target), "draft": draft and local_path(self.models, draft)}
        filled = [_PLACEHOLDER.sub(lambda found: str(values[found[1]]), word) for word in kept]
        return [self._program(filled[0]), *filled[1:]]

    def _program(self, word: str) -> str:
        if "/" not in word:
            hint = "install it, or write its path with a slash: paths are relative to the SLO file"
            return find_program(word, install=hint)
        path = self.folder / word
        if not path.is_file():
            raise InputError(f"worker program {path} does not exist", hint="paths are relative to the SLO file")
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
    return WorkerBackend(subject, commands, logs, ours=subject.command is None and subject.program is None)


def open_mlx(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "MlxBackend":
    """Return the mlx backend; raise InputError where mlx-lm is not installed."""
    del base
    if subject.program is None and find_spec("mlx_lm") is None:
        message = "the mlx backend needs mlx-lm, which is not installed here"
        raise InputError(message, hint='pip install "gatekeeper-slo[mlx]"')
    options = (("--prefill-chunk", subject.prefill_chunk), ("--kv-bits", subject.kv_bits))
    words = (word for flag, value in options if value is not None for word in (flag, str(value)))
    program = subject.program or (sys.executable, "-P")
    command = (*program, "-m", "gatekeeper.backends.workers.mlx_lm", "{target}", "{draft}", *words)
    return MlxBackend(subject, Commands(command, None, models, Path.cwd()), logs, ours=True)


class WorkerBackend:
    """Starts workers of one kind, each with the target and at most one draft."""

    streams = 1
    restart_knobs: tuple[str, ...] = ("draft",)
    realtime = True
    caches = False
    adapts = False
    draft_hint = "check why the worker's draft proposes nothing"

    def __init__(self, subject: Subject, commands: Commands, logs: Path, *, ours: bool) -> None:
        """*ours*: the worker is part of this package, and is started with this package on its path."""
        self.name: str = subject.backend
        self.clock: Clock = SystemClock()
        self._subject, self._commands, self._logs, self._ours = subject, commands, logs, ours
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

    def start(self, setting: Setting, *, cache: bool = False) -> "Worker":
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
        found = _versions("worker", self._greeting)
        if not self._ours:
            found |= self._commands.for_manifest()
        return found | ({} if self._commands.plain is None else _versions("plain worker", self._plain_greeting))

    def _launch(self, draft: str | None, log: Path) -> WorkerProcess:
        command = self._commands.filled(self._subject.target, draft)
        return WorkerProcess(command, log=log, folder=self._commands.folder, ours=self._ours)

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


class MlxBackend(WorkerBackend):
    """Starts our own mlx-lm worker, which runs in the environment of this process."""

    draft_hint = "check num_draft_tokens, and the vocabularies of target and draft"

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the environment of the workers: this process's, or that of the SLO's program."""
        if self._subject.program is not None:
            return installed_beside(self._subject.program[0], ("mlx", "mlx-lm", "transformers", "numpy"))
        return {"python": platform.python_version(), **installed("mlx", "mlx-lm", "transformers", "numpy")}

    def _first_greeting(self, draft: str | None) -> Greeting:
        del draft
        return _MLX_GREETING

    def _log_name(self, number: int, draft: str | None) -> str:
        del draft
        return f"mlx-worker-{number}.log"

    def _check_unchanged(self, process: WorkerProcess, greeting: Greeting, draft: str | None) -> None:
        """Accept every greeting: the worker is part of this gatekeeper."""


def _of_both(drafting: Greeting, plain: Greeting, *, separate: bool) -> tuple[Sight, frozenset[str]]:
    """Return what a pair of workers shows and which knobs it takes; we measure its memory ourselves."""
    if not separate:
        return drafting.sight | Sight.MEMORY, drafting.knobs
    sight = drafting.sight & plain.sight & _SEEN_IN_ANSWERS
    sight |= (drafting.sight & Sight.ROUNDS) | (plain.sight & _READS_TARGET) | Sight.MEMORY | Sight.PLAIN
    return sight, drafting.knobs - (frozenset(CONDITIONS) - plain.knobs)


def _versions(prefix: str, greeting: Greeting) -> dict[str, str]:
    return {prefix: greeting.name} | {f"{prefix} {name}": version for name, version in greeting.versions.items()}


def _read_greeting(process: WorkerProcess, limit: float) -> Greeting:
    message = _read_at_start(process, limit, "greet", limit)
    if "failed" in message:
        raise _failure(process, "the worker", message)
    return greeting_from(message, process.command)


def _await_ready(process: WorkerProcess, name: str, deadline: float, limit: float) -> None:
    message = _read_at_start(process, max(0.001, deadline - time.monotonic()), "become ready", limit)
    if "failed" in message:
        raise _failure(process, name, message)
    if message.get("ready") is not True:
        raise InputError(f"`{process.command}` did not send its ready line", hint=f'{MANUAL}: {{"ready": true}}')


def _read_at_start(process: WorkerProcess, timeout: float, what: str, limit: float) -> dict[str, Any]:
    try:
        return read_line(process.receive(timeout, time.monotonic() + timeout))
    except WorkerFault as fault:
        hint = MANUAL
        if str(fault).startswith(TIMEOUT):
            message = f"`{process.command}` did not {what} within start_timeout = {limit:g} s"
            hint = "raise start_timeout in [subject], or check what else runs on this machine"
        elif process.alive():
            message = f"`{process.command}` did not {what}: {fault}"
        else:
            message = f"`{process.command}` ended at start, before it could {what}: {fault}"
        cause = process.error_line() or str(fault)
        raise StartError(message, cause=cause, hint=f"{hint}.\n{process.quoted_log()}") from None


def _failure(process: WorkerProcess, name: str, message: Mapping[str, Any]) -> StartError:
    failed = quote(str(message["failed"]))
    if model := message.get("loading"):
        because = f"{quote(str(model))}: {name} cannot load this model: {failed}"
        hint = quote(str(message.get("hint") or "is the folder complete? Download the model again"))
    else:
        because = f"`{process.command}` cannot work here: {failed}"
        hint = quote(str(message.get("hint") or MANUAL))
    return StartError(because, cause=failed, hint=f"{hint}.\n{process.quoted_log()}")


class Worker(RunningSystem):
    """One worker, which answers one request at a time."""

    def __init__(
        self, process: WorkerProcess, draft: str | None, timeout: float, limits: AnswerLimits, *, shares_process: bool
    ) -> None:
        self._process, self._draft, self._timeout, self._limits = process, draft, timeout, limits
        self._drafts = {draft, None} if shares_process else {draft}
        self._numbers = count(1)
        self._lock = threading.Lock()

    def answer(self, request: DecodeRequest) -> Answer:
        """Answer one request; an error, the death and the silence of the worker are the answer's fault."""
        if request.draft not in self._drafts:
            because = f"the worker started for '{self._draft or PLAIN}' got a request for '{request.draft or PLAIN}'"
            raise GatekeeperError(because, hint="this is a bug; please report it")
        with self._lock:
            sent = time.monotonic_ns()
            message, fault = self._exchange(request)
            received = time.monotonic_ns()
        if message is None:
            return Answer(sent, received, fault=fault)
        try:
            answer = answer_from(message, sent_ns=sent, received_ns=received, drafting=request.draft is not None)
        except WorkerFault as wrong:
            # The line was complete and of this request: the worker can take the next one.
            return Answer(sent, received, fault=quote(str(wrong)))
        self._limits.note(answer)
        return answer

    def logit_gap(self, request: DecodeRequest, tokens: tuple[int, ...]) -> float | None:
        """Return how far the target's best logit lies above its second after the prompt and *tokens*.

        An untimed pass that explains near-ties; None where the worker has no logits.
        """
        with self._lock:
            message, _ = self._exchange(request, gap_after=tokens)
        return None if message is None else gap_from(message)

    def force(self, request: DecodeRequest, tokens: tuple[int, ...]) -> ForcedPass | None:
        """Let the target read the prompt and *tokens* in one pass; None where the worker could not."""
        with self._lock:
            message, _ = self._exchange(request, forced=tokens)
        return None if message is None else forced_from(message, tokens)

    def pids(self) -> tuple[int, ...]:
        """Return the worker's process."""
        return (self._process.pid,)

    def alive(self) -> bool:
        """Tell whether the worker still runs."""
        return self._process.alive()

    def heartbeat(self) -> bytes:
        """Return the worker's latest heartbeat."""
        return self._process.heartbeat()

    def close(self) -> None:
        """End the worker and wait for it."""
        self._process.close()

    def _exchange(self, request: DecodeRequest, **reading: tuple[int, ...]) -> tuple[dict[str, Any] | None, str]:
        """Return the worker's answer, or None and its fault; a worker out of step is ended."""
        number, begun, resolved = next(self._numbers), False, resolve(request)
        until = time.monotonic() + self._limits.seconds(resolved.max_tokens)
        try:
            self._process.send(request_line(number, resolved, request.setting, **reading), self._timeout, until)
            while True:
                message = read_line(self._process.receive(self._timeout, until))
                if is_number(message.get("answer"), number):
                    return message, ""
                _check_in_step(message, number, begun=begun)
                begun = True
        except WorkerFault as fault:
            self._process.close()
            why = quote(str(fault))
            return None, why if begun else f"{why} (it had not begun)"


def _check_in_step(message: Mapping[str, Any], number: int, *, begun: bool) -> None:
    """Raise WorkerFault unless *message* is the one line that begins request *number*."""
    if is_number(message.get("begin"), number) and not begun:
        return
    for word in ("answer", "begin"):
        if word in message:
            raise WorkerFault(f"out of step: {word} {quote(repr(message[word]))} during request {number}")
    keys = ", ".join(sorted(message)[:4]) or "nothing"
    raise WorkerFault(f"out of step: a line that is neither begin nor answer, with {quote(keys)}")
