"""The worker backend: any program that speaks the worker protocol, one process per draft."""

import os
import platform
import re
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Self

from gatekeeper.backends.http.chat import PLAIN, resolve
from gatekeeper.backends.process import find_program, installed
from gatekeeper.backends.worker_process import WorkerProcess
from gatekeeper.backends.worker_protocol import (
    MANUAL,
    Hello,
    WorkerFault,
    answer_from,
    ask_line,
    gap_from,
    hello_from,
    is_number,
    read_line,
)
from gatekeeper.core.backend_registry import ADAPTERS
from gatekeeper.core.clock import Clock, SystemClock
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.files import file_sha256
from gatekeeper.core.interfaces import DecodeRequest
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer, Setting
from gatekeeper.core.slo import CONDITIONS
from gatekeeper.core.subject import Subject

_PLACE = re.compile(r"\{(target|draft|port)\}")


@dataclass(frozen=True, slots=True)
class Commands:
    """The command lines of both arms, with their places still open."""

    drafting: tuple[str, ...]
    plain: tuple[str, ...] | None
    """None: the same program, whose words with {draft} are left out where there is no draft."""
    models: Mapping[str, Path]
    folder: Path
    """Where the programs run: the SLO file's folder, so that paths mean what they mean there."""

    def filled(self, target: str, draft: str | None) -> list[str]:
        """Return one arm's command line; raise InputError where its program is not here."""
        words = self.drafting if draft is not None or self.plain is None else self.plain
        if not (kept := [word for word in words if draft is not None or "{draft}" not in word]):
            raise InputError(f"`{' '.join(words)}` names no program once {{draft}} is left out", hint=MANUAL)
        places = {"target": str(self._model(target)), "draft": str(self._model(draft)) if draft else ""}
        filled = [_PLACE.sub(lambda place: places.get(place[1], place[0]), word) for word in kept]
        return [self._program(filled[0]), *filled[1:]]

    def told(self) -> dict[str, str]:
        """Return the command lines as written and the digests of the files they name, for the manifest."""
        told = {"command": " ".join(self.drafting)}
        if self.plain is not None:
            told["plain_command"] = " ".join(self.plain)
        for word in (*self.drafting, *(self.plain or ())):
            if not _PLACE.search(word) and (path := self.folder / word).is_file():
                told[f"file {word}"] = file_sha256(path)
        return told

    def _model(self, name: str) -> Path:
        if name not in self.models:
            raise InputError(f"model '{name}' has no local folder", hint=f"fetch it: hf download {name}")
        return self.models[name]

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


_UNUSED = ("url", "plain_url", "served_model_name", "draft_method", "api_key_env", "knobs")
_OF_AN_ANSWER = Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT | Sight.TOKEN_IDS | Sight.COLD
"""What both arms must show to be compared."""


def open_worker(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "WorkerBackend":
    """Start each program once, hear its greeting and end it; raise InputError where one does not greet."""
    name = subject.backend
    unused = {key: getattr(subject, key) for key in _UNUSED}
    if name not in ADAPTERS:
        unused["program"] = subject.program
    for key in (key for key, value in unused.items() if value):
        raise InputError(f"backend {name} has no use for subject.{key}", hint="a worker gets everything in its asks")
    command = subject.command
    if command is None and name in ADAPTERS:
        command = (*(subject.program or (sys.executable, "-P")), "-m", ADAPTERS[name], "{target}", "{draft}")
    if command is None:
        hint = 'command = ["python3", "my_worker.py", "{target}", "{draft}"]'
        raise InputError(f"the {name} backend needs the command of a worker in [subject]", hint=hint)
    for word in (*command, *(subject.plain_command or ()), *subject.args):
        if "{port}" in word:
            raise InputError(f"'{word}': a worker has no port", hint="it speaks on stdin and stdout")
    commands = Commands((*command, *subject.args), _with(subject.plain_command, subject.args), models, base.absolute())
    return WorkerBackend(subject, commands, logs, ours=subject.command is None and subject.program is None)


def _with(command: Sequence[str] | None, more: Sequence[str]) -> tuple[str, ...] | None:
    return None if command is None else (*command, *more)


class WorkerBackend:
    """Starts workers of one kind, each with the target and at most one draft."""

    streams = 1
    restart_knobs: tuple[str, ...] = ("draft",)
    realtime = True
    caches = False
    uncached = False  # a worker that keeps no prompt cache says so: it sees "cold"
    silent = "look why the worker's draft proposes nothing"

    def __init__(self, subject: Subject, commands: Commands, logs: Path, *, ours: bool = False) -> None:
        self.name: str = subject.backend
        self.clock: Clock = SystemClock()
        self._subject, self._commands, self._logs, self._ours = subject, commands, logs, ours
        self._starts = count(1)
        first = subject.drafts[0] if subject.drafts else None
        self._hello = self._greeting(first)
        self._plain_hello = self._hello if commands.plain is None else self._greeting(None)
        self.shares_process = self._hello.shares_process and commands.plain is None
        self.sight, self.knobs = _together(self._hello, self._plain_hello, separate=commands.plain is not None)
        self.uncached = Sight.COLD in self.sight

    def residence(self, setting: Setting) -> str:
        """Return the draft; `plain` names a worker without one."""
        return str(dict(setting).get("draft") or PLAIN)

    def start(self, setting: Setting, *, cache: bool = False) -> "Worker":
        """Start a worker and wait until it is ready; raise InputError with its last words where it does not come up."""
        if cache:
            raise GatekeeperError("a worker has no prompt cache to leave on", hint="this is a bug; please report it")
        draft = dict(setting).get("draft")
        expected = self._hello if draft is not None else self._plain_hello
        log = self._logs / f"{self.name}-{next(self._starts)}-{PLAIN if draft is None else 'draft'}.log"
        return start_worker(
            self._commands.filled(self._subject.target, draft),
            log=log,
            folder=self._commands.folder,
            ours=self._ours,
            draft=draft,
            expected=expected,
            shares_process=self.shares_process,
            timeout=self._subject.timeout,
            start_timeout=self._subject.start_timeout,
        )

    def versions(self) -> Mapping[str, str]:
        """Return what the workers greet with, the commands that start them, and the digests of the files in these."""
        told = {"worker": self._hello.name, **_prefixed("worker", self._hello.versions)}
        if not self._ours:
            told |= self._commands.told()
        if self._commands.plain is not None:
            told |= {"plain worker": self._plain_hello.name, **_prefixed("plain worker", self._plain_hello.versions)}
        return told

    def _greeting(self, draft: str | None) -> Hello:
        """Start the program for its greeting alone."""
        command = self._commands.filled(self._subject.target, draft)
        with tempfile.TemporaryDirectory(prefix="gatekeeper-") as folder:
            log = Path(folder) / "worker.log"
            process = WorkerProcess(command, log=log, folder=self._commands.folder, ours=self._ours)
            try:
                return _hear_hello(process, self._subject.start_timeout)
            finally:
                process.close()


def _together(drafting: Hello, plain: Hello, *, separate: bool) -> tuple[Sight, frozenset[str]]:
    """Return what a pair of workers lets us see and turn; their processes are ours, so their memory is seen."""
    if not separate:
        return drafting.sight | Sight.MEMORY, drafting.knobs
    seen = drafting.sight & plain.sight & _OF_AN_ANSWER
    seen |= (drafting.sight & Sight.ROUNDS) | (plain.sight & Sight.LOGITS) | Sight.MEMORY | Sight.PLAIN
    return seen, drafting.knobs - (frozenset(CONDITIONS) - plain.knobs)


def _prefixed(prefix: str, versions: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix} {name}": version for name, version in versions.items()}


def start_worker(
    command: Sequence[str],
    *,
    log: Path,
    folder: Path,
    ours: bool,
    draft: str | None,
    shares_process: bool,
    timeout: float,
    start_timeout: float,
    expected: Hello | None = None,
) -> "Worker":
    """Start a worker and wait until it is ready; raise InputError where it does not, or greets unlike *expected*."""
    process = WorkerProcess(command, log=log, folder=folder, ours=ours)
    try:
        deadline = time.monotonic() + start_timeout
        hello = _hear_hello(process, start_timeout)
        _unchanged(process, hello, expected)
        _await_ready(process, hello, deadline, start_timeout)
    except BaseException:
        process.close()
        raise
    return Worker(process, draft, timeout, shares_process=shares_process)


def _hear_hello(process: WorkerProcess, start_timeout: float) -> Hello:
    said = _hear_at_start(process, start_timeout, "greet")
    if "failed" in said:
        raise _failed(process, "the worker", said)
    return hello_from(said, process.spoken)


def _unchanged(process: WorkerProcess, hello: Hello, expected: Hello | None) -> None:
    if expected is not None and hello != expected:
        message = f"`{process.spoken}` greets as {hello}, and greeted as {expected} before the run"
        raise InputError(message, hint="did the worker change? Begin a new run")


def _await_ready(process: WorkerProcess, hello: Hello, deadline: float, start_timeout: float) -> None:
    said = _hear_at_start(process, max(0.001, deadline - time.monotonic()), "become ready", start_timeout)
    if said.get("ready") is True:
        return
    if "failed" in said:
        raise _failed(process, hello.name, said)
    raise InputError(f"`{process.spoken}` did not say that it is ready", hint=f'{MANUAL}: {{"ready": true}}')


def _hear_at_start(process: WorkerProcess, patience: float, what: str, limit: float | None = None) -> dict[str, Any]:
    try:
        return read_line(process.hear(patience))
    except WorkerFault as fault:
        if str(fault).startswith("timeout"):
            message = f"`{process.spoken}` was not ready in start_timeout = {limit or patience:g} s: it did not {what}"
            hint = "raise start_timeout in [subject], or look at what the machine is busy with"
        elif process.alive():
            message, hint = f"`{process.spoken}` did not {what}: {fault}", MANUAL
        else:
            message, hint = f"`{process.spoken}` ended at start, before it could {what}: {fault}", MANUAL
        raise InputError(message, hint=f"{hint}.\n{process.last_words()}") from None


def _failed(process: WorkerProcess, name: str, said: Mapping[str, Any]) -> InputError:
    if where := said.get("loading"):
        message = f"{where}: {name} cannot load this model: {said['failed']}"
        hint = said.get("hint") or "is the folder complete? Fetch the model again"
    else:
        message, hint = f"`{process.spoken}` cannot work here: {said['failed']}", said.get("hint") or MANUAL
    return InputError(message, hint=f"{hint}.\n{process.last_words()}")


class Worker:
    """One worker, asked one thing at a time."""

    def __init__(self, process: WorkerProcess, draft: str | None, timeout: float, *, shares_process: bool) -> None:
        self._process, self._draft, self._timeout = process, draft, timeout
        self._answers = {draft, None} if shares_process else {draft}
        self._numbers = count(1)
        self._turn = threading.Lock()

    def answer(self, ask: DecodeRequest) -> Answer:
        """Answer one request; what the worker does wrong, its death and its silence are the answer's fault."""
        asked = resolve(ask)
        if asked.draft not in self._answers:
            held, wanted = self._draft or PLAIN, asked.draft or PLAIN
            message = f"asked a worker that holds '{held}' to decode with '{wanted}'"
            raise GatekeeperError(message, hint="this is a bug; please report it")
        with self._turn:
            number = next(self._numbers)
            sent = time.monotonic_ns()
            said, fault = self._exchange(number, ask_line(number, asked, ask.setting))
            received = time.monotonic_ns()
        if said is None:
            return Answer(sent, received, fault=fault)
        try:
            return answer_from(said, asked_ns=sent, received_ns=received, drafting=asked.draft is not None)
        except WorkerFault as wrong:
            # The line was whole and the answer to this ask: the worker is wrong, and still in step.
            return Answer(sent, received, fault=str(wrong))

    def logit_gap(self, ask: DecodeRequest, tokens: tuple[int, ...]) -> float | None:
        """Return how far the target's best logit lies above its second after the prompt and *tokens*.

        An untimed pass that explains near-ties; None where the worker cannot tell.
        """
        with self._turn:
            number = next(self._numbers)
            said, _ = self._exchange(number, ask_line(number, resolve(ask), ask.setting, tokens))
        return None if said is None else gap_from(said)

    def pids(self) -> tuple[int, ...]:
        """Return the worker's process."""
        return (self._process.pid,)

    def alive(self) -> bool:
        """Tell whether the worker still runs."""
        return self._process.alive()

    def beat(self) -> bytes:
        """Return the worker's latest sign of life."""
        return self._process.beat()

    def close(self) -> None:
        """End the worker and wait for it."""
        self._process.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _exchange(self, number: int, line: bytes) -> tuple[dict[str, Any] | None, str]:
        """Return the answer to ask *number*, or None and what is wrong; a worker out of step is ended."""
        begun = False
        try:
            self._process.say(line, self._timeout)
            while True:
                said = read_line(self._process.hear(self._timeout))
                if is_number(said.get("answer"), number):
                    return said, ""
                _in_step(said, number, begun=begun)
                begun = True
        except WorkerFault as fault:
            self._process.close()
            return None, str(fault) if begun else f"{fault} (it had not begun)"


def _in_step(said: Mapping[str, Any], number: int, *, begun: bool) -> None:
    """Raise WorkerFault unless *said* is the one line that begins ask *number*."""
    if is_number(said.get("begin"), number) and not begun:
        return
    for word in ("answer", "begin"):
        if word in said:
            raise WorkerFault(f"out of step: {word} {said[word]!r} while ask {number} was under way")
    keys = ", ".join(sorted(said)[:4]) or "nothing"
    raise WorkerFault(f"out of step: a line that is neither begin nor answer, with {keys}")


_INSTALL = 'pip install "gatekeeper[mlx]"'


def open_mlx(subject: Subject, *, models: Mapping[str, Path], base: Path, logs: Path) -> "MlxBackend":
    """Return the mlx backend; raise InputError where mlx-lm is not installed."""
    del base
    if find_spec("mlx_lm") is None:
        raise InputError("the mlx backend needs mlx-lm, which is not installed here", hint=_INSTALL)
    return MlxBackend(subject, models, logs)


class MlxBackend:
    """Starts workers, each with the target and one draft."""

    name = "mlx"
    # What our own worker greets with; known here, so that nothing has to be started to plan a run.
    sight = (Sight.ARRIVALS | Sight.TOKEN_COUNT | Sight.TEXT | Sight.TOKEN_IDS) | (
        Sight.ROUNDS | Sight.MEMORY | Sight.PLAIN | Sight.LOGITS | Sight.COLD
    )
    shares_process = True
    streams = 1
    restart_knobs: tuple[str, ...] = ("draft",)
    knobs = frozenset({"draft", "num_draft_tokens", "temperature", "max_tokens", "thinking"})
    realtime = True
    caches = False
    uncached = True
    silent = "look at num_draft_tokens and the pair's vocabularies"

    def __init__(self, subject: Subject, models: Mapping[str, Path], logs: Path) -> None:
        self.clock: Clock = SystemClock()
        self._subject, self._models, self._logs = subject, models, logs
        self._starts = count(1)

    def residence(self, setting: Setting) -> str:
        """Return the draft; `plain` names a worker without one, though every worker answers plain asks."""
        return str(dict(setting).get("draft") or PLAIN)

    def start(self, setting: Setting, *, cache: bool = False) -> Worker:
        """Start a worker and wait until its models are loaded; raise InputError naming a folder that is broken."""
        if cache:
            raise GatekeeperError("the mlx worker has no prompt cache to leave on", hint='use backend = "mlx-server"')
        draft = dict(setting).get("draft")
        folders = [self._folder(name) for name in (self._subject.target, draft) if name is not None]
        return start_worker(
            [sys.executable, "-P", "-m", "gatekeeper.backends.workers.mlx_lm", *(str(folder) for folder in folders)],
            log=self._logs / f"mlx-worker-{next(self._starts)}.log",
            folder=Path.cwd(),
            ours=True,
            draft=draft,
            shares_process=True,
            timeout=self._subject.timeout,
            start_timeout=self._subject.start_timeout,
        )

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the environment this process and its workers share."""
        return {"python": platform.python_version(), **installed("mlx", "mlx-lm", "transformers", "numpy")}

    def _folder(self, name: str) -> Path:
        if name not in self._models:
            raise InputError(f"model '{name}' has no local folder", hint=f"fetch it: hf download {name}")
        return self._models[name]
