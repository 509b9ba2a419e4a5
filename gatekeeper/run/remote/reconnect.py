"""A connection that is restored when it breaks, for at most --patience."""

import time
from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from gatekeeper.core.units import show_seconds
from gatekeeper.run.remote.ssh import Connection
from gatekeeper.run.remote.ssh_errors import MALFORMED, SILENT, SshError

Result = TypeVar("Result")
Say = Callable[[str, str], None]
"""Takes what a message is about and the message."""


class Connect(Protocol):
    """Opens connections."""

    def __call__(self, *, alone: bool = False) -> Connection:
        """Open one; *alone* shares no connection with other commands of this user."""


FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
STABLE_S = 30.0
"""A connection that lasted this long has worked: only the time after it counts against --patience."""
PERMANENT = frozenset({"host_key_changed", "host_key_unknown", "configuration", "no_python", "name", MALFORMED})
"""Errors that a retry cannot fix."""


class ReconnectingSession:
    """Owns the current connection. When it breaks, the action is repeated from its start over a new one."""

    def __init__(self, connect: Connect, *, patience_s: float) -> None:
        self._connect, self._patience_s = connect, patience_s
        self.say: Say = lambda _about, _what: None
        self._connection: Connection | None = None
        self._progress_at = time.monotonic()
        self.run_started = False
        """A run is under way on the remote host, and does not need this connection."""

    def note_progress(self) -> None:
        """Note that something arrived: the time limit of the retries starts again."""
        self._progress_at = time.monotonic()

    def do(self, action: Callable[[Connection], Result], *, patience_s: float | None = None) -> Result:
        """Perform *action* over the connection; when that breaks, reconnect and retry for at most *patience_s*.

        The very first connection is not retried: an error there is an error of the command.
        """
        patience = self._patience_s if patience_s is None else patience_s
        pause, reported, silent = FIRST_PAUSE_S, False, False
        if self._connection is None:
            self._connection = self._connect()
        self.note_progress()
        while True:
            before, connected = self._progress_at, None
            try:
                if self._connection is None:
                    # A shared connection that hangs, as after a closed laptop, would also block a new one.
                    self._connection = self._connect(alone=silent)
                    if reported:
                        self.say("connection", "reconnected")
                    reported = False
                connected = time.monotonic()
                return action(self._connection)
            except SshError as error:
                self.close()
                silent = error.reason == SILENT
                if connected is not None and not silent and time.monotonic() - connected > STABLE_S:
                    self.note_progress()  # uploading models takes an hour without progress
                if self._progress_at > before:
                    pause = FIRST_PAUSE_S
                waited = time.monotonic() - self._progress_at
                if error.reason in PERMANENT or waited >= patience:
                    raise self._final(error) from error
                if not reported:
                    remaining = show_seconds(patience - waited)
                    self.say("connection", f"lost: {error.message}; retrying for {remaining}")
                    reported = True
                time.sleep(min(pause, max(0.0, patience - waited)))
                pause = min(LONGEST_PAUSE_S, pause * 2)

    def _final(self, error: SshError) -> SshError:
        if not self.run_started:
            return error
        hint = f"the run continues on the remote host; repeat the command to attach to it. {error.hint}"
        return SshError(error.reason, f"nothing is proven yet: {error.message}", hint=hint)

    def close(self) -> None:
        """End the connection; what was started continues."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
