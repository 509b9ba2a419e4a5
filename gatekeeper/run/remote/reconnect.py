"""The tether: a link that is made again when it breaks, for as long as somebody's patience lasts."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, TypeVar

from gatekeeper.core.units import show_seconds
from gatekeeper.run.remote.ssh import Link
from gatekeeper.run.remote.ssh_errors import SILENT, LinkError

Done = TypeVar("Done")
Say = Callable[[str, str], None]
"""Takes what something is about and the sentence."""


class Connect(Protocol):
    """Makes links."""

    def __call__(self, *, alone: bool = False) -> Link:
        """Make one; *alone* shares no connection with other commands of this user."""


FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
STOOD_S = 30.0
"""A connection that worked for so long was one: patience is for the time without any."""
HOPELESS = frozenset({"host_key_changed", "host_key_unknown", "configuration", "no_python", "name"})
"""What waiting does not mend."""


class Tether:
    """Owns the link of the moment. What is done over it may be done again from its beginning."""

    def __init__(self, connect: "Connect", *, patience_s: float) -> None:
        self._connect, self._patience_s = connect, patience_s
        self.say: Say = lambda _about, _what: None
        self._link: Link | None = None
        self._heard = time.monotonic()
        self.goes_on = False
        """A run is under way at the other end, and does not need us."""

    def alive(self) -> None:
        """Note that something came: patience begins anew."""
        self._heard = time.monotonic()

    def hold(self, act: Callable[[Link], Done], *, patience_s: float | None = None) -> Done:
        """Do *act* over the link; where that breaks, do it again over a new one, for so long.

        The very first connection is not tried twice: what is wrong with it is wrong with the command.
        """
        patience = self._patience_s if patience_s is None else patience_s
        pause, told, silent = FIRST_PAUSE_S, False, False
        if self._link is None:
            self._link = self._connect()
        self.alive()
        while True:
            before, connected = self._heard, None
            try:
                if self._link is None:
                    # A shared connection that hangs, as after a closed laptop, would hang whoever comes next, too.
                    self._link = self._connect(alone=silent)
                    if told:
                        self.say("connection", "connected again")
                    told = False
                connected = time.monotonic()
                return act(self._link)
            except LinkError as error:
                self.close()
                silent = error.reason == SILENT
                if connected is not None and not silent and time.monotonic() - connected > STOOD_S:
                    self.alive()  # models are sent for an hour without a word
                if self._heard > before:
                    pause = FIRST_PAUSE_S
                waited = time.monotonic() - self._heard
                if error.reason in HOPELESS or waited >= patience:
                    raise self._given_up(error) from error
                if not told:
                    left = show_seconds(patience - waited)
                    self.say("connection", f"lost: {error.message}; trying again for {left}")
                    told = True
                time.sleep(min(pause, max(0.0, patience - waited)))
                pause = min(LONGEST_PAUSE_S, pause * 2)

    def _given_up(self, error: LinkError) -> LinkError:
        if not self.goes_on:
            return error
        hint = f"the run goes on there; the same command attaches to it. {error.hint}"
        return LinkError(error.reason, f"nothing is proven yet: {error.message}", hint=hint)

    def close(self) -> None:
        """End the link; what was started goes on."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
