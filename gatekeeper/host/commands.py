"""Runs command-line tools of the host: in the C locale, without input, each in its own process group."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from gatekeeper.core.child_process import end


@dataclass(frozen=True, slots=True)
class Output:
    """What a finished tool printed, and its exit code."""

    code: int
    out: bytes
    err: bytes = b""

    @property
    def text(self) -> str | None:
        """Return stdout as text, None where it holds bytes that no tool of ours prints."""
        try:
            text = self.out.decode("utf-8")
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else text

    @property
    def messages(self) -> str:
        """Return both streams, for error messages: tools disagree about where they complain."""
        return (self.err + b"\n" + self.out[-2000:]).decode("utf-8", "replace").replace("\0", " ").strip()


def environment() -> dict[str, str]:
    """Return this process's environment in the C locale, so that numbers carry points and words are English."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LC_") and key != "LANG"}
    return kept | {"LC_ALL": "C", "LANG": "C"}


@contextlib.contextmanager
def running(argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command and kill it and its group at the end of the body; raise OSError where it cannot start.

    What runs as root cannot be killed; it ends at its next write into the closed pipe.
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
    """Return the exit code of a process whose output has ended, that of a killed one where it lives on."""
    try:
        return process.wait(0.2)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


class _Run:
    """A command under way: its process, what it has printed, and when its time is over."""

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

    def close(self) -> Output | None:
        """Return its output; kill it and return None where that has not ended."""
        with self._closing:
            return None if self.open else Output(exit_code(self.process), *self.printed.values())


Result = Output | OSError | None
"""What a command printed, why it cannot start, or None where it did not end in time."""


def run_all(commands: Sequence[tuple[Sequence[str], float]], ended: Callable[[int, Result], None]) -> None:
    """Run command lines side by side, each with its limit in seconds; report each by its index as soon as it ends.

    One thread reads them all: a thread for each takes a third more CPU time, which the measured program may want.
    """
    runs: dict[int, _Run] = {}
    for index, (argv, limit) in enumerate(commands):
        try:
            runs[index] = _Run(argv, limit)
        except OSError as error:
            ended(index, error)
    while runs:
        pipes = {pipe: run for run in runs.values() for pipe in run.open}
        left = min(run.end for run in runs.values()) - time.monotonic()
        for pipe in select.select(pipes, (), (), max(0.0, left))[0]:
            pipes[pipe].read(pipe)
        now = time.monotonic()
        for index in [index for index, run in runs.items() if not run.open or now >= run.end]:
            ended(index, runs.pop(index).close())


def run(argv: Sequence[str]) -> Output | None:
    """Run a command to its end; None where it is missing, cannot start, or hangs."""
    results: list[Result] = []
    run_all([(argv, 3.0)], lambda _, result: results.append(result))
    return results[0] if isinstance(results[0], Output) else None
