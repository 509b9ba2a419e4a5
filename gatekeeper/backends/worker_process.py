"""The worker's process: a program on three pipes, a log, and a page on which it shows that it is alive."""

import mmap
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from gatekeeper.backends.process import GRACE_S, environment, last_words, tail
from gatekeeper.backends.worker_protocol import LINE_BYTES, WorkerFault
from gatekeeper.core import child_process
from gatekeeper.core.errors import InputError

BEAT = "GATEKEEPER_BEAT"
"""Names the descriptor of the page: any change of its first eight bytes is a sign of life."""
_LOOK_S = 0.5
"""How often a silent worker is looked at; it is never asked."""
_ENDING_S = 2.0
"""After its output has ended: as long as a program may take to be gone."""
_PIECE = 1 << 16
_WORD = 160
"""Characters of a dead worker's last line that its fault quotes."""


class WorkerProcess:
    """Owns the program, its pipes and its page."""

    def __init__(self, command: Sequence[str], *, log: Path, folder: Path, ours: bool) -> None:
        """Start *command* in *folder*; raise InputError where the system cannot run it."""
        self.spoken = " ".join(command)
        self._log, self._heard, self._open = log, bytearray(), True
        self._closing = threading.Lock()
        log.parent.mkdir(parents=True, exist_ok=True)
        # The worker counts its tokens on this page: we see progress without a word on the pipe.
        with tempfile.TemporaryFile() as page:
            page.truncate(mmap.PAGESIZE)
            self._beat = mmap.mmap(page.fileno(), mmap.PAGESIZE)
            with log.open("wb") as errors:
                try:
                    # A session of its own: Ctrl-C reaches us alone, and we end the worker and its children in order.
                    self._child = subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        pass_fds=(page.fileno(),),
                        start_new_session=True,
                        cwd=folder,
                        bufsize=0,
                        env={**environment(ours=ours), BEAT: str(page.fileno())},
                    )
                except OSError as error:
                    hint = "does it begin with #! and an interpreter that is here?"
                    raise InputError(f"`{self.spoken}` cannot be run: {error.strerror}", hint=hint) from error
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

    def say(self, line: bytes, patience: float) -> None:
        """Write *line*; raise WorkerFault where the worker is gone or does not take it for *patience* seconds."""
        rest = memoryview(line)
        while rest:
            self._await(select.POLLOUT, patience, f"timeout: it did not read its ask within {patience:g} s")
            try:
                rest = rest[os.write(self._in.fileno(), rest[:_PIECE]) :]
            except BlockingIOError:
                continue
            except (OSError, ValueError):
                raise WorkerFault(self.ending()) from None

    def hear(self, patience: float) -> bytes:
        """Return the next line; raise WorkerFault at its end, and after *patience* seconds without a sign of life."""
        seen = 0
        while (end := self._heard.find(b"\n", seen)) < 0 and len(self._heard) <= LINE_BYTES:
            seen = len(self._heard)
            self._await(select.POLLIN, patience, f"timeout: no token within {patience:g} s")
            try:
                piece = os.read(self._out.fileno(), _PIECE)
            except (OSError, ValueError):
                piece = b""
            if not piece:
                raise WorkerFault(self.ending() + (", in the middle of a line" if self._heard else ""))
            self._heard += piece
        if not 0 <= end <= LINE_BYTES:
            raise WorkerFault(f"garbage on stdout: a line longer than {LINE_BYTES >> 20} MiB")
        line = bytes(self._heard[:end])
        del self._heard[: end + 1]
        return line

    def _await(self, what: int, patience: float, silence: str) -> None:
        """Wait until the pipe is ready; a beat starts the patience anew."""
        if not self._open:
            raise WorkerFault(self.ending())
        poll = select.poll()
        poll.register(self._in if what == select.POLLOUT else self._out, what)
        beat, since = self.beat(), time.monotonic()
        while not poll.poll(1000 * min(_LOOK_S, patience / 4)):
            if self.beat() != beat:
                beat, since = self.beat(), time.monotonic()
            elif time.monotonic() - since > patience:
                raise WorkerFault(f"{silence}; the worker was ended")

    def beat(self) -> bytes:
        """Return what the worker last left on its page."""
        return self._beat[:8]

    def ending(self) -> str:
        """Say how it ended, with its last word where it left by itself; one that only fell silent is ended."""
        try:
            status = self._child.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self.close()
            return "worker closed its output; it was ended"
        told = f"worker died: {child_process.exit_reason(status)}"
        last = tail(self._log).splitlines()[-1:] if status >= 0 else []
        return f"{told} ({last[0].strip()[:_WORD]})" if last else told

    def last_words(self) -> str:
        """Quote the tail of its log, for an error."""
        return last_words(self._log)

    def close(self) -> None:
        """End it and its children, and wait; safe to call twice."""
        with self._closing:
            if self._open:
                child_process.end(self._child, grace=GRACE_S)
                self._in.close()
                self._out.close()
                self._open = False
