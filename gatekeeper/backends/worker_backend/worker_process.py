"""A worker's process: its pipes, its log, and the shared page that holds its heartbeat."""

import contextlib
import mmap
import os
import secrets
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from gatekeeper.backends.server_process import GRACE_S, environment, new_log, tail
from gatekeeper.backends.worker_backend.worker_protocol import LINE_BYTES, WorkerFault
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import TIMEOUT
from gatekeeper.core.system import child_process
from gatekeeper.core.system.environment_variables import GATEKEEPER_BEAT, GATEKEEPER_WORKER
from gatekeeper.core.system.own_limits import check_own_limit
from gatekeeper.core.text import quote

_POLL_S = 0.5
"""How often the page of a silent worker is read."""
MOST_LOG = 1 << 30
"""Bytes of a log; a worker that writes without an end fills the disk in minutes."""
_EXIT_S = 2.0
"""Seconds to wait for a program to exit once its output has ended."""
_PIPE_BYTES = 1 << 16
_QUOTED = 160
"""Characters of a dead worker's last log line that its fault quotes."""


class WorkerProcess:
    """Owns the program, its pipes and its page."""

    def __init__(self, argv: Sequence[str], *, log: Path, folder: Path, with_package: bool) -> None:
        """Start *argv* in *folder*; raise InputError where the system cannot run it."""
        self.command = " ".join(argv)
        self.log, self._unread, self._open = log, bytearray(), True
        self._closing, self._mark = threading.Lock(), secrets.token_hex(8)
        own = {GATEKEEPER_WORKER: self._mark}
        # The worker counts its tokens on this page, so that progress shows without a line on the pipe.
        with tempfile.TemporaryFile() as page:
            page.truncate(mmap.PAGESIZE)
            self._page = mmap.mmap(page.fileno(), mmap.PAGESIZE)
            with new_log(log) as errors:
                try:
                    # A session of its own: Ctrl-C reaches only us, and we end the worker and its children in order.
                    self._child = subprocess.Popen(
                        argv,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        pass_fds=(page.fileno(),),
                        start_new_session=True,
                        cwd=folder,
                        bufsize=0,
                        env=environment(with_package=with_package) | own | {GATEKEEPER_BEAT: str(page.fileno())},
                    )
                except OSError as error:
                    check_own_limit(error)
                    hint = "does it begin with #! and an installed interpreter?"
                    raise InputError(f"`{self.command}` cannot be run: {error.strerror}", hint=hint) from error
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._in, self._out = self._child.stdin, self._child.stdout
        os.set_blocking(self._in.fileno(), False)

    @property
    def pid(self) -> int:
        """Return the process's id, also when it has ended."""
        return self._child.pid

    def alive(self) -> bool:
        """Tell whether it still runs."""
        return self._child.poll() is None

    def send(self, line: bytes, timeout: float, until: float) -> None:
        """Write *line*; raise WorkerFault where the worker is gone or does not read it for *timeout* seconds."""
        rest = memoryview(line)
        while rest:
            self._await(select.POLLOUT, timeout, f"{TIMEOUT}: it did not read its request within {timeout:g} s", until)
            try:
                rest = rest[os.write(self._in.fileno(), rest[:_PIPE_BYTES]) :]
            except BlockingIOError:
                continue
            except (OSError, ValueError):
                raise WorkerFault(self.ending()) from None

    def receive(self, timeout: float, until: float) -> bytes:
        """Return the next line; raise WorkerFault at its end, and after *timeout* seconds without a heartbeat.

        Heartbeats and pieces of a line prolong the wait, but not beyond *until*, in seconds of the monotonic clock.
        """
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0 and len(self._unread) <= LINE_BYTES:
            searched = len(self._unread)
            self._await(select.POLLIN, timeout, f"{TIMEOUT}: no token for {timeout:g} s", until)
            try:
                part = os.read(self._out.fileno(), _PIPE_BYTES)
            except (OSError, ValueError):
                part = b""
            if not part:
                raise WorkerFault(self.ending() + (", in the middle of a line" if self._unread else ""))
            self._unread += part
        if not 0 <= end <= LINE_BYTES:
            raise WorkerFault(f"garbage on stdout: a line longer than {LINE_BYTES >> 20} MiB")
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _await(self, event: int, timeout: float, reason: str, until: float) -> None:
        """Wait until a pipe is ready, at most *until*; a heartbeat starts the timeout anew."""
        if not self._open:
            raise WorkerFault(self.ending())
        poll = select.poll()
        poll.register(self._in if event == select.POLLOUT else self._out, event)
        beat, since = self.heartbeat(), time.monotonic()
        while True:
            self._check_log()
            remaining = until - time.monotonic()
            # What is there already is read, also by a process that was stopped itself until after the deadline.
            if poll.poll(1000 * max(0.0, min(_POLL_S, timeout / 4, remaining))):
                return
            if remaining <= 0:
                raise WorkerFault(f"{TIMEOUT}: its answer was not complete in time; gatekeeper ended the worker")
            if self.heartbeat() != beat:
                beat, since = self.heartbeat(), time.monotonic()
            elif time.monotonic() - since > timeout:
                raise WorkerFault(f"{reason}; gatekeeper ended the worker")

    def _check_log(self) -> None:
        with contextlib.suppress(OSError):  # it was removed
            if self.log.stat().st_size > MOST_LOG:
                raise WorkerFault(f"its log is longer than {MOST_LOG >> 20} MiB; gatekeeper ended the worker")

    def heartbeat(self) -> bytes:
        """Return the counter on the worker's shared page."""
        return self._page[:8]

    def ending(self) -> str:
        """Describe how it ended, with its last line where it exited by itself; end one that only closed its pipe."""
        try:
            status = self._child.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.close()
            return "worker closed its output; gatekeeper ended it"
        died = f"worker died: {child_process.exit_reason(status)}"
        last = tail(self.log).splitlines()[-1:] if status >= 0 else []
        return f"{died} ({quote(last[0])[:_QUOTED]})" if last else died

    def close(self) -> None:
        """End it and its children, and wait; safe to call twice."""
        with self._closing:
            if self._open:
                child_process.end(self._child, grace=GRACE_S)
                self._kill_left_behind()
                self._in.close()
                self._out.close()
                self._open = False

    def _kill_left_behind(self) -> None:
        """Kill what left the worker's group by a fork of its own: what is in its session, or has its mark.

        A second fork hides a process from its parent, and a session of its own from the session; its environment stays,
        which both Linux and macOS show of this user's processes.
        """
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError, RuntimeError):  # ended, of another user, or not shown
                process = psutil.Process(pid)
                if os.getsid(pid) == self.pid or process.environ().get(GATEKEEPER_WORKER) == self._mark:
                    process.kill()
