"""A child process whose output is read without waiting for it."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, Self

from gatekeeper.host.source import Output

OUTPUT_MOST = 4 << 20
"""Bytes: a full powermetrics sample is a quarter of a megabyte; ten times that is not an answer."""


def environment() -> dict[str, str]:
    """Return this process's environment in the C locale, so that numbers carry points and words are English."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LC_") and key != "LANG"}
    return kept | {"LC_ALL": "C", "LANG": "C"}


class Child:
    """A running command, its own process group, both outputs non-blocking. Whoever starts it closes it."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.started_ns = time.monotonic_ns()
        # A group of its own, not a session: sudo's cached permission belongs to the terminal of this session.
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            process_group=0,
        )
        self.out = bytearray()
        self.err = bytearray()
        self._open: dict[IO[bytes], bytearray] = {}
        self._selector: selectors.BaseSelector | None = None
        for pipe, kept in ((self._process.stdout, self.out), (self._process.stderr, self.err)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._open[pipe] = kept

    def register(self, selector: selectors.BaseSelector, ready: Callable[[], None]) -> None:
        """Have *selector* report new output by calling *ready*, which calls `read`."""
        self._selector = selector
        for pipe in self._open:
            selector.register(pipe, selectors.EVENT_READ, ready)

    def read(self) -> None:
        """Take what has arrived."""
        for pipe, taken in list(self._open.items()):
            try:
                chunk = os.read(pipe.fileno(), 1 << 16)
            except BlockingIOError:
                continue
            taken.extend(chunk)
            if not chunk:
                self._shut(pipe)

    def _shut(self, pipe: IO[bytes]) -> None:
        del self._open[pipe]
        if self._selector is not None:
            self._selector.unregister(pipe)
        pipe.close()

    @property
    def ended(self) -> bool:
        """Tell whether it has said all it will say."""
        return not self._open

    @property
    def overflowing(self) -> bool:
        """Tell whether it has printed more than any answer is long."""
        return len(self.out) + len(self.err) > OUTPUT_MOST

    def output(self) -> Output:
        """Return what it left behind, after its end."""
        try:
            code = self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            self.close()
            code = -signal.SIGKILL
        return Output(code, bytes(self.out), bytes(self.err))

    def close(self) -> None:
        """End it and its group; what runs as root ends at its next write into the closed pipe."""
        for pipe in list(self._open):
            self._shut(pipe)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(argv: Sequence[str], *, limit: float = 3.0) -> Output | None:
    """Run a command to its end; None where it is missing, cannot start, or does not end within *limit* seconds."""
    try:
        child = Child(argv)
    except OSError:
        return None
    with selectors.DefaultSelector() as selector, child:
        child.register(selector, child.read)
        end_ns = child.started_ns + round(limit * 1e9)
        while not child.ended and not child.overflowing:
            left = (end_ns - time.monotonic_ns()) / 1e9
            if left <= 0:
                return None
            for key, _ in selector.select(left):
                key.data()
        return None if child.overflowing else child.output()
