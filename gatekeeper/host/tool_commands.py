"""Runs command-line tools of the host: in the C locale, without input, each in its own process group."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import IO

from gatekeeper.core.system.child_process import end

MOST_OUTPUT = 4 << 20
"""Bytes of output after which a command is killed: no tool of ours prints a tenth of it."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a finished tool printed, and its exit code."""

    code: int
    out: bytes
    err: bytes = b""

    @property
    def text(self) -> str | None:
        """Return stdout as text; None where it holds a NUL or is not UTF-8."""
        try:
            text = self.out.decode("utf-8")
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else text

    @property
    def messages(self) -> str:
        """Return both streams, for error messages: some tools print their errors on stdout."""
        return (self.err + b"\n" + self.out[-2000:]).decode("utf-8", "replace").replace("\0", " ").strip()


def environment() -> dict[str, str]:
    """Return this process's environment in the C locale, for decimal points and English words."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("LC_") and key != "LANG"}
    return variables | {"LC_ALL": "C", "LANG": "C"}


@contextlib.contextmanager
def running(argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command and kill it and its group at the end of the body; raise OSError where it cannot start.

    A process of root's cannot be killed; it ends at its next write into the closed pipe.
    """
    # A group of its own, not a session: sudo's cached permission belongs to the terminal of this session.
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        process_group=0,
    )
    try:
        yield process
    finally:
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
        if process.poll() is None:
            end(process, grace=0, limit=0.5)


def exit_code(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process whose output has ended; that of a killed one where it still runs."""
    try:
        return process.wait(0.2)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


class _Run:
    """A running command: its process, what it has printed, and when its time is over."""

    def __init__(self, argv: Sequence[str], limit: float) -> None:
        self._closing = contextlib.ExitStack()
        self.process = self._closing.enter_context(running(argv))
        self.end = time.monotonic() + limit
        self.printed = {pipe: b"" for pipe in (self.process.stdout, self.process.stderr) if pipe}
        self.open = set(self.printed)

    def read(self, pipe: IO[bytes]) -> None:
        """Take what has arrived."""
        chunk = os.read(pipe.fileno(), 1 << 16)
        self.printed[pipe] += chunk
        if not chunk:
            self.open.remove(pipe)

    def result(self) -> "Output | Killed | None":
        """Return how it ended, None while it runs."""
        if not self.open:
            return Output(exit_code(self.process), *self.printed.values())
        if sum(map(len, self.printed.values())) > MOST_OUTPUT:
            return Killed.TOO_MUCH_OUTPUT
        return Killed.TIMEOUT if time.monotonic() >= self.end else None

    def close(self) -> None:
        """Kill it where it still runs."""
        self._closing.close()


class Killed(Enum):
    """Why a command was killed."""

    TIMEOUT = auto()
    TOO_MUCH_OUTPUT = auto()
    """It printed more than MOST_OUTPUT."""


Result = Output | Killed | OSError
"""What a command printed, why it was killed, or why it cannot start."""


def run_all(
    commands: Sequence[tuple[Sequence[str], float]], ended: Callable[[int, Result], None], stop: int | None = None
) -> None:
    """Run command lines side by side, each with its limit in seconds; report each by its index as soon as it ends.

    Kill those that still run, without a report, when the descriptor *stop* becomes readable. One thread reads them all:
    a thread for each takes a third more CPU time, which the measured program may want.
    """
    runs: dict[int, _Run] = {}
    stops = () if stop is None else (stop,)
    try:
        for index, (argv, limit) in enumerate(commands):
            try:
                runs[index] = _Run(argv, limit)
            except OSError as error:
                ended(index, error)
        while runs:
            pipes = {pipe: run for run in runs.values() for pipe in run.open}
            seconds = min(run.end for run in runs.values()) - time.monotonic()
            ready = select.select((*pipes, *stops), (), (), max(0.0, seconds))[0]
            if stop in ready:
                return
            for pipe in ready:
                pipes[pipe].read(pipe)
            for index, run in list(runs.items()):
                if (result := run.result()) is not None:
                    runs.pop(index).close()
                    ended(index, result)
    finally:
        for run in runs.values():
            run.close()


def run_for(argv: Sequence[str], seconds: float) -> Output:
    """Run a command to its end or for *seconds*, after which it is killed; raise OSError where it cannot start.

    What a killed one printed until then is returned, with the exit code -SIGKILL.
    """
    command = _Run(argv, seconds)
    try:
        while (result := command.result()) is None:
            rest = max(0.0, command.end - time.monotonic())
            for pipe in select.select(tuple(command.open), (), (), rest)[0]:
                command.read(pipe)
        return result if isinstance(result, Output) else Output(-signal.SIGKILL, *command.printed.values())
    finally:
        command.close()


def run(argv: Sequence[str], limit: float = 3.0) -> Output | None:
    """Run a command to its end; None where it is missing, cannot start, prints without end or takes *limit* seconds."""
    results: list[Result] = []
    run_all([(argv, limit)], lambda _, result: results.append(result))
    return results[0] if isinstance(results[0], Output) else None
